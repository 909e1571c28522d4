//! The parts of a buffer, and who may touch them.
//!
//! ```text
//!   Inner ---- tickets, directory, pool of extents, oldest  everybody, lock-free
//!     |
//!     +-- Place 0:  word | inbox | hints: wanted, granted.. everybody, lock-free
//!     |             state: engine shard, backlog            whoever owns the word
//!     +-- Place 1: ...
//!     |
//!     +-- reading: what was extracted and not handed out    one reader at a time
//! ```

use std::sync::{Arc, Mutex};

use crossbeam_utils::CachePadded;
use watershed_engine::{FillPolicy, Shard, mem::Region};

use crate::blocks::Reading;
use crate::config::Homes;
use crate::directory::{Directory, Entry, Key};
use crate::extents::{Cutting, Pool};
use crate::inbox::{Inbox, Letters};
use crate::keep::Quiet;
use crate::lazy::Lazy;
use crate::nodes::{Letter, NodePool};
use crate::part::Part;
use crate::sync::{AtomicU32, AtomicU64, Ordering, UnsafeCell};
use crate::ticket::Tickets;
use crate::topology::Topology;
use crate::wish::{Debt, Debts, Wish};
use crate::word::{OwnerId, Word};
use crate::worker::Bell;

/// A shard with so many live sequences takes one more, whatever the mean. A CPU on which four threads write is nothing unusual, and they do not
/// run at the same time; a sequence that is sent to another CPU's shard makes that CPU's threads meet it there at every commit, for good.
const LIVE_IN_ANY_CASE: usize = 4;

/// What a shard has that nobody owns: above every ticket.
pub(crate) const NO_TICKET: u64 = u64::MAX;

/// What the owner of a shard's word has.
#[derive(Debug)]
pub(crate) struct State {
    /// The shard's engine, made at its first commit.
    pub(crate) engine: Option<Shard>,
    /// Taken out of the inbox and not done, oldest first: the one that is at work, then the others.
    pub(crate) current: Option<Letter<Part>>,
    pub(crate) backlog: Letters<Part>,
    /// Sequences that have gone, and the moment at which their homes were marked as leaving.
    pub(crate) leaving: Vec<(Key, u64)>,
    /// What the hints say.
    pub(crate) shown: Shown,
    /// Whether the word is worth keeping.
    pub(crate) quiet: Quiet,
}

/// What others have been told of a shard, where its owner sees it without a look at what they look at.
#[derive(Debug)]
pub(crate) struct Shown {
    /// The ticket of the oldest record, or [`NO_TICKET`]. It stays the oldest while chunks are only added. In a shard that is alone nobody asks.
    pub(crate) oldest: u64,
    pub(crate) live: u32,
}

/// One shard's place.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) word: CachePadded<Word>,
    pub(crate) inbox: CachePadded<Inbox<Part>>,
    /// In lines of their own: others look at them, and the owner stores what has changed only.
    pub(crate) hints: CachePadded<Hints>,
    pub(crate) bell: CachePadded<Bell>,
    state: CachePadded<UnsafeCell<State>>,
}

/// What others know of a shard without owning it.
#[derive(Debug)]
pub(crate) struct Hints {
    /// About which ticket was the next, as the shard knew, when it got its newest extent: whether it is at work. Relaxed.
    pub(crate) granted: AtomicU64,
    /// Live sequences: a hint for the choice of homes. Relaxed.
    pub(crate) live: AtomicU32,
    /// Others want an extent and did not take it themselves.
    pub(crate) wanted: Wish,
    /// Somebody had the word for an eviction and did not look at the queue.
    neglected: Debt,
}

// SAFETY: `state` is reached through `Place::state` only, by the owner of `word`; the rest is atomic.
unsafe impl Sync for Place {}

impl Place {
    fn new(queue_capacity: usize) -> Place {
        Place {
            word: CachePadded::new(Word::new()),
            inbox: CachePadded::new(Inbox::new(queue_capacity)),
            hints: CachePadded::new(Hints {
                granted: AtomicU64::new(0),
                live: AtomicU32::new(0),
                wanted: Wish::new(),
                neglected: Debt::new(),
            }),
            bell: CachePadded::new(Bell::default()),
            state: CachePadded::new(UnsafeCell::new(State {
                engine: None,
                current: None,
                backlog: Letters::none(),
                leaving: Vec::new(),
                shown: Shown { oldest: NO_TICKET, live: 0 },
                quiet: Quiet::new(),
            })),
        }
    }

    /// What the owner has.
    ///
    /// # Safety
    /// The caller owns the word, and uses no other reference to the state until this one is gone.
    #[expect(clippy::mut_from_ref, reason = "the word is the lock: its owner has the only reference")]
    pub(crate) unsafe fn state(&self) -> &mut State {
        // SAFETY: the caller's word makes the access exclusive; the last owner's writes were acquired with it.
        self.state.with_mut(|state| unsafe { &mut *state })
    }
}

/// The places of all shards, each made when it is first used: a shard that nobody uses is a null pointer.
#[derive(Debug)]
pub(crate) struct Places {
    table: Box<[Lazy<Place>]>,
    queue_capacity: usize,
}

