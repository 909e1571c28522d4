//! Receivers of packets that are overwritten.

use crate::packet::Packet;

/// Receives every whole packet that is about to be overwritten unread, in the order of its
/// sequence.
///
/// Its loss reasons are those that are pending on the sequence, and stay pending. Packets that miss
/// a fragment are not shown; those that wait for patches or whose chunk is incomplete are shown as
/// far as they are whole.
pub trait OverwriteSink: Send {
    /// True: the packet is kept elsewhere and is no loss. False: it counts as overwritten.
    fn handle_overwritten(&mut self, packet: &Packet<'_>) -> bool;
}

impl<F: FnMut(&Packet<'_>) -> bool + Send> OverwriteSink for F {
    fn handle_overwritten(&mut self, packet: &Packet<'_>) -> bool {
        self(packet)
    }
}
