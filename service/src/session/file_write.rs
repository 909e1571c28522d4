//! One step of writing a session's file, which any thread may do while the service goes on.
//!
//! ```text
//!   the service's thread                         any thread
//!   begin_write: what the service itself   --->  write_to: those bytes, then the
//!     has to say, where the buffers end            buffers' packets below the cuts
//!   handle_written                         <---  how far it got
//! ```

use std::fmt;

use crate::compress::{Codec, Packer};
use crate::ids::SessionId;
use crate::limits::WRITE_TRACE_BYTES;
use crate::read::{PassEnd, PassSource, StepEnd, TraceSink, WriteTrace};

/// What is to be written next into a session's file: about 32 MiB at most, whole packets. See
/// [`Service::begin_write`](crate::Service::begin_write).
pub struct FileWrite {
    pub(super) session_id: SessionId,
    /// Packets of the service itself, as they lie in the file.
    pub(super) own: Vec<u8>,
    /// What comes behind them; `None` if that is all.
    pub(super) source: Option<PassSource>,
    /// How it ends where there is no source.
    pub(super) end: StepEnd,
    /// What the file may still grow by, exclusive.
    pub(super) room_bytes: Option<u64>,
    /// How it is compressed.
    pub(super) codec: Option<Codec>,
}

/// What became of a [`FileWrite`], for [`Service::handle_written`](crate::Service::handle_written).
#[derive(Debug)]
pub struct FileWritten {
    pub(super) session_id: SessionId,
    pub(super) end: StepEnd,
    pub(super) num_invalid: u64,
    /// How many bytes were written, or why writing failed.
    pub(super) written: Result<u64, String>,
}

impl FileWritten {
    /// Whose file it is.
    pub fn session_id(&self) -> SessionId {
        self.session_id
    }

    /// Of a step that could not be done, with the reason: nothing of it is in the file.
    pub fn failed(session_id: SessionId, reason: String) -> FileWritten {
        FileWritten { session_id, end: StepEnd::Pass(PassEnd::NoRoom), num_invalid: 0, written: Err(reason) }
    }
}

impl FileWrite {
    /// Whose file it is.
    pub fn session_id(&self) -> SessionId {
        self.session_id
    }

    /// Writes to `out`, which gets at most about 1 MiB in one slice unless a packet is larger. An
    /// error of `out` ends the writing; a shell whose write fails half-way should cut the file
    /// behind the last whole packet. If the config asks for compression, it is done here.
    pub fn write_to(self, out: &mut WriteTrace<'_>) -> FileWritten {
        match self.codec {
            None => self.write_plain(out),
            Some(codec) => self.write_packed(codec, out),
        }
    }

    fn write_packed(mut self, codec: Codec, out: &mut WriteTrace<'_>) -> FileWritten {
        let (mut packer, has_source) = (Packer::new(codec), self.source.is_some());
        self.room_bytes = self.room_bytes.map(Packer::input_room_bytes);
        let mut written = self.write_plain(&mut |slices| packer.add(slices, &mut *out));
        written.written = written.written.and_then(|_| packer.finish(out)).map(|()| packer.packed_bytes);
        // There may be room after all: compressed it is smaller. What the service itself had no
        // room for is gone: then nothing may come behind it.
        if has_source && written.end == StepEnd::Pass(PassEnd::NoRoom) && packer.packed_bytes > 0 {
            written.end = StepEnd::Pass(PassEnd::Threshold);
        }
        written
    }

    fn write_plain(self, out: &mut WriteTrace<'_>) -> FileWritten {
        let FileWrite { session_id, own, source, mut end, room_bytes, codec: _ } = self;
        let mut sink = TraceSink::after(own, out, room_bytes);
        let mut num_invalid = 0;
        if let Some(source) = source {
            let passed = source.read(&mut sink, WRITE_TRACE_BYTES);
            (end, num_invalid) = (StepEnd::Pass(passed.end), passed.num_invalid);
        }
        let written = sink.finish().map(|bytes| bytes as u64);
        FileWritten { session_id, end, num_invalid, written }
    }
}

impl fmt::Debug for FileWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileWrite").field("session_id", &self.session_id).finish_non_exhaustive()
    }
}
