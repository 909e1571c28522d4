//! What every probe is to the thread that runs it.

use watershed_wire::protos::TracePacket;

/// A source of packets that is read at moments of its own choosing. Knows nothing of sessions,
/// threads or buffers.
pub trait Probe: Send {
    /// The value of [`boottime_now_ns`](crate::boottime_now_ns) at which [`Probe::poll`] has
    /// something to do; `None` if never again.
    fn due_ns(&self) -> Option<u64>;

    /// Reads what is due at `now_ns` and hands each packet, timestamp included, to `emit`. Calling
    /// it early is harmless.
    fn poll(&mut self, now_ns: u64, emit: &mut dyn FnMut(&TracePacket));

    /// Makes everything due at once, besides its regular moments.
    fn hurry(&mut self);

    /// Forgets what was reported, so that the next packets need no earlier ones.
    fn clear_incremental_state(&mut self) {}
}
