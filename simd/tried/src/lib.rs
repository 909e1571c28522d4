//! Ways to walk and to scan that lost against the kernels of `watershed-simd`, kept so that anybody can measure by how much, on processors
//! that we do not have too: `watershed-perf run tried` prints each against the plain loop and against the kernel that was kept.
//!
//! They give the answers of the naive twins on every input, as the kernels do (tests), and nothing but that suite uses them. `docs/simd.md`
//! has the figures and says why each lost.
#![warn(missing_docs)]

mod fields;
mod lockstep;
mod one;
#[cfg(target_arch = "x86_64")]
mod wide_lanes;
#[cfg(target_arch = "x86_64")]
mod windows;
mod word;

use watershed_simd::fields::{Rules, Scan, Violation};
use watershed_simd::walk::{Span, Stop, Walk, naive};

/// Something that was tried.
#[derive(Clone, Copy, Debug)]
pub struct Tried<F> {
    /// A word or two, as the names of results have it.
    pub name: &'static str,
    /// The function, which this processor can run.
    pub run: F,
}

/// The contract of [`watershed_simd::walk()`].
pub type WalkOne = fn(&[u8], usize, &mut [Span]) -> Walk;

/// Walks each piece, as [`watershed_simd::walk_many`] does.
pub type WalkMany = fn(&mut [Piece<'_>]);

/// The contract of [`watershed_simd::fields::scan()`].
pub type ScanFields = fn(&[&[u8]], &Rules) -> Result<Scan, Violation>;

/// One chunk of a [`WalkMany`], and its answer.
#[derive(Debug)]
pub struct Piece<'a> {
    bytes: &'a [u8],
    limit: usize,
    spans: &'a mut [Span],
    /// What was found.
    pub found: Walk,
}

impl<'a> Piece<'a> {
    /// A chunk yet to be walked.
    pub fn new(bytes: &'a [u8], limit: usize, spans: &'a mut [Span]) -> Piece<'a> {
        let bytes = &bytes[..bytes.len().min(watershed_simd::walk::MAX_BYTES)];
        let limit = limit.min(spans.len());
        Piece { bytes, limit, spans, found: Walk { fragments: 0, visible_bytes: 0, stop: Stop::Limit } }
    }

    /// The spans of the fragments that were found.
    pub fn spans(&self) -> &[Span] {
        &self.spans[..self.found.fragments]
    }

    /// Walks naively from where the first `fragments`, of `visible_bytes` together, end.
    fn finish(&mut self, fragments: usize, visible_bytes: usize) {
        self.found = finish(self.bytes, self.limit, self.spans, fragments, visible_bytes);
    }
}

/// The walks over one chunk.
pub fn walks() -> Vec<Tried<WalkOne>> {
    #[cfg(target_arch = "x86_64")]
    if word::Pext::is_here() {
        return one::all::<word::Pext>();
    }
    one::all::<word::Shifts>()
}

/// The walks over many chunks.
pub fn many_walks() -> Vec<Tried<WalkMany>> {
    let mut all = vec![
        Tried { name: "lockstep_of_4", run: lockstep::walk::<4> as WalkMany },
        Tried { name: "lockstep_of_8", run: lockstep::walk::<8> },
    ];
    #[cfg(target_arch = "x86_64")]
    if wide_lanes::are_here() {
        all.push(Tried { name: "wide_lanes", run: wide_lanes::walk });
    }
    all
}

/// The scans of fields.
pub fn scans() -> Vec<Tried<ScanFields>> {
    let mut all = Vec::<Tried<ScanFields>>::new();
    #[cfg(target_arch = "x86_64")]
    if word::Pext::is_here() {
        all.push(Tried { name: "no_branches", run: fields::scan::<word::Pext> });
    }
    if all.is_empty() {
        all.push(Tried { name: "no_branches", run: fields::scan::<word::Shifts> });
    }
    #[cfg(target_arch = "x86_64")]
    if windows::are_here() {
        all.push(Tried { name: "windows", run: windows::scan });
    }
    all
}

/// Walks naively from where the first `fragments`, of `visible_bytes` together, end.
fn finish(bytes: &[u8], limit: usize, spans: &mut [Span], fragments: usize, visible_bytes: usize) -> Walk {
    let rest = naive::walk(&bytes[visible_bytes..], limit - fragments, &mut spans[fragments..]);
    Walk {
        fragments: fragments + rest.fragments,
        visible_bytes: visible_bytes + rest.visible_bytes,
        stop: rest.stop,
    }
}
