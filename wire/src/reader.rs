//! Reads a trace file as a stream: packets come out one by one, memory stays bounded, damage
//! has an offset.
//!
//! ```text
//!                        ┌ window: | read | not yet read ... | spare: lent to the file |
//!   file ──received()──> │
//!                        └──> packet ──> plain ─────────────────────────────────> poll_packet()
//!                                   └──> compressed_packets ──inflate, in pieces──────┘
//! ```
//!
//! Nothing is read from anywhere in here: the caller lends bytes with [`TraceReader::spare`] and
//! [`TraceReader::received`], takes packets with [`TraceReader::poll_packet`], and says with
//! [`TraceReader::end`] that there are no more bytes. For a trace that lies in memory there is
//! [`packets`].
//!
//! Memory: the largest packet of the file (at most [`Limits::packet_size_bytes_max`], and only as
//! much as really arrived), and for a compressed one as much again for its compressed form. A bomb
//! costs time in proportion to its output, not memory.

mod damage;
mod inflate;
mod window;

pub use self::damage::{Damage, DamageKind};
use self::inflate::Inflater;
use self::window::Window;
use crate::raw::{FIELD_SIZE_BYTES_MAX, Field, Fields, Value};

/// Field `TracePacket.compressed_packets`, a zlib stream.
const COMPRESSED_PACKETS: u32 = 50;
/// Field `TracePacket.zstd_compressed_packets`, a zstd frame.
const ZSTD_COMPRESSED_PACKETS: u32 = 133;

/// What a reader accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest packet, compressed or not. Above it the trace counts as damaged.
    pub packet_size_bytes_max: u64,
}

impl Default for Limits {
    /// The largest packet that the format allows, 256 MiB.
    fn default() -> Self {
        Limits { packet_size_bytes_max: FIELD_SIZE_BYTES_MAX }
    }
}

/// A packet, as it lies in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawPacket<'a> {
    /// Place in the file of the packet's preamble; for one that was compressed, of the packet that
    /// it came in.
    pub offset_bytes: u64,
    /// For a packet that was compressed: offset of its preamble in what was decompressed.
    pub offset_inflated_bytes: Option<u64>,
    /// An encoded `TracePacket`, not yet looked at.
    pub bytes: &'a [u8],
}

/// Turns the bytes of a trace file into packets.
#[derive(Debug, Default)]
pub struct TraceReader {
    limits: Limits,
    file: Window,
    inflating: Option<Inflating>,
    /// Set once; nothing comes after it.
    damage: Option<Damage>,
    packets_compressed: u64,
}

/// A packet of packets that is being unpacked.
#[derive(Debug)]
struct Inflating {
    /// Place in the file of the packet that holds it.
    offset_bytes: u64,
    inflater: Inflater,
    window: Window,
}

/// Where a packet lies that [`TraceReader::poll_packet`] found: a range instead of a slice, as the
/// borrow would outlive the search.
struct Found {
    inflated: bool,
    range: std::ops::Range<usize>,
    offset_bytes: u64,
    offset_inflated_bytes: Option<u64>,
}

impl TraceReader {
    /// A reader at the beginning of a file.
    pub fn new(limits: Limits) -> Self {
        TraceReader { limits, ..Self::default() }
    }

    /// Lends memory for the file's next bytes, at least 64 KiB; to be called when
    /// [`Self::poll_packet`] has no packet any more.
    pub fn spare(&mut self) -> &mut [u8] {
        self.file.spare()
    }

    /// Takes note that `size_bytes` were written at the beginning of what [`Self::spare`] lent;
    /// more than was lent counts as all.
    pub fn received(&mut self, size_bytes: usize) {
        self.file.received(size_bytes);
    }

