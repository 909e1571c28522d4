//! What waits to be sent on one connection.

use std::collections::VecDeque;

use crate::framing::RECEIVE_SIZE_BYTES_MAX;

/// Frames in the order of sending. Some have an attachment (a file descriptor), which has to go
/// with the call that sends the frame's first byte.
///
/// ```text
///   bytes:   | sent | frame, frame, frame | frame with A, frame | frame with B | ...
///                   ^ front() gives up to | here, without one; then A with its bytes; ...
/// ```
///
/// Not limited by itself: whoever fills it looks at [`Self::size_bytes`].
#[derive(Debug)]
pub struct OutFrames<A> {
    bytes: Vec<u8>,
    sent: usize,
    /// Ascending places in `bytes`, none before `sent`.
    attachments: VecDeque<(usize, A)>,
}

impl<A> Default for OutFrames<A> {
    fn default() -> Self {
        OutFrames { bytes: Vec::new(), sent: 0, attachments: VecDeque::new() }
    }
}

impl<A> OutFrames<A> {
    /// Appends one frame with its prefix. An empty one is nothing, and its attachment is dropped.
    pub fn push(&mut self, frame: &[u8], attachment: Option<A>) {
        let written: Result<(), std::convert::Infallible> = self.push_with(attachment, |bytes| {
            bytes.extend_from_slice(frame);
            Ok(())
        });
        let Ok(()) = written;
    }

    /// Appends what `write` appends: one frame, or nothing if it fails.
    pub(super) fn push_with<E>(
        &mut self,
        attachment: Option<A>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let begin = self.bytes.len();
        if let Err(error) = write(&mut self.bytes) {
            self.bytes.truncate(begin);
            return Err(error);
        }
        if let Some(attachment) = attachment.filter(|_| self.bytes.len() > begin) {
            self.attachments.push_back((begin, attachment));
        }
        Ok(())
    }

    /// What one call should send: all bytes up to the next frame with an attachment. If the bytes
    /// begin with such a frame its attachment goes with them. `None` if all is sent.
    pub fn front(&self) -> Option<(&[u8], Option<&A>)> {
        let attachment = self.attachments.front().filter(|(at, _)| *at == self.sent);
        let end =
            self.attachments.get(usize::from(attachment.is_some())).map_or(self.bytes.len(), |(at, _)| *at);
        let bytes = &self.bytes[self.sent..end];
        (!bytes.is_empty()).then_some((bytes, attachment.map(|(_, attachment)| attachment)))
    }

    /// Takes note that the first `size_bytes` of what [`Self::front`] gave are sent; more than it
    /// gave counts as all of that. An attachment that went with them is dropped.
    pub fn consume(&mut self, size_bytes: usize) {
        let front_bytes = self.front().map_or(0, |(bytes, _)| bytes.len());
        self.sent += size_bytes.min(front_bytes);
        while self.attachments.front().is_some_and(|(at, _)| *at < self.sent) {
            self.attachments.pop_front();
        }
        // At least as much is dropped as is moved.
        if self.sent >= self.bytes.len() - self.sent {
            self.bytes.drain(..self.sent);
            self.attachments.iter_mut().for_each(|(at, _)| *at -= self.sent);
            self.sent = 0;
        }
        if self.bytes.is_empty() {
            // What a slow peer made it grow to is given back.
            self.bytes.shrink_to(RECEIVE_SIZE_BYTES_MAX);
        }
    }

    /// How much is not sent yet.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether all is sent.
    pub fn is_empty(&self) -> bool {
        self.size_bytes() == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_without_attachments_are_sent_together() {
        let mut out = OutFrames::default();
        assert!(out.is_empty());
        out.push(b"one", None);
        out.push(b"two", None);
        out.push(b"three", Some('a'));
        out.push(b"four", None);
        out.push(b"five", Some('b'));
        out.push(b"", Some('c'));
        assert_eq!(out.size_bytes(), 19);
        assert_eq!(out.front(), Some((&b"onetwo"[..], None)));
        out.consume(2);
        assert_eq!(out.front(), Some((&b"etwo"[..], None)));
        out.consume(100);
        assert_eq!(out.front(), Some((&b"threefour"[..], Some(&'a'))));
        out.consume(0);
        assert_eq!(out.front(), Some((&b"threefour"[..], Some(&'a'))), "nothing of it is sent");
        out.consume(1);
        assert_eq!(out.front(), Some((&b"hreefour"[..], None)), "it goes with the first byte");
        out.consume(8);
        assert_eq!(out.front(), Some((&b"five"[..], Some(&'b'))));
        out.consume(4);
        assert_eq!(out.front(), None);
        assert!(out.is_empty());
    }

    #[test]
    fn a_frame_that_fails_leaves_nothing() {
        let mut out = OutFrames::default();
        out.push(b"one", None);
        let failed = out.push_with(Some('a'), |bytes| {
            bytes.push(0);
            Err(())
        });
        assert_eq!(failed, Err(()));
        assert_eq!(out.front(), Some((&b"one"[..], None)));
    }

    #[test]
    fn memory_of_a_slow_peer_is_given_back() {
        let mut out = OutFrames::<()>::default();
        out.push(&vec![0; 8 * RECEIVE_SIZE_BYTES_MAX], None);
        out.consume(usize::MAX);
        assert!(out.bytes.capacity() <= RECEIVE_SIZE_BYTES_MAX, "{}", out.bytes.capacity());
    }

    proptest! {
        /// However much is taken at a time, bytes keep their order, and each attachment is there
        /// exactly with the first byte of its frame.
        #[test]
        fn attachments_stay_at_their_frames(
            frames in proptest::collection::vec((1_usize..20, any::<bool>()), 1..40),
            takes in proptest::collection::vec(1_usize..30, 1..10),
        ) {
            let mut out = OutFrames::default();
            let (mut expected, mut expected_attachments) = (Vec::new(), Vec::new());
            let (mut bytes, mut attachments) = (Vec::new(), Vec::new());
            let mut takes = takes.iter().cycle();
            let mut step = |out: &mut OutFrames<usize>| {
                let Some((front, attachment)) = out.front() else { return false };
                attachments.extend(attachment.map(|id| (bytes.len(), *id)));
                let take = (*takes.next().unwrap()).min(front.len());
                bytes.extend_from_slice(&front[..take]);
                out.consume(take);
                true
            };
            for (id, (size, attached)) in frames.into_iter().enumerate() {
                if attached {
                    expected_attachments.push((expected.len(), id));
                }
                let frame = vec![id as u8; size];
                expected.extend_from_slice(&frame);
                out.push(&frame, attached.then_some(id));
                if id % 3 == 0 {
                    step(&mut out);
                }
            }
            while step(&mut out) {}
            prop_assert!(out.is_empty());
            prop_assert_eq!(bytes, expected);
            prop_assert_eq!(attachments, expected_attachments);
        }
    }
}
