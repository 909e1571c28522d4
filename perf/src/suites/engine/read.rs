//! Reading back: begin, then every packet.

use crate::measure::{LapResult, Options, WrongAnswer, interleave, timed};
use crate::report::Measurement;
use crate::workload::blocks::Blocks;
use crate::workload::rings::{buffer, commit};
use crate::workload::{SourceChunk, feed, fragmented as fragmented_chunks, protobuf, templates};
use watershed_engine::TraceBuffer;

/// The ring, and the commits that it takes without losing anything.
fn sizes(options: &Options) -> (usize, usize) {
    options.size((128 << 20, 32_767), (1 << 20, 255))
}

/// Whole packets, slices only: no payload is touched.
pub(super) fn plain(options: &Options) -> Result<Measurement, WrongAnswer> {
    let chunks = templates::mixed(100);
    // The published number of packets in that many commits.
    let expected = options.size(Some(323_718), None);
    slices_only("read_plain", options, &chunks, expected)
}

/// Every third packet is in 2 to 5 slices.
pub(super) fn fragmented(options: &Options) -> Result<Measurement, WrongAnswer> {
    slices_only("read_fragmented", options, &fragmented_chunks::stream(100), None)
}

fn slices_only(
    name: &str,
    options: &Options,
    chunks: &[SourceChunk],
    published_packets: Option<u64>,
) -> Result<Measurement, WrongAnswer> {
    let filling = Filling::new(options, chunks);
    if let Some(published) = published_packets.filter(|published| *published != filling.packets) {
        return Err(format!("the ring is filled with {} packets, not {published}", filling.packets));
    }
    let mut ring = Ring::new(options, chunks)?;
    let lap = || -> LapResult {
        ring.fill(&filling)?;
        let (mut lap, (packets, slices, bytes)) = timed(filling.packets, || {
            let (mut packets, mut slices, mut bytes) = (0_u64, 0_u64, 0_u64);
            ring.buffer.begin_read();
            while let Some(packet) = ring.buffer.read_next() {
                packets += 1;
                for slice in packet.slices() {
                    slices += 1;
                    bytes += slice.len() as u64;
                }
            }
            (packets, slices, bytes)
        });
        filling.check(packets, slices, bytes)?;
        lap.units = packets;
        Ok(lap)
    };
    let [series] = interleave(options, [Box::new(lap)])?;
    Ok(Measurement::ns_per("packet", name, &series))
}

/// What a ring is filled with, and what must come out.
struct Filling {
    commits: usize,
    packets: u64,
    slices: u64,
    /// Bodies, without their size headers.
    body_bytes: u64,
}

impl Filling {
    fn new(options: &Options, chunks: &[SourceChunk]) -> Self {
        let (_, most) = sizes(options);
        // Whole rounds of a stream whose packets span chunks, so that the last packet is complete.
        let spans = chunks.iter().any(|chunk| chunk.flags != 0);
        let commits = if spans { most / chunks.len() * chunks.len() } else { most };
        let mut filling = Self { commits, packets: 0, slices: 0, body_bytes: 0 };
        for chunk in chunks.iter().cycle().take(commits) {
            filling.packets += u64::from(chunk.packets);
            filling.slices += u64::from(chunk.fragments);
            filling.body_bytes += (chunk.bytes.len() - header_bytes(chunk)) as u64;
        }
        filling
    }

    fn check(&self, packets: u64, slices: u64, bytes: u64) -> Result<(), WrongAnswer> {
        let (got, expected) = ((packets, slices, bytes), (self.packets, self.slices, self.body_bytes));
        if got == expected {
            Ok(())
        } else {
            Err(format!("(packets, slices, bytes) are {got:?}, not {expected:?}"))
        }
    }
}

/// Bytes of the chunk's size headers.
fn header_bytes(chunk: &SourceChunk) -> usize {
    let (mut at, mut headers) = (0, 0);
    while at < chunk.bytes.len() {
        let (mut header, mut body) = (0, 0);
        loop {
            let byte = chunk.bytes[at + header];
            body |= usize::from(byte & 0x7f) << (7 * header);
            header += 1;
            if byte & 0x80 == 0 {
                break;
            }
        }
        headers += header;
        at += header + body;
    }
    headers
}

/// A ring that is filled anew for each lap: reading empties it.
struct Ring<'a> {
    buffer: TraceBuffer,
    chunks: &'a [SourceChunk],
    next_chunk_id: u32,
}

impl<'a> Ring<'a> {
    fn new(options: &Options, chunks: &'a [SourceChunk]) -> Result<Self, WrongAnswer> {
        Ok(Self { buffer: buffer(sizes(options).0)?, chunks, next_chunk_id: 0 })
    }

    /// Commits the chunks from the first on; ids continue from lap to lap.
    fn fill(&mut self, filling: &Filling) -> Result<(), WrongAnswer> {
        let before = self.buffer.stats().chunks_overwritten;
        let first = self.next_chunk_id;
        let mut feed = feed::one_writer(self.chunks)
            .map(|commit| feed::Commit { chunk_id: first.wrapping_add(commit.chunk_id), ..commit });
        commit(&mut self.buffer, &mut feed, filling.commits);
        self.next_chunk_id = first.wrapping_add(filling.commits as u32);
        match self.buffer.stats().chunks_overwritten - before {
            0 => Ok(()),
            lost => Err(format!("{lost} chunks were overwritten while the ring was filled")),
        }
    }
}

/// What a service does with each packet: validate, stamp, frame.
pub(super) fn to_blocks(options: &Options) -> Result<Measurement, WrongAnswer> {
    let chunks = protobuf::track_events(100);
    let filling = Filling::new(options, &chunks);
    let mut ring = Ring::new(options, &chunks)?;
    let mut blocks = Blocks::default();
    let lap = || -> LapResult {
        ring.fill(&filling)?;
        blocks.clear();
        let (lap, (packets, invalid)) = timed(filling.packets, || blocks.fill_from(&mut ring.buffer));
        let (got, expected) =
            ((packets, invalid, blocks.count_frames()?), (filling.packets, 0, filling.packets));
        if got != expected {
            return Err(format!("(packets, invalid, framed) are {got:?}, not {expected:?}"));
        }
        Ok(lap)
    };
    let [series] = interleave(options, [Box::new(lap)])?;
    Ok(Measurement::ns_per("packet", "read_to_blocks", &series))
}
