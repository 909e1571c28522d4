//! Reading a session back: the service's own packets and the producers', in one pass, validated and
//! stamped.
//!
//! ```text
//!   one pass               threshold: 256 KiB for a consumer, 1 MiB of a trace, 32 MiB to a writer
//!   +---------------------+    +-----------------------------------------+--------------------+
//!   | what the service    |    | producers' packets, buffer by buffer    | if all was read:   |
//!   | has to say          | -> | shards -> fields ok? -> slices + stamp  | read completed,    |
//!   | (crate::emit)       |    |                         + loss          | stats              |
//!   +---------------------+    +-----------------------------------------+--------------------+
//! ```
//!
//! Every pass begins each buffer's walk anew. That is sound, because what was read is gone. A
//! packet that fails validation is dropped and counted, and the loss that was reported with it goes
//! to the next good packet of its sequence. Packets are validated, stamped and framed when they are
//! extracted from a shard, by several threads if the shell has a pool. What comes out of the merge
//! of the shards is bytes as they lie in a file, which go to the writer without another copy. What
//! a pass does not take stays for the next.

mod framer;
mod pass;
mod sequences;
mod sink;
mod source;
mod step;

use std::sync::LazyLock;

use watershed_simd::fields::Rules;

use framer::Framer;
pub(crate) use pass::PassEnd;
pub(crate) use sequences::SharedSequences;
pub use sink::{PacketBatch, Unread, WriteTrace};
pub(crate) use sink::{Sink, TraceSink};
pub(crate) use source::{PassSource, SharedPool};
pub use step::{ReadBegun, ReadDone, ReadStep};
pub(crate) use step::{ReadState, StepEnd};
pub(crate) use watershed_shards::framing::Stamp;

/// Top-level fields of `TracePacket` that only the service may write: what a producer sends with
/// one of them in it is dropped.
pub const RESERVED_FIELDS: [u32; 12] = [3, 10, 33, 35, 36, 50, 69, 79, 98, 124, 125, 133];

/// What a producer's packet must keep to. Nested messages are not looked into.
static RULES: LazyLock<Rules> = LazyLock::new(|| Rules::new().reserve(RESERVED_FIELDS));
