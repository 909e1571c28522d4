//! `watershed inspect --top`: how long each thread ran and waited, and who woke whom.
//!
//! ```text
//!   bundles of one CPU ──Bundles──> events, losses ──Order──> by time ──Scheduler──> Times of threads
//!         process trees, tracks ──> Names ──> Named <── Lives of thread ids ──┘       and CPUs, wakings
//! ```
//!
//! A recorder writes one CPU's events after the other's, a drain period at a time. To know when a
//! thread was woken on one CPU and ran on another they have to be in order, so some are held back
//! ([`order`]). Memory is bounded by that, by the numbers of threads, CPUs and pairs of threads,
//! each of which has a limit, and not by the trace's length.
//!
//! What was lost is not guessed. While a CPU's events are missing, the thread that ran there and
//! all that waited may have done anything: such time is `unknown`.

mod bundles;
mod comms;
mod human;
mod lives;
mod names;
mod order;
mod report;
mod scheduler;
mod thread;
mod told;

use watershed_wire::DecodeError;
use watershed_wire::packet::Envelope;
use watershed_wire::protos::{ProcessTree, TrackDescriptor};

pub(super) use self::bundles::Bundles;
use self::comms::Comm;
pub(super) use self::comms::Comms;
pub(super) use self::human::write;
use self::names::{Named, Names};
pub(super) use self::order::{Order, Timed};
pub(super) use self::report::Scheduling;
use self::scheduler::Scheduler;

/// Threads whose state is kept, names, what is told of threads, and pairs of threads whose wakings
/// are counted.
const THREADS_MAX: usize = 1 << 17;
const PAIRS_MAX: usize = 1 << 18;

/// The thread that the kernel runs when there is nothing to run, on every CPU.
pub(super) const IDLE: i32 = 0;

/// Something that changed what runs, or that is not known to have done so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) at_ns: u64,
    pub(super) cpu: u32,
    pub(super) what: What,
}

impl Timed for Event {
    fn at_ns(&self) -> u64 {
        self.at_ns
    }

    fn put_at(&mut self, at_ns: u64) {
        self.at_ns = at_ns;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// `prev` is `None` where the event does not say.
    Switch {
        prev: Option<i32>,
        prev_comm: Comm,
        prev_state: State,
        next: i32,
        next_comm: Comm,
    },
    /// `sched_waking`.
    Waking {
        waker: Waker,
        tid: i32,
        comm: Comm,
    },
    /// The thread can run from now on; who did that is not known.
    Runnable {
        tid: i32,
        comm: Comm,
    },
    /// `task_newtask`: the thread has been made, for its maker's process or for one of its own.
    New {
        tid: i32,
        comm: Comm,
        maker: i32,
        is_thread: bool,
    },
    Renamed {
        tid: i32,
        comm: Comm,
    },
    /// Events of this CPU are missing from here on.
    LostFrom,
    /// They are there again.
    LostUntil,
}

/// What a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing was heard of it.
    Unseen,
    Running,
    Runnable,
    Interruptible,
    Uninterruptible,
    /// A kernel thread that waits and is not load.
    Idle,
    /// Stopped, traced or parked.
    Stopped,
    /// It ran where events are missing.
    Unknown,
    Dead,
}

/// Who wakes a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waker {
    /// Who ran on the event's CPU.
    Current,
    Thread(i32),
    Interrupt,
    Unknown,
}

/// Scheduling of one session.
#[derive(Debug, Default)]
pub(super) struct Top {
    bundles: Bundles,
    comms: Comms,
    names: Names,
    order: Order<Event>,
    scheduler: Scheduler,
}

impl Top {
    /// Takes the envelope of every packet, before its contents.
    pub(super) fn take_envelope(&mut self, envelope: &Envelope<'_>) {
        self.bundles.take_loss(envelope);
    }

    /// Takes a packet's `FtraceEventBundle`.
    ///
    /// # Errors
    /// If it is none; what was taken of it stays.
    pub(super) fn take_bundle(&mut self, envelope: &Envelope<'_>, bundle: &[u8]) -> Result<(), DecodeError> {
        let Top { bundles, comms, order, scheduler, .. } = self;
        let events = bundles.read(envelope, bundle, comms)?;
        for event in events {
            order.push(event, &mut |event| scheduler.take(event));
        }
        Ok(())
    }

    /// Takes what a packet says of threads and their processes; `boottime_ns` is its time.
    pub(super) fn take_tree(
        &mut self,
        machine_id: Option<u32>,
        boottime_ns: Option<u64>,
        tree: &ProcessTree,
    ) {
        if machine_id.is_none() {
            self.names.take_tree(boottime_ns, tree);
        }
    }

    /// As [`Self::take_tree`].
    pub(super) fn take_track(
        &mut self,
        machine_id: Option<u32>,
        boottime_ns: Option<u64>,
        track: &TrackDescriptor,
    ) {
        if machine_id.is_none() {
            self.names.take_track(boottime_ns, track);
        }
    }

    /// The result, when all packets were taken.
    pub(super) fn finish(mut self) -> Scheduling {
        let scheduler = &mut self.scheduler;
        self.order.finish(&mut |event| scheduler.take(event));
        scheduler.finish();
        let is_dated = !self.bundles.has_own_clock;
        let named = Named::new(&self.names, &self.comms, &self.scheduler.lives, is_dated);
        Scheduling::new(&self.bundles, &self.order, &self.scheduler, &named)
    }
}
