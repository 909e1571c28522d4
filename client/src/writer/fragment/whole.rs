//! Packets that are there as a whole. Most are small and go into their chunk with one copy.

use watershed_smb::{MAX_FRAGMENTS_WRITTEN, SLOT_BYTES, Slot};

use super::{COMPACT_BELOW, Core, Current, MIN_PACKET_ROOM_BYTES};
use crate::arbiter::Shared;

impl Core {
    pub(in crate::writer) fn write_packet(&mut self, packet: &[u8]) {
        if !self.fits(packet.len()) {
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
        if !self.fits(packet.len()) {
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

    /// Makes `slot` the place of the next packet, if that will need nothing but its bytes; else the
    /// slot is left.
    #[inline(always)]
    pub(in crate::writer) fn place_slot(&self, slot: &mut Slot) {
        match &self.current {
            Some(current) if self.is_simple(current) => {
                self.arbiter.smb().place_slot(slot, &current.chunk, self.position);
            }
            _ => slot.leave(),
        }
    }

    /// Ends the packet that is in `slot`, behind a byte for its size: so many bytes with that.
    /// False, and nothing done, if it is too long.
    #[inline]
    pub(in crate::writer) fn end_slot(&mut self, slot: &mut Slot, sized_bytes: usize) -> bool {
        let Some(current) = self.current.as_mut().filter(|_| sized_bytes <= COMPACT_BELOW) else {
            return false;
        };
        slot.put_byte(0, (sized_bytes - 1) as u8);
        add_fragment(&self.arbiter, current);
        self.position += sized_bytes;
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
    fn fits(&self, packet_bytes: usize) -> bool {
        let end = self.position + 1 + packet_bytes;
        let has_room = end + MIN_PACKET_ROOM_BYTES <= self.capacity && packet_bytes < COMPACT_BELOW;
        has_room && self.current.as_ref().is_some_and(|current| self.is_simple(current))
    }

    /// Likewise, apart from its size.
    #[inline]
    fn is_simple(&self, current: &Current) -> bool {
        let is_plain = self.begun && !self.loss_to_report && !self.in_packet;
        let is_promised = current.inflated && current.fragments < MAX_FRAGMENTS_WRITTEN;
        is_plain && is_promised && !self.arbiter.is_crowded() && !self.arbiter.is_forked()
    }
}

/// Writes a packet for which [`Core::fits`] holds, with its size in front. Apart from its callers,
/// so that a packet that is dropped does not save registers for the copy.
#[inline(never)]
fn write_simple(arbiter: &Shared, current: &mut Option<Current>, position: usize, sized: &[u8]) {
    let Some(current) = current else { return };
    arbiter.smb().write_payload(&current.chunk, position, sized);
    add_fragment(arbiter, current);
}

/// What is written behind the last fragment is the next one.
#[inline]
fn add_fragment(arbiter: &Shared, current: &mut Current) {
    current.fragments += 1;
    arbiter.smb().set_fragments(&current.chunk, current.fragments, current.flags);
}

const _: () = assert!(COMPACT_BELOW + MIN_PACKET_ROOM_BYTES <= SLOT_BYTES, "a slot has room for both");
