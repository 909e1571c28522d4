//! Shapes in pixels: what is narrower than one is merged with its neighbours, so that a line has at
//! most one for each pixel, however long the trace is.

use super::names::Text;
use super::{DEPTH_MAX, SHAPES_MAX, STEPS_MAX};

/// How wide the window is drawn.
pub(super) const WIDTH: f64 = 1000.0;
/// Narrower shapes are merged with those that are nearer than that.
const NARROW: f64 = 1.0;
/// A merged shape takes no further slice when it is so wide; two of one name are one again.
const MERGED_WIDTH: f64 = 2.0;

/// The time that is drawn, and where the trace begins.
#[derive(Debug, Clone, Copy)]
pub(in crate::inspect) struct Window {
    pub(in crate::inspect) begin_ns: u64,
    pub(in crate::inspect) from_ns: u64,
    pub(in crate::inspect) to_ns: u64,
}

impl Window {
    pub(super) fn time_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns).max(1)
    }

    /// Where a moment is; at the edges what is beyond them.
    pub(super) fn x(&self, at_ns: u64) -> f64 {
        let at_ns = at_ns.clamp(self.from_ns, self.to_ns);
        (at_ns - self.from_ns) as f64 / self.time_ns() as f64 * WIDTH
    }

    pub(super) fn has(&self, begin_ns: u64, end_ns: u64) -> bool {
        begin_ns <= self.to_ns && end_ns >= self.from_ns
    }
}

/// How many shapes and steps there are of all rows.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    count: usize,
    steps: usize,
    /// Those beyond the limit.
    pub(super) left_out: u64,
}

impl Shapes {
    fn has_room(&mut self) -> bool {
        count(&mut self.count, SHAPES_MAX, &mut self.left_out)
    }

    fn has_room_for_step(&mut self) -> bool {
        count(&mut self.steps, STEPS_MAX, &mut self.left_out)
    }
}

/// Counts one more, if there is room.
fn count(count: &mut usize, max: usize, left_out: &mut u64) -> bool {
    let has_room = *count < max;
    *count += usize::from(has_room);
    *left_out += u64::from(!has_room);
    has_room
}

/// A slice, or several narrow ones beside each other.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shape {
    pub(super) x: f64,
    pub(super) end_x: f64,
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
    /// Of several the one that has the most time, if one has most of it.
    pub(super) name: Text,
    pub(super) count: u64,
    /// How much more time that name has than others: the vote of Boyer and Moore.
    lead_ns: u64,
    /// Its end is not in the trace.
    pub(super) is_open: bool,
}

/// Slices that do not overlap.
#[derive(Debug, Default)]
pub(super) struct Lane(pub(super) Vec<Shape>);

impl Lane {
    /// Adds a slice, or an instant, which has no length.
    pub(super) fn add(&mut self, slice: Slice, window: &Window, shapes: &mut Shapes) {
        let Slice { begin_ns, end_ns, name, is_open } = slice;
        if !window.has(begin_ns, end_ns) {
            return;
        }
        let (x, end_x) = (window.x(begin_ns), window.x(end_ns));
        let lead_ns = end_ns.min(window.to_ns).saturating_sub(begin_ns.max(window.from_ns));
        let new = Shape { x, end_x, begin_ns, end_ns, name, count: 1, lead_ns, is_open };
        if let Some(last) = self.0.last_mut()
            && new.is_narrow()
            && (last.is_narrow() || last.count > 1 && last.end_x - last.x < MERGED_WIDTH)
            && last.is_near(&new)
        {
            return last.merge(&new);
        }
        self.merge_last(shapes);
        if shapes.has_room() {
            self.0.push(new);
        }
    }

    /// Makes one of the last two if both are merged ones of the same name.
    fn merge_last(&mut self, shapes: &mut Shapes) {
        if let [.., before, last] = &mut self.0[..]
            && before.count > 1
            && last.count > 1
            && before.name == last.name
            && before.is_near(last)
        {
            before.merge(last);
            self.0.pop();
            shapes.count -= 1;
        }
    }
}

impl Shape {
    fn is_narrow(&self) -> bool {
        self.end_x - self.x < NARROW
    }

    fn is_near(&self, next: &Shape) -> bool {
        next.x >= self.x && next.x - self.end_x < NARROW
    }

    fn merge(&mut self, next: &Shape) {
        self.end_x = self.end_x.max(next.end_x);
        self.end_ns = self.end_ns.max(next.end_ns);
        self.count += next.count;
        if self.name == next.name {
            self.lead_ns = self.lead_ns.saturating_add(next.lead_ns);
        } else if next.lead_ns > self.lead_ns {
            (self.name, self.lead_ns) = (next.name, next.lead_ns - self.lead_ns);
        } else {
            self.lead_ns -= next.lead_ns;
        }
    }
}

/// Something with a name and two times.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slice {
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
    pub(super) name: Text,
    pub(super) is_open: bool,
}

/// What a counter was within a pixel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Step {
    pub(super) x: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) last: f64,
}

/// All of one row.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// By how deep slices are in others.
    pub(super) lanes: Vec<Lane>,
    pub(super) instants: Lane,
    pub(super) steps: Vec<Step>,
}

impl Row {
    pub(super) fn add(&mut self, depth: usize, slice: Slice, window: &Window, shapes: &mut Shapes) {
        if depth >= DEPTH_MAX || !window.has(slice.begin_ns, slice.end_ns) {
            return;
        }
        if depth >= self.lanes.len() {
            self.lanes.resize_with(depth + 1, Lane::default);
        }
        self.lanes[depth].add(slice, window, shapes);
    }

    /// A counter has this value from here on.
    pub(super) fn step(&mut self, at_ns: u64, value: f64, window: &Window, shapes: &mut Shapes) {
        if at_ns > window.to_ns {
            return;
        }
        // At the left edge the last before the window counts.
        let x = window.x(at_ns).floor();
        let is_before = at_ns < window.from_ns;
        match self.steps.last_mut() {
            Some(step) if is_before => *step = Step { x, min: value, max: value, last: value },
            Some(step) if x <= step.x => {
                (step.min, step.max, step.last) = (step.min.min(value), step.max.max(value), value);
            }
            _ if shapes.has_room_for_step() => {
                self.steps.push(Step { x, min: value, max: value, last: value });
            }
            _ => {}
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.0.is_empty()) && self.instants.0.is_empty() && self.steps.is_empty()
    }
}
