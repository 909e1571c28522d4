//! Where packets go: out as they lie in a trace file, or into a batch for a consumer.

use std::io::IoSlice;

use prost::encoding::{decode_varint, encoded_len_varint};
use watershed_shards::Pieces;
use watershed_shards::framing::{Stamp, put_packet};

pub(crate) trait Sink {
    /// Takes a packet of the service's own: its slices, then the stamp. False if there is no room
    /// for it. Then nothing is taken, and nothing may come afterwards.
    fn packet(&mut self, slices: &[&[u8]], stamp: &Stamp) -> bool;

    /// Takes packets that [`put_packet`] has made.
    ///
    /// # Errors
    /// How many bytes at the end were not taken, because there is no room or the sink has failed:
    /// those of whole packets. Nothing may come afterwards.
    fn framed(&mut self, pieces: Pieces<'_>) -> Result<(), usize>;

    /// How many bytes came in, as far as thresholds are concerned.
    fn bytes(&self) -> usize;
}

/// Size of a packet in a file.
fn framed_bytes(body_bytes: usize) -> usize {
    1 + encoded_len_varint(body_bytes as u64) + body_bytes
}

/// The first of packets that [`put_packet`] has made: how long it is with its preamble, and its
/// body.
fn first_packet(packets: &[u8]) -> Option<(usize, &[u8])> {
    let (_tag, mut rest) = packets.split_first()?;
    let body_bytes = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
    let body = rest.get(..body_bytes)?;
    Some((packets.len() - rest.len() + body_bytes, body))
}

/// The bytes of the first packets that are together smaller than `room_bytes`.
fn fitting_bytes(packets: &[u8], room_bytes: u64) -> usize {
    let mut fitting = 0;
    while let Some((size_bytes, _)) = first_packet(&packets[fitting..])
        && ((fitting + size_bytes) as u64) < room_bytes
    {
        fitting += size_bytes;
    }
    fitting
}

/// Takes parts of a trace, in order. Each slice has whole packets, at least one, with everything
/// that makes a sequence of them a `Trace` message. An error ends the read, and its text says why.
pub type WriteTrace<'a> = dyn FnMut(&[IoSlice<'_>]) -> Result<(), String> + 'a;

/// Hands packets on as they lie in a trace file. Those that come out of buffers are not copied.
pub(crate) struct TraceSink<'a, 'o> {
    out: &'a mut WriteTrace<'o>,
    /// The service's own packets that were not handed on.
    own: Vec<u8>,
    bytes: usize,
    /// Exclusive: a file never reaches its limit.
    room_bytes: Option<u64>,
    failure: Option<String>,
}

impl<'a, 'o> TraceSink<'a, 'o> {
    pub(crate) fn new(out: &'a mut WriteTrace<'o>, room_bytes: Option<u64>) -> TraceSink<'a, 'o> {
        TraceSink { out, own: Vec::new(), bytes: 0, room_bytes, failure: None }
    }

    /// As `new`, after packets of the service that are to come first, for which there is room.
    pub(crate) fn after(own: Vec<u8>, out: &'a mut WriteTrace<'o>, room_bytes: Option<u64>) -> Self {
        TraceSink { out, bytes: own.len(), own, room_bytes, failure: None }
    }

    /// Hands on what is left. How many bytes there were in all.
    ///
    /// # Errors
    /// What `out` said.
    pub(crate) fn finish(mut self) -> Result<usize, String> {
        self.hand_on_own();
        self.failure.map_or(Ok(self.bytes), Err)
    }

    fn hand_on_own(&mut self) {
        let own = std::mem::take(&mut self.own);
        if !own.is_empty() {
            self.give(&[IoSlice::new(&own)]);
        }
    }

    /// False if `out` has failed, now or before. What it is given is gone, whatever becomes of it.
    fn give(&mut self, slices: &[IoSlice<'_>]) -> bool {
        if self.failure.is_none() {
            self.failure = (self.out)(slices).err();
        }
        self.failure.is_none()
    }

    /// Hands on those of the pieces' packets for which there is room. How many bytes they have.
    fn give_fitting(&mut self, pieces: Pieces<'_>, room_bytes: u64) -> usize {
        let mut given = 0;
        for piece in pieces.iter() {
            let fitting = fitting_bytes(piece, room_bytes - given as u64);
            given += fitting;
            let goes_on = fitting == 0 || self.give(&[IoSlice::new(&piece[..fitting])]);
            if !goes_on || fitting < piece.len() {
                break;
            }
        }
        given
    }

    /// Hands on all pieces, or those up to a failure. How many bytes they have.
    fn give_all(&mut self, pieces: Pieces<'_>) -> usize {
        let mut given = 0;
        let _ = pieces.write_slices(|slices| {
            given += slices.iter().map(|slice| slice.len()).sum::<usize>();
            if self.give(slices) { Ok(()) } else { Err(()) }
        });
        given
    }
}

impl Sink for TraceSink<'_, '_> {
    fn packet(&mut self, slices: &[&[u8]], stamp: &Stamp) -> bool {
        let body_bytes = slices.iter().map(|slice| slice.len()).sum::<usize>() + stamp.size_bytes();
        let size_bytes = framed_bytes(body_bytes);
        if self.room_bytes.is_some_and(|room| (self.bytes + size_bytes) as u64 >= room) {
            return false;
        }
        put_packet(&mut self.own, slices, stamp);
        self.bytes += size_bytes;
        true
    }

