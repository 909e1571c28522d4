//! How messages follow each other: packets in a trace file, frames on a socket.
//!
//! ```text
//!   trace file   =  ( 0x0A  varint n  packet: n bytes )*     a Trace, only field `packet = 1`
//!   socket       =  ( u32 n, little endian  IPCFrame: n bytes )*
//! ```

mod ipc;
mod trace;

pub use self::ipc::{FRAME_SIZE_BYTES_MAX, FrameBuffer, FrameTooLong, RECEIVE_SIZE_BYTES_MAX, encode_frame};
pub use self::trace::{PACKET_KEY, Preamble, append_packet};
