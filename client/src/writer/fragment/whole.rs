//! Packets that are there as a whole. Most are small and go into their chunk with one copy.

use watershed_smb::MAX_FRAGMENTS_WRITTEN;

use super::{COMPACT_BELOW, Core, Current, MIN_PACKET_ROOM_BYTES};
use crate::arbiter::Shared;

impl Core {
    pub(in crate::writer) fn write_packet(&mut self, packet: &[u8]) {
        if !self.is_simple(packet.len()) {
            if !self.drop_at_once() {
                self.write_any(packet);
            }
            return;
        }
        let end = self.position + 1 + packet.len();
        let image = &mut self.image[self.position..end];
        image[0] = packet.len() as u8;
        image[1..].copy_from_slice(packet);
        write_simple(&self.arbiter, &mut self.current, self.position, image);
        (self.position, self.synced) = (end, end);
    }

    /// Writes the packet `sized[1..]`: the byte in front is for its size. False: it was dropped.
    #[inline]
    pub(in crate::writer) fn write_sized(&mut self, sized: &mut [u8]) -> bool {
        let Some((size, packet)) = sized.split_first_mut() else { return false };
        if !self.is_simple(packet.len()) {
            let dropped = self.packets_dropped();
            if !self.drop_at_once() {
                self.write_any(packet);
            }
            return self.packets_dropped() == dropped;
        }
        *size = packet.len() as u8;
        write_simple(&self.arbiter, &mut self.current, self.position, sized);
        // The image is not read again behind `synced`.
        self.position += sized.len();
        self.synced = self.position;
        true
    }

    #[inline(never)]
    fn write_any(&mut self, packet: &[u8]) {
        self.begin_packet();
        if self.discarding {
            // Nothing was begun that would have to be ended.
            self.in_packet = false;
            return;
        }
        self.append(packet);
        self.finish_packet();
    }

    /// Whether a packet needs nothing but its bytes: it is small, its chunk has room for it and for
    /// the start of the next one, and its place is already promised. Most are like that.
    #[inline]
    fn is_simple(&self, packet_bytes: usize) -> bool {
        let end = self.position + 1 + packet_bytes;
        let has_room = end + MIN_PACKET_ROOM_BYTES <= self.capacity && packet_bytes < COMPACT_BELOW;
        let is_plain = self.begun && !self.loss_to_report && !self.in_packet;
        let is_promised = |current: &Current| current.inflated && current.fragments < MAX_FRAGMENTS_WRITTEN;
        let is_simple = has_room && is_plain && self.current.as_ref().is_some_and(is_promised);
        is_simple && !self.arbiter.is_crowded() && !self.arbiter.is_forked()
    }
}

/// Writes a packet for which [`Core::is_simple`] holds, with its size in front.
#[inline]
fn write_simple(arbiter: &Shared, current: &mut Option<Current>, position: usize, sized: &[u8]) {
    let Some(current) = current else { return };
    let smb = arbiter.smb();
    smb.write_payload(&current.chunk, position, sized);
    current.fragments += 1;
    smb.set_fragments(&current.chunk, current.fragments, current.flags());
}