    /// Copies bytes in, for callers that have them already.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let spare = self.spare();
            let size_bytes = bytes.len().min(spare.len());
            spare[..size_bytes].copy_from_slice(&bytes[..size_bytes]);
            self.received(size_bytes);
            bytes = &bytes[size_bytes..];
        }
    }

    /// The next packet; `None` when more bytes are needed or the file has ended.
    ///
    /// # Errors
    /// [`Damage`] with its offset. It is final: what lies behind cannot be found, and every later
    /// call gives the same answer.
    pub fn poll_packet(&mut self) -> Result<Option<RawPacket<'_>>, Damage> {
        if let Some(damage) = &self.damage {
            return Err(damage.clone());
        }
        match self.find() {
            Ok(Some(found)) => Ok(Some(self.packet(found))),
            Ok(None) => Ok(None),
            Err(damage) => {
                self.damage = Some(damage.clone());
                Err(damage)
            }
        }
    }

    /// The file has no more bytes: fine between two packets, damage inside of one.
    ///
    /// To be called when [`Self::poll_packet`] has no packet any more.
    ///
    /// # Errors
    /// [`Damage`]: the one that was met before, or that the file is cut short.
    pub fn end(&mut self) -> Result<(), Damage> {
        if self.damage.is_none() {
            self.damage = self.file.cut_short().map(|kind| Damage {
                offset_bytes: self.file.offset_bytes(),
                offset_inflated_bytes: None,
                kind,
            });
        }
        self.damage.clone().map_or(Ok(()), Err)
    }

    /// How many bytes of the file were taken as packets; where the next packet begins.
    pub fn offset_bytes(&self) -> u64 {
        self.file.offset_bytes()
    }

    /// How many packets were found to hold compressed packets; they themselves are not given out.
    pub fn packets_compressed(&self) -> u64 {
        self.packets_compressed
    }

    fn packet(&self, found: Found) -> RawPacket<'_> {
        let window = match &self.inflating {
            Some(inflating) if found.inflated => &inflating.window,
            _ => &self.file,
        };
        RawPacket {
            offset_bytes: found.offset_bytes,
            offset_inflated_bytes: found.offset_inflated_bytes,
            bytes: window.bytes(found.range),
        }
    }

    fn find(&mut self) -> Result<Option<Found>, Damage> {
        loop {
            if let Some(inflating) = &mut self.inflating {
                if let Some(found) = inflating.find(self.limits)? {
                    return Ok(Some(found));
                }
                self.inflating = None;
            }
            let offset_bytes = self.file.offset_bytes();
            let popped = self.file.pop(self.limits).map_err(|kind| Damage {
                offset_bytes,
                offset_inflated_bytes: None,
                kind,
            })?;
            let Some(range) = popped else {
                return Ok(None);
            };
            let Some(compressed) = compressed(self.file.bytes(range.clone())) else {
                return Ok(Some(Found { inflated: false, range, offset_bytes, offset_inflated_bytes: None }));
            };
            self.packets_compressed += 1;
            let inflater = Inflater::new(compressed).map_err(|kind| Damage {
                offset_bytes,
                offset_inflated_bytes: None,
                kind,
            })?;
            self.inflating = Some(Inflating { offset_bytes, inflater, window: Window::default() });
        }
    }
}

impl Inflating {
    fn find(&mut self, limits: Limits) -> Result<Option<Found>, Damage> {
        let offset_bytes = self.offset_bytes;
        self.pop(limits)
            .map(|popped| {
                popped.map(|(range, offset_inflated_bytes)| Found {
                    inflated: true,
                    range,
                    offset_bytes,
                    offset_inflated_bytes: Some(offset_inflated_bytes),
                })
            })
            .map_err(|kind| Damage {
                offset_bytes,
                offset_inflated_bytes: Some(self.window.offset_bytes()),
                kind,
            })
    }

    fn pop(&mut self, limits: Limits) -> Result<Option<(std::ops::Range<usize>, u64)>, DamageKind> {
        loop {
            let offset_bytes = self.window.offset_bytes();
            if let Some(range) = self.window.pop(limits)? {
                if compressed(self.window.bytes(range.clone())).is_some() {
                    return Err(DamageKind::NestedCompression);
                }
                return Ok(Some((range, offset_bytes)));
            }
            let size_bytes = self.inflater.inflate(self.window.spare())?;
            if size_bytes == 0 {
                return self.window.cut_short().map_or(Ok(None), Err);
            }
            self.window.received(size_bytes);
        }
    }
}

/// The compressed packets that a packet holds, if it is one that does. Such a packet has no other
/// field (spec, service 6.9), but one that had would still be unpacked, so all are looked at.
fn compressed(packet: &[u8]) -> Option<Field<'_>> {
    // Nearly every packet has a small first field that is none of these two; only a wrapper begins
    // with a key of two bytes.
    Fields::new(packet).map_while(Result::ok).find(|field| {
        matches!(field.number, COMPRESSED_PACKETS | ZSTD_COMPRESSED_PACKETS)
            && matches!(field.value, Value::LengthDelimited(_))
    })
}

/// The packets of a trace that lies in memory; after damage, which is the last item, nothing more
/// comes.
pub fn packets(trace: &[u8]) -> Packets<'_> {
    Packets { rest: trace, reader: TraceReader::new(Limits::default()), ended: false }
}

/// See [`packets`].
#[derive(Debug)]
pub struct Packets<'a> {
    rest: &'a [u8],
    reader: TraceReader,
    ended: bool,
}

impl Iterator for Packets<'_> {
    /// The packet's bytes.
    type Item = Result<Vec<u8>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.reader.poll_packet() {
                Ok(Some(packet)) => return Some(Ok(packet.bytes.to_vec())),
                Ok(None) if self.rest.is_empty() => {
                    self.ended = true;
                    return self.reader.end().err().map(Err);
                }
                Ok(None) => {
                    let (piece, rest) = self.rest.split_at(self.rest.len().min(64 << 10));
                    self.reader.feed(piece);
                    self.rest = rest;
                }
                Err(damage) => {
                    self.ended = true;
                    return Some(Err(damage));
                }
            }
        }
        None
    }
}
