//! The two rings that are compared: the engine's, and plain memory that takes the same bytes at the
//! same places.

use super::feed::Commit;
use super::{SourceChunk, record_bytes};
use std::hint::black_box;
use watershed_engine::mem::Region;
use watershed_engine::{
    BufferConfig, ByteSource, ChunkFlags, ChunkId, ChunkInfo, ClientIdentity, FillPolicy, HugePages,
    ProducerId, TraceBuffer, WriterId,
};

/// An overwriting buffer whose memory is asked for as huge pages.
///
/// # Errors
/// When there is no memory.
pub fn buffer(size_bytes: usize) -> Result<TraceBuffer, String> {
    buffer_in(size_bytes, HugePages::Advise)
}

/// An overwriting buffer in pages of the given kind.
///
/// # Errors
/// When there is no memory.
pub fn buffer_in(size_bytes: usize, huge_pages: HugePages) -> Result<TraceBuffer, String> {
    let config = BufferConfig { size_bytes, policy: FillPolicy::RingBuffer, huge_pages };
    TraceBuffer::create(&config).map_err(|error| error.to_string())
}

/// The engine's description of a commit.
#[inline]
pub fn info(commit: &Commit<'_>) -> ChunkInfo {
    ChunkInfo {
        producer_id_trusted: ProducerId(commit.writer.into()),
        identity_trusted: ClientIdentity { uid: 1000, pid: 4242, machine_id: 0 },
        writer_id: WriterId(commit.writer),
        chunk_id: ChunkId(commit.chunk_id),
        num_fragments: commit.chunk.fragments,
        flags: ChunkFlags(commit.chunk.flags),
        complete: true,
    }
}

/// Bytes as in shared memory: the engine must assume that they change while it reads. Here they do
/// not.
#[derive(Clone, Copy)]
pub struct SharedBytes<'a>(pub &'a [u8]);

impl ByteSource for SharedBytes<'_> {
    #[inline]
    fn size_bytes(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        watershed_smb::copy_as_untrusted(&self.0[offset_bytes..][..dst.len()], dst);
    }

    #[inline]
    fn shared_bytes(&self) -> Option<watershed_engine::SharedBytes<'_>> {
        Some(self.0.into())
    }
}

/// Commits `count` chunks of the feed, as from shared memory.
#[inline]
pub fn commit<'a>(buffer: &mut TraceBuffer, feed: &mut impl Iterator<Item = Commit<'a>>, count: usize) {
    for commit in feed.take(count) {
        commit_bytes(buffer, &commit, &SharedBytes(&commit.chunk.bytes));
    }
}

/// The same from slices, which nobody else can change.
#[inline]
pub fn commit_slices<'a>(
    buffer: &mut TraceBuffer,
    feed: &mut impl Iterator<Item = Commit<'a>>,
    count: usize,
) {
    for commit in feed.take(count) {
        commit_bytes(buffer, &commit, &commit.chunk.bytes.as_slice());
    }
}

/// Commits one chunk with other bytes. Every lap checks the statistics afterwards.
#[inline]
pub fn commit_bytes(buffer: &mut TraceBuffer, commit: &Commit<'_>, bytes: &impl ByteSource) {
    let _ = black_box(buffer.copy_chunk_untrusted(&info(commit), bytes));
}

/// Two regions of touched huge pages, for a copy between them as the rival of a clone. As much
/// again was touched and unmapped, so that the host has memory for the first clone.
///
/// # Errors
/// When there is no memory.
pub fn touched_pair(size_bytes: usize) -> Result<(Region, Region), String> {
    let region = || -> Result<Region, String> {
        let mut region = Region::map(size_bytes, HugePages::Advise).map_err(|error| error.to_string())?;
        region.as_mut_slice().fill(1);
        Ok(region)
    };
    let (source, target) = (region()?, region()?);
    drop(region()?);
    Ok((source, target))
}

/// Plain memory that is filled like a ring: the rival.
pub struct CopyRing {
    region: Region,
    at: usize,
}

impl CopyRing {
    /// A ring of zeros, untouched.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new(size_bytes: usize, huge_pages: HugePages) -> Result<Self, String> {
        Ok(Self { region: Region::map(size_bytes, huge_pages).map_err(|error| error.to_string())?, at: 0 })
    }

    /// Copies a chunk to where a trace buffer would put its payload.
    #[inline]
    pub fn copy(&mut self, bytes: &[u8]) {
        let outer = record_bytes(bytes.len());
        if self.at + outer > self.region.as_slice().len() {
            self.at = 0;
        }
        self.region.as_mut_slice()[self.at + 16..][..bytes.len()].copy_from_slice(bytes);
        self.at += outer;
    }

    /// Copies the chunks of `count` commits.
    #[inline]
    pub fn copy_feed<'a>(&mut self, feed: &mut impl Iterator<Item = Commit<'a>>, count: usize) {
        for commit in feed.take(count) {
            self.copy(&commit.chunk.bytes);
        }
        // Nothing reads the copies, so the compiler might remove them.
        black_box(self.region.as_slice());
    }
}

/// Counts packets by reading a buffer out; each must have its bytes.
pub fn read_out(buffer: &mut TraceBuffer) -> u64 {
    buffer.begin_read();
    let mut packets = 0;
    while let Some(packet) = buffer.read_next() {
        packets += u64::from(packet.slices().iter().all(|slice| !slice.is_empty()));
    }
    packets
}

/// Checks the engine's statistics after `commits` chunks that filled it repeatedly: everything is
/// accounted for, nothing was refused.
///
/// # Errors
/// The first fact that is not so.
pub fn check_written(buffer: &TraceBuffer, commits: u64, bytes: u64) -> Result<(), String> {
    let (stats, ledger) = (buffer.stats(), buffer.ledger());
    let facts = [
        ("chunks_written", stats.chunks_written, commits),
        ("bytes_written", stats.bytes_written, bytes),
        ("abi_violations", stats.abi_violations, 0),
        ("chunks_discarded", stats.chunks_discarded, 0),
        (
            "written = overwritten + listed",
            ledger.written.chunks,
            ledger.overwritten.chunks + ledger.listed.chunks,
        ),
    ];
    match facts.iter().find(|(_, got, expected)| got != expected) {
        Some((name, got, expected)) => Err(format!("{name} is {got}, not {expected}")),
        None => Ok(()),
    }
}

/// Bytes that the records of the next `count` commits take.
pub fn fed_bytes<'a>(feed: impl Iterator<Item = Commit<'a>>, count: usize) -> u64 {
    feed.take(count).map(|commit| record_bytes(commit.chunk.bytes.len()) as u64).sum()
}

/// Mean payload bytes of a chunk.
pub fn mean_bytes(chunks: &[SourceChunk]) -> f64 {
    chunks.iter().map(|chunk| chunk.bytes.len()).sum::<usize>() as f64 / chunks.len() as f64
}