impl Places {
    pub(crate) fn new(num_shards: usize, queue_capacity: usize) -> Places {
        Places { table: Lazy::table(num_shards), queue_capacity }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// A shard's place, made now if need be.
    #[inline]
    pub(crate) fn get(&self, shard: usize) -> &Place {
        let place = &self.table[shard];
        place.get().unwrap_or_else(|| self.make(place))
    }

    #[cold]
    #[inline(never)]
    fn make<'a>(&self, place: &'a Lazy<Place>) -> &'a Place {
        place.get_or(|| Place::new(self.queue_capacity)).0
    }

    /// The places that have been made.
    pub(crate) fn made(&self) -> impl Iterator<Item = (usize, &Place)> {
        self.table.iter().enumerate().filter_map(|(shard, place)| Some((shard, place.get()?)))
    }
}

/// What [`Inner::oldest`] is at first.
pub(crate) fn oldest_of_none(num_shards: usize) -> Box<[AtomicU64]> {
    (0..num_shards).map(|_| AtomicU64::new(NO_TICKET)).collect()
}

/// All that is shared.
#[derive(Debug)]
pub(crate) struct Inner {
    // Letters lie in the places and belong to the pools: places go first.
    pub(crate) places: Places,
    pub(crate) reading: Mutex<Reading>,
    /// Pools of committers that have gone; their letters may be on their way.
    pub(crate) pools: Mutex<Vec<NodePool<Part>>>,
    pub(crate) tickets: Tickets,
    pub(crate) directory: Directory,
    pub(crate) pool: CachePadded<Pool>,
    pub(crate) cutting: Cutting,
    pub(crate) policy: FillPolicy,
    pub(crate) region: Arc<Region>,
    pub(crate) topology: Topology,
    /// Ticket of each shard's oldest record, or [`NO_TICKET`]: a hint for who looks for something to evict, who looks at all of them, so that they
    /// lie side by side. Stored with Relaxed, if it is another one, before the word is given back: the word is taken before anything is done about it.
    pub(crate) oldest: Box<[AtomicU64]>,
    /// Numbers for owners that are not workers.
    pub(crate) next_owner: AtomicU32,
    /// Live sequences of all shards. Relaxed, a hint.
    pub(crate) live: CachePadded<AtomicU32>,
    /// Places that are neglected.
    pub(crate) debts: Debts,
    pub(crate) has_workers: bool,
    pub(crate) homes: Homes,
    /// The shard for the next sequence, where they get them in turn. Relaxed: it only spreads.
    pub(crate) next_home: AtomicU32,
}

impl Inner {
    /// Whether the shards have extents, or the one shard has the whole region.
    pub(crate) fn has_extents(&self) -> bool {
        self.places.len() > 1
    }

    /// The engine of a shard that the caller owns, made now if need be.
    #[inline]
    pub(crate) fn engine<'a>(&self, state: &'a mut State) -> &'a mut Shard {
        match &mut state.engine {
            Some(engine) => engine,
            none => none.insert(self.make_engine()),
        }
    }

    #[cold]
    #[inline(never)]
    fn make_engine(&self) -> Shard {
        let region = Arc::clone(&self.region);
        if self.has_extents() {
            Shard::new(region, self.cutting.extent_bytes)
        } else {
            // SAFETY: the buffer has one shard and the region belongs to the buffer: nobody else touches its bytes.
            unsafe { Shard::alone(region, self.policy) }
        }
    }

    /// Notes that this thread owes a shard a visit: it has one in hand and cannot go now.
    pub(crate) fn neglect(&self, shard: usize) {
        self.debts.note(&self.places.get(shard).hints.neglected);
    }

    /// Pays the visits that are owed. To be called with no shard in hand, at the end of whatever may have taken one.
    #[inline]
    pub(crate) fn attend(&self, owner: OwnerId) {
        if self.debts.are_there() {
            self.pay_visits(owner);
        }
    }

    #[cold]
    fn pay_visits(&self, owner: OwnerId) {
        let debts = || self.places.made().map(|(shard, place)| (shard, &place.hints.neglected));
        self.debts.pay(debts, |shard| self.help_out(shard, owner));
    }

    /// The shard of a sequence, chosen now if it has none. The caller has announced its batch and taken its tickets.
    #[inline]
    pub(crate) fn home_of(&self, cpu_id: Option<usize>, key: Key) -> u16 {
        self.directory.home_or(key, || self.choose_home(cpu_id)).0
    }

    /// The same of a sequence whose entry was found before.
    ///
    /// # Safety
    /// The entry is of this buffer's directory.
    #[inline]
    pub(crate) unsafe fn home_at(&self, cpu_id: Option<usize>, entry: Entry) -> u16 {
        // SAFETY: the caller's promise.
        unsafe { self.directory.home_or_at(entry, || self.choose_home(cpu_id)) }.0
    }

    /// The shard for a sequence that has none: that of the CPU `cpu_id`, or of the one at hand, or the next in turn, unless it has more
    /// than twice as many live sequences as the shards have on average (and more than
    /// [`LIVE_IN_ANY_CASE`]). Then the next one that has not.
    pub(crate) fn choose_home(&self, cpu_id: Option<usize>) -> u16 {
        let num = self.places.len();
        let wanted = match self.homes {
            Homes::OfTheCpu => {
                self.topology.shard_of(cpu_id.unwrap_or_else(crate::topology::current_cpu), num)
            }
            Homes::InTurn => self.next_home.fetch_add(1, Ordering::Relaxed) as usize % num,
        };
        let live = |shard: usize| self.places.get(shard).hints.live.load(Ordering::Relaxed) as usize;
        let most = (2 * self.live.load(Ordering::Relaxed) as usize / num).max(LIVE_IN_ANY_CASE);
        (0..num).map(|step| (wanted + step) % num).find(|&shard| live(shard) <= most).unwrap_or(wanted) as u16
    }
}