    fn framed(&mut self, pieces: Pieces<'_>) -> Result<(), usize> {
        self.hand_on_own();
        let size_bytes = pieces.size_bytes();
        let room_bytes = self.room_bytes.map_or(u64::MAX, |room| room.saturating_sub(self.bytes as u64));
        let given = match () {
            () if self.failure.is_some() => 0,
            () if (size_bytes as u64) < room_bytes => self.give_all(pieces),
            () => self.give_fitting(pieces, room_bytes),
        };
        self.bytes += given;
        if given == size_bytes && self.failure.is_none() { Ok(()) } else { Err(size_bytes - given) }
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What producers wrote and nobody has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// Whole packets.
    pub packets: u64,
    /// Their size in a file.
    pub bytes: u64,
}

impl Sink for Unread {
    fn packet(&mut self, _slices: &[&[u8]], _stamp: &Stamp) -> bool {
        true
    }

    fn framed(&mut self, pieces: Pieces<'_>) -> Result<(), usize> {
        for piece in pieces.iter() {
            let mut rest = piece;
            while let Some((size_bytes, _)) = first_packet(rest) {
                self.packets += 1;
                self.bytes += size_bytes as u64;
                rest = &rest[size_bytes..];
            }
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.bytes as usize
    }
}

/// Packets as they go to a consumer: without anything around them. Kept from read to read, its
/// memory is used again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketBatch {
    bytes: Vec<u8>,
    /// Where each packet ends.
    ends: Vec<usize>,
}

impl PacketBatch {
    /// An empty batch.
    pub fn new() -> PacketBatch {
        PacketBatch::default()
    }

    /// The packets in order, each a whole `TracePacket`.
    pub fn packets(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.bytes[begin..*end])
    }

    /// How many packets there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn framed_piece(&mut self, packets: &[u8]) {
        let mut rest = packets;
        while let Some((size_bytes, body)) = first_packet(rest) {
            self.bytes.extend_from_slice(body);
            self.ends.push(self.bytes.len());
            rest = &rest[size_bytes..];
        }
    }
}

impl Sink for PacketBatch {
    fn packet(&mut self, slices: &[&[u8]], stamp: &Stamp) -> bool {
        for slice in slices {
            self.bytes.extend_from_slice(slice);
        }
        self.bytes.extend_from_slice(stamp.as_bytes());
        self.ends.push(self.bytes.len());
        true
    }

    fn framed(&mut self, pieces: Pieces<'_>) -> Result<(), usize> {
        pieces.iter().for_each(|piece| self.framed_piece(piece));
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_those_of_a_trace_message() {
        for body_bytes in [0, 1, 127, 128, 129, 255, 16_383, 16_384, 2_097_151, 2_097_152] {
            let body = vec![7; body_bytes];
            let (mut expected, mut block) = (Vec::new(), Vec::new());
            prost::encoding::bytes::encode(1, &body, &mut expected);
            put_packet(&mut block, &[&body], &Stamp::EMPTY);
            assert!(block == expected, "{body_bytes}");
            assert_eq!(framed_bytes(body_bytes), expected.len());
        }
    }

    #[test]
    fn of_framed_packets_as_many_fit_as_are_below_the_limit() {
        let mut packets = Vec::new();
        for body in [&[1; 3][..], &[2; 200], &[], &[3; 20_000]] {
            put_packet(&mut packets, &[body], &Stamp::EMPTY);
        }
        let ends = [0, 5, 208, 210, 20_214];
        assert_eq!(packets.len(), ends[4]);
        for room in (0..300).chain(20_200..20_220) {
            let expected =
                ends.into_iter().rev().find(|end| *end < room.max(1)).expect("nothing always fits");
            assert_eq!(fitting_bytes(&packets, room as u64), expected, "room for {room}");
        }
        let mut batch = PacketBatch::new();
        batch.framed_piece(&packets);
        assert_eq!(batch.packets().map(<[u8]>::len).collect::<Vec<_>>(), [3, 200, 0, 20_000]);
    }

    #[test]
    fn a_file_never_reaches_its_limit() {
        let packet_bytes = framed_bytes(10);
        for (room, fits) in [(packet_bytes, false), (packet_bytes + 1, true)] {
            let mut written = Vec::new();
            let mut out = |slices: &[IoSlice<'_>]| {
                slices.iter().for_each(|slice| written.extend_from_slice(slice));
                Ok(())
            };
            let mut sink = TraceSink::new(&mut out, Some(room as u64));
            assert_eq!(sink.packet(&[&[1; 4], &[2; 6]], &Stamp::EMPTY), fits);
            assert!(!sink.packet(&[&[1; 4], &[2; 6]], &Stamp::EMPTY), "no room for another");
            let size_bytes = if fits { packet_bytes } else { 0 };
            assert_eq!((sink.bytes(), sink.finish()), (size_bytes, Ok(size_bytes)));
            assert_eq!(written.len(), size_bytes);
        }
    }
}
