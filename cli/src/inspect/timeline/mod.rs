//! `watershed inspect --timeline`: a picture of who did what when, as SVG.
//!
//! ```text
//!   track events ──Reader──> names, tracks ──Order──> by time ──Tracks──┐
//!   bundles of one CPU ──Bundles──> switches ──────────────────Cpus─────┴─> Canvas ──svg──> text
//! ```
//!
//! The trace is read twice: what to draw is decided by pixels, so the window has to be known first.
//! Then memory and the picture are bounded by the picture's size, and not by the trace's length:
//! what is narrower than a pixel is merged with its neighbours, and rows, shapes and depth have a
//! limit each, which the picture names where it cuts.

mod axis;
mod canvas;
mod cpus;
mod events;
mod layout;
mod names;
mod svg;
mod tracks;

#[cfg(test)]
mod tests;

use watershed_wire::DecodeError;
use watershed_wire::packet::Envelope;
use watershed_wire::protos::{ProcessTree, TrackDescriptor};

use self::canvas::Shapes;
pub(super) use self::canvas::Window;
use self::cpus::Cpus;
use self::events::Reader;
use self::names::Texts;
pub(super) use self::svg::Picture;
use self::tracks::Tracks;
use super::top::Order;

/// Slices and instants of a picture; about 200 bytes each.
const SHAPES_MAX: usize = 20_000;
/// Changes of counters, of which each row has one for a pixel.
const STEPS_MAX: usize = 100_000;
/// Of the slices and instants of a picture as text, whose names may be long.
const SIZE_BYTES_MAX: usize = 8 << 20;
/// Tracks that are told apart, sequences, CPUs, and names.
const TRACKS_MAX: usize = 1 << 16;
/// Slices within each other that are drawn.
const DEPTH_MAX: usize = 16;
/// Longer names are cut.
const NAME_SIZE_BYTES_MAX: usize = 200;

/// What a window of one session shows.
#[derive(Debug)]
pub(super) struct Timeline {
    window: Window,
    texts: Texts,
    reader: Reader,
    order: Order<events::Event>,
    tracks: Tracks,
    cpus: Cpus,
    shapes: Shapes,
}

impl Timeline {
    pub(super) fn new(window: Window) -> Self {
        Timeline {
            window,
            texts: Texts::default(),
            reader: Reader::default(),
            order: Order::default(),
            tracks: Tracks::default(),
            cpus: Cpus::default(),
            shapes: Shapes::default(),
        }
    }

    /// Takes what a packet says of its sequence: before its contents.
    pub(super) fn take_packet(&mut self, packet: &[u8], envelope: &Envelope<'_>) {
        self.reader.take_state(packet, envelope, &mut self.texts);
        self.cpus.take_loss(envelope);
    }

    /// Takes an encoded `TrackEvent`.
    pub(super) fn take_event(&mut self, envelope: &Envelope<'_>, event: &[u8], at_ns: Option<u64>) {
        let Timeline { window, texts, reader, order, tracks, shapes, .. } = self;
        if envelope.machine_id.is_none()
            && let Some(event) = reader.event(envelope, event, at_ns, texts)
        {
            order.push(event, &mut |event| tracks.take(event, window, shapes));
        }
    }

    /// Takes a `TrackDescriptor`.
    pub(super) fn take_track(&mut self, envelope: &Envelope<'_>, track: &TrackDescriptor) {
        if envelope.machine_id.is_none() {
            self.tracks.describe(track, &mut self.texts);
        }
    }

    /// Takes a `ProcessTree`.
    pub(super) fn take_tree(&mut self, envelope: &Envelope<'_>, tree: &ProcessTree) {
        if envelope.machine_id.is_none() {
            self.tracks.take_tree(tree, &mut self.texts);
        }
    }

    /// Takes an `FtraceEventBundle`.
    ///
    /// # Errors
    /// If it is none.
    pub(super) fn take_bundle(&mut self, envelope: &Envelope<'_>, bundle: &[u8]) -> Result<(), DecodeError> {
        self.cpus.take(envelope, bundle, &self.window, &mut self.texts, &mut self.shapes)
    }

    /// The picture of at most so many rows; `None` if nothing is in the window.
    pub(super) fn finish(mut self, title: &str, rows_max: usize) -> Option<Picture> {
        let Timeline { window, order, tracks, shapes, .. } = &mut self;
        order.finish(&mut |event| tracks.take(event, window, shapes));
        self.tracks.finish(&self.window, &mut self.shapes);
        self.cpus.finish(&self.window, &mut self.shapes);
        let groups = layout::groups(&self.cpus, &self.tracks, &self.texts);
        let cut = svg::Cut {
            shapes: self.shapes.left_out,
            events: self.reader.unreadable,
            late: self.order.late(),
            foreign_clock: self.cpus.has_own_clock(),
        };
        svg::draw(title, &self.window, groups, rows_max, &cut, &self.texts)
    }
}
