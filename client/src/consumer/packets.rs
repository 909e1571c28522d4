//! Slices of ReadBuffers replies, joined to whole packets.

use std::io;

use watershed_wire::protos::ReadBuffersResponse;

use super::error::ConsumerError;

/// A packet in more slices than make up this is refused: no service has one.
pub const PACKET_SIZE_BYTES_MAX: usize = 256 << 20;

/// The packet that is not complete yet: it may go on in the next reply.
#[derive(Debug, Default)]
pub(super) struct PacketJoiner {
    partial: Vec<u8>,
}

impl PacketJoiner {
    pub(super) fn take(
        &mut self,
        response: ReadBuffersResponse,
        on_packet: &mut impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), ConsumerError> {
        for slice in response.slices {
            let is_last = slice.last_slice_for_packet();
            let data = slice.data.unwrap_or_default();
            if is_last && self.partial.is_empty() {
                on_packet(&data).map_err(ConsumerError::Write)?;
                continue;
            }
            if self.partial.len() + data.len() > PACKET_SIZE_BYTES_MAX {
                let what = format!("a packet above {PACKET_SIZE_BYTES_MAX} bytes");
                return Err(ConsumerError::Protocol(what));
            }
            self.partial.extend_from_slice(&data);
            if is_last {
                on_packet(&self.partial).map_err(ConsumerError::Write)?;
                // One large packet must not keep its memory through all small ones.
                self.partial = Vec::new();
            }
        }
        Ok(())
    }

    /// Nothing follows.
    pub(super) fn end(self) -> Result<(), ConsumerError> {
        match self.partial.is_empty() {
            true => Ok(()),
            false => Err(ConsumerError::Protocol("the trace ends inside a packet".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use watershed_wire::protos::read_buffers_response::Slice;

    fn reply(slices: &[(&[u8], bool)]) -> ReadBuffersResponse {
        let slice = |(data, is_last): &(&[u8], bool)| Slice {
            data: Some(data.to_vec()),
            last_slice_for_packet: Some(*is_last),
        };
        ReadBuffersResponse { slices: slices.iter().map(slice).collect() }
    }

    #[test]
    fn packets_span_slices_and_replies() {
        let mut packets = Vec::new();
        let mut joiner = PacketJoiner::default();
        let mut keep = |packet: &[u8]| {
            packets.push(packet.to_vec());
            Ok(())
        };
        joiner.take(reply(&[(b"one", true), (b"t", false), (b"w", false)]), &mut keep).unwrap();
        joiner.take(reply(&[]), &mut keep).unwrap();
        joiner.take(reply(&[(b"o", true), (b"three", true), (b"", true)]), &mut keep).unwrap();
        joiner.end().unwrap();
        assert_eq!(packets, [&b"one"[..], b"two", b"three", b""]);
    }

    #[test]
    fn half_a_packet_at_the_end_is_an_error() {
        let mut joiner = PacketJoiner::default();
        joiner.take(reply(&[(b"half", false)]), &mut |_| Ok(())).unwrap();
        assert!(matches!(joiner.end(), Err(ConsumerError::Protocol(_))));
    }

    #[test]
    fn what_cannot_be_written_ends_the_read() {
        let mut fail = |_: &[u8]| Err(io::ErrorKind::StorageFull.into());
        let result = PacketJoiner::default().take(reply(&[(b"x", true)]), &mut fail);
        assert!(matches!(result, Err(ConsumerError::Write(_))));
    }

    #[test]
    fn a_packet_has_a_limit() {
        let block = vec![0; 64 << 20];
        let mut joiner = PacketJoiner::default();
        for _ in 0..4 {
            joiner.take(reply(&[(&block, false)]), &mut |_| Ok(())).unwrap();
        }
        let more = joiner.take(reply(&[(b"x", false)]), &mut |_| Ok(()));
        assert!(matches!(more, Err(ConsumerError::Protocol(_))));
    }
}
