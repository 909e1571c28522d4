//! Frames on a socket.

use prost::Message as _;

use crate::protos::IpcFrame;

/// What a receiver takes at most, size prefix included: 128 KiB (spec, service 1.2).
pub const RECEIVE_SIZE_BYTES_MAX: usize = 128 << 10;

/// Largest encoded [`IpcFrame`].
pub const FRAME_SIZE_BYTES_MAX: usize = RECEIVE_SIZE_BYTES_MAX - PREFIX_SIZE_BYTES;

const PREFIX_SIZE_BYTES: usize = 4;

/// What an empty buffer that is appended to may keep.
const KEPT_SIZE_BYTES_MAX: usize = 4 << 10;

/// A frame above [`FRAME_SIZE_BYTES_MAX`]. Sent: the caller must split it. Received: the connection
/// has to be closed, as nothing after it can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {size_bytes} bytes, the limit is {FRAME_SIZE_BYTES_MAX}")]
pub struct FrameTooLong {
    /// Size of the frame without its prefix.
    pub size_bytes: usize,
}

/// Appends a frame with its prefix.
///
/// # Errors
/// [`FrameTooLong`]; nothing was appended then.
pub fn encode_frame(frame: &IpcFrame, out: &mut Vec<u8>) -> Result<(), FrameTooLong> {
    let size_bytes = frame.encoded_len();
    if size_bytes > FRAME_SIZE_BYTES_MAX {
        return Err(FrameTooLong { size_bytes });
    }
    out.extend_from_slice(&(size_bytes as u32).to_le_bytes());
    out.reserve(size_bytes);
    frame.encode(out).expect("a vector takes as many bytes as there are");
    Ok(())
}

/// Splits the bytes of a socket into frames.
///
/// ```text
///   buffer:  | popped | received, not yet popped | spare: lent to the socket |
///            0     begin                        end      RECEIVE_SIZE_BYTES_MAX
/// ```
///
/// Invariant: `begin <= end <= buffer.len() <= 2 * RECEIVE_SIZE_BYTES_MAX`. Once a prefix announces
/// too much the buffer is poisoned: every later [`Self::pop_frame`] gives the same error.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    frames_malformed: u64,
}

impl FrameBuffer {
    /// Lends the memory that the socket reads into, at least one byte as long as all frames were
    /// popped.
    ///
    /// A peer that has sent nothing yet costs no memory.
    pub fn spare(&mut self) -> &mut [u8] {
        self.buffer.copy_within(self.begin..self.end, 0);
        self.end -= self.begin;
        self.begin = 0;
        self.buffer.resize(RECEIVE_SIZE_BYTES_MAX, 0);
        &mut self.buffer[self.end..]
    }

    /// Takes note that the socket wrote `size_bytes` at the beginning of what [`Self::spare`] lent;
    /// more than was lent counts as all.
    pub fn received(&mut self, size_bytes: usize) {
        self.end = self.end.saturating_add(size_bytes).min(self.buffer.len());
    }

    /// Takes what was received elsewhere. Keeps no more memory than it needs between two calls: for
    /// servers with many connections, which read all of them into one place.
    ///
    /// All whole frames must have been popped before: then what is kept is below
    /// [`RECEIVE_SIZE_BYTES_MAX`].
    pub fn append(&mut self, bytes: &[u8]) {
        self.buffer.drain(self.end..);
        self.buffer.drain(..self.begin);
        if self.buffer.is_empty() && self.buffer.capacity() > KEPT_SIZE_BYTES_MAX {
            self.buffer = Vec::new();
        }
        self.buffer.extend_from_slice(bytes);
        (self.begin, self.end) = (0, self.buffer.len());
    }

    /// The next whole frame, `None` until more is received.
    ///
    /// Frames of size 0 and frames that are no [`IpcFrame`] are passed over (spec, service 1.2);
    /// the latter are counted.
    ///
    /// # Errors
    /// [`FrameTooLong`] when a prefix announces more than may be sent.
    pub fn pop_frame(&mut self) -> Result<Option<IpcFrame>, FrameTooLong> {
        while let Some((prefix, rest)) =
            self.buffer[self.begin..self.end].split_first_chunk::<PREFIX_SIZE_BYTES>()
        {
            let size_bytes = u32::from_le_bytes(*prefix) as usize;
            if size_bytes > FRAME_SIZE_BYTES_MAX {
                return Err(FrameTooLong { size_bytes });
            }
            let Some(payload) = rest.get(..size_bytes) else {
                return Ok(None);
            };
            self.begin += PREFIX_SIZE_BYTES + size_bytes;
            if payload.is_empty() {
                continue;
            }
            match IpcFrame::decode(payload) {
                Ok(frame) => return Ok(Some(frame)),
                Err(_) => self.frames_malformed += 1,
            }
        }
        Ok(None)
    }

    /// How many frames were passed over because they are not [`IpcFrame`]s.
    pub fn frames_malformed(&self) -> u64 {
        self.frames_malformed
    }
}
