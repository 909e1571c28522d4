//! `watershed inspect --top`: how long each thread ran and waited, and who woke whom.
//!
//! ```text
//!   bundles of one CPU ──Bundles──> events, losses ──Order──> by time ──Scheduler──> Times of threads
//!                          └──> Names <── process trees, tracks                      and CPUs, wakings
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
mod human;
mod names;
mod order;
mod report;
mod scheduler;

use watershed_wire::DecodeError;
use watershed_wire::packet::Envelope;
use watershed_wire::protos::{ProcessTree, TrackDescriptor};

use self::bundles::Bundles;
pub(super) use self::human::write;
use self::names::Names;
use self::order::Order;
use self::report::Named;
pub(super) use self::report::Scheduling;
use self::scheduler::Scheduler;
use super::processes::Processes;

/// Threads whose state or name is kept, and pairs of threads whose wakings are counted.
const THREADS_MAX: usize = 1 << 17;
const PAIRS_MAX: usize = 1 << 18;

/// The thread that the kernel runs when there is nothing to run, on every CPU.
const IDLE: i32 = 0;

/// Something that changed what runs, or that is not known to have done so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Event {
    at_ns: u64,
    cpu: u32,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// `prev` is `None` where the event does not say.
    Switch { prev: Option<i32>, prev_state: State, next: i32 },
    /// `sched_waking`.
    Waking { waker: Waker, tid: i32 },
    /// The thread can run from now on; who did that is not known.
    Runnable { tid: i32 },
    /// Events of this CPU are missing from here on.
    LostFrom,
    /// They are there again.
    LostUntil,
}

/// What a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Waker {
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
    names: Names,
    order: Order,
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
        let Top { bundles, names, order, scheduler } = self;
        let events = bundles.read(envelope, bundle, names)?;
        for event in events {
            order.push(event, &mut |event| scheduler.take(event));
        }
        Ok(())
    }

    /// Takes what a packet says of threads and their processes.
    pub(super) fn take_tree(&mut self, machine_id: Option<u32>, tree: &ProcessTree) {
        if machine_id.is_none() {
            self.names.take_tree(tree);
        }
    }

    /// As [`Self::take_tree`].
    pub(super) fn take_track(&mut self, machine_id: Option<u32>, track: &TrackDescriptor) {
        if machine_id.is_none() {
            self.names.take_track(track);
        }
    }

    /// The result, when all packets were taken. `processes` are those of the same packets.
    pub(super) fn finish(mut self, processes: &Processes) -> Scheduling {
        let scheduler = &mut self.scheduler;
        self.order.finish(&mut |event| scheduler.take(event));
        scheduler.finish();
        self.names.finish();
        Scheduling::new(
            &self.bundles,
            &self.order,
            &self.scheduler,
            &Named { threads: &self.names, processes },
        )
    }
}
