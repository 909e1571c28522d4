//! The picture as text. It needs no program but a browser: what something is stands in its title,
//! which a browser shows under the pointer.

use std::fmt::Write as _;

use indicatif::{HumanBytes, HumanCount};

use super::canvas::{Lane, Row, Shape, Step, WIDTH, Window};
use super::layout::{Group, Named};
use super::names::{Text, Texts};
use super::{SHAPES_MAX, SIZE_BYTES_MAX, STEPS_MAX, axis};
use crate::text::{counted, printable};

/// Places in pixels.
const NAMES_WIDTH: f64 = 180.0;
const MARGIN: f64 = 10.0;
const HEAD_HEIGHT: f64 = 44.0;
const HEADING_HEIGHT: f64 = 20.0;
const LANE_HEIGHT: f64 = 16.0;
const INSTANTS_HEIGHT: f64 = 9.0;
const COUNTER_HEIGHT: f64 = 30.0;
const GAP: f64 = 4.0;
const NOTE_HEIGHT: f64 = 15.0;
/// About how wide a letter of a slice is.
const LETTER_WIDTH: f64 = 5.9;
const LETTERS_OF_ROW: usize = 28;
/// More than an axis has.
const MARKS_MAX: usize = 16;
/// Narrower shapes are widened, so that they are seen.
const SEEN: f64 = 0.7;

const COLOURS: [&str; 20] = [
    "8dd3c7", "ffe08a", "c3bfe0", "fb9a8f", "8fbfe0", "fdb462", "b3de69", "f7b6d2", "a9d6a0", "d3a6d8",
    "d9c29c", "9edae5", "e6e07a", "b5c7ff", "ffc1a1", "7fcfa0", "e8a0b4", "c9d98f", "a7b8c9", "f2cf63",
];

/// What is not in the picture.
pub(super) struct Cut {
    pub(super) shapes: u64,
    pub(super) events: u64,
    pub(super) late: u64,
    pub(super) foreign_clock: bool,
}

impl Cut {
    fn notes(&self, rows: usize) -> Vec<String> {
        let mut notes = Vec::new();
        if rows > 0 {
            notes.push(format!("{} left out, --rows has more", counted(rows as u64, "row")));
        }
        if self.shapes > 0 {
            notes.push(format!(
                "{} left out, a picture has {} slices, {} steps of counters and {} at most; a shorter window \
                 has less",
                counted(self.shapes, "shape"),
                HumanCount(SHAPES_MAX as u64),
                HumanCount(STEPS_MAX as u64),
                HumanBytes(SIZE_BYTES_MAX as u64),
            ));
        }
        if self.events > 0 {
            let events = counted(self.events, "event");
            notes.push(format!("{events} left out, whose time or name is not in the trace"));
        }
        if self.late > 0 {
            notes.push(format!("{} drawn later than they were", counted(self.late, "event")));
        }
        if self.foreign_clock {
            notes.push("scheduling left out, its clock is another one than the trace's".to_owned());
        }
        notes
    }
}

/// A picture, and what is said of it.
pub(in crate::inspect) struct Picture {
    pub(in crate::inspect) svg: String,
    pub(in crate::inspect) rows: usize,
    pub(in crate::inspect) notes: Vec<String>,
}

/// `None` if there is no row.
pub(super) fn draw(
    title: &str,
    window: &Window,
    groups: Vec<Group<'_>>,
    rows_max: usize,
    cut: &Cut,
    texts: &Texts,
) -> Option<Picture> {
    let all: usize = groups.iter().map(|group| group.rows.len()).sum();
    if all == 0 {
        return None;
    }
    let mut pen = Pen { out: String::new(), y: HEAD_HEIGHT, window, texts, left_out: cut.shapes };
    let mut left = rows_max;
    for group in &groups {
        let rows = &group.rows[..group.rows.len().min(left)];
        left -= rows.len();
        if !rows.is_empty() {
            pen.group(&group.heading, rows);
        }
    }
    let (body, bottom) = (pen.out, pen.y + GAP);
    let notes = Cut { shapes: pen.left_out, ..*cut }.notes(all.saturating_sub(rows_max));
    let height = bottom + NOTE_HEIGHT * notes.len() as f64 + MARGIN;
    let mut svg = head(height);
    let _ = writeln!(svg, "<text class=\"b\" x=\"{MARGIN}\" y=\"16\">{}</text>", escaped(title));
    draw_axis(&mut svg, window, bottom);
    svg.push_str(&body);
    for (number, note) in notes.iter().enumerate() {
        let y = bottom + NOTE_HEIGHT * (number + 1) as f64 - 2.0;
        let _ = writeln!(svg, "<text class=\"n\" x=\"{MARGIN}\" y=\"{y:.0}\">{}</text>", escaped(note));
    }
    svg.push_str("</svg>\n");
    Some(Picture { svg, rows: all.min(rows_max), notes })
}

fn head(height: f64) -> String {
    let width = NAMES_WIDTH + WIDTH + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"Helvetica,Arial,sans-serif\" font-size=\"11\">\n\
         <style>text{{fill:#222}}.b{{font-weight:bold}}.n{{fill:#666;font-size:10px}}.e{{text-anchor:end}}\
         .g{{stroke:#e4e4e4}}.k{{fill:#9db7d5;stroke:#43658b}}.i{{fill:#b3261e}}"
    );
    for (number, colour) in COLOURS.iter().enumerate() {
        let _ = write!(svg, ".c{number}{{fill:#{colour}}}");
    }
    let _ = writeln!(svg, "</style>\n<rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"#fff\"/>");
    svg
}

/// Marks with their times since the trace's beginning.
fn draw_axis(svg: &mut String, window: &Window, bottom: f64) {
    let distance_ns = axis::distance_ns(window.time_ns());
    let (from_ns, to_ns) = (window.from_ns - window.begin_ns, window.to_ns - window.begin_ns);
    let first = from_ns.div_ceil(distance_ns);
    let marks = (first..).map(|number| number.saturating_mul(distance_ns));
    for at_ns in marks.take_while(|&at_ns| at_ns <= to_ns).take(MARKS_MAX) {
        let (x, top) = (left() + window.x(window.begin_ns + at_ns), HEAD_HEIGHT - 8.0);
        let _ = writeln!(svg, "<path class=\"g\" d=\"M{x:.1} {top}V{bottom:.0}\"/>");
        let label = axis::mark(at_ns, to_ns, distance_ns);
        if x + LETTER_WIDTH * label.len() as f64 <= left() + WIDTH + MARGIN {
            let _ =
                writeln!(svg, "<text class=\"n\" x=\"{:.1}\" y=\"{:.0}\">{label}</text>", x - 2.0, top - 4.0);
        }
    }
}

fn left() -> f64 {
    MARGIN + NAMES_WIDTH
}

/// Draws from top to bottom.
struct Pen<'a> {
    out: String,
    y: f64,
    window: &'a Window,
    texts: &'a Texts,
    /// Shapes for which there was no room.
    left_out: u64,
}

impl<'a> Pen<'a> {
    fn group(&mut self, heading: &str, rows: &[Named<'_>]) {
        self.y += HEADING_HEIGHT;
        let (x, y, right) = (MARGIN, self.y - 6.0, left() + WIDTH);
        let _ = writeln!(
            self.out,
            "<text class=\"b\" x=\"{x}\" y=\"{y:.0}\">{}</text><path class=\"g\" d=\"M{x} {:.0}H{right}\"/>",
            escaped(heading),
            y + 4.0
        );
        self.y += GAP;
        rows.iter().for_each(|row| self.row(row));
    }

    fn row(&mut self, named: &Named<'_>) {
        let Named { name, unit, row } = named;
        let top = self.y;
        if !row.instants.0.is_empty() {
            self.instants(&row.instants);
            self.y += INSTANTS_HEIGHT;
        }
        for lane in &row.lanes {
            lane.0.iter().for_each(|shape| self.slice(shape));
            self.y += LANE_HEIGHT;
        }
        if !row.steps.is_empty() {
            self.counter(row, unit);
            self.y += COUNTER_HEIGHT;
        }
        let at = self.y.max(top + LANE_HEIGHT);
        let y = if row.lanes.is_empty() {
            (top + at) / 2.0 + 4.0
        } else {
            at - LANE_HEIGHT * row.lanes.len() as f64 + 12.0
        };
        let _ = writeln!(
            self.out,
            "<text x=\"{}\" y=\"{y:.0}\"><title>{}</title>{}</text>",
            MARGIN + 8.0,
            escaped(name),
            escaped(&cut(name, LETTERS_OF_ROW))
        );
        self.y = at + GAP;
    }

    fn has_room(&mut self) -> bool {
        let has_room = self.out.len() < SIZE_BYTES_MAX;
        self.left_out += u64::from(!has_room);
        has_room
    }

    fn slice(&mut self, shape: &Shape) {
        if !self.has_room() {
            return;
        }
        let (x, width) = (left() + shape.x, shape.end_x - shape.x);
        let name = self.name(shape.name);
        let shown = if width > 3.0 { width - 0.6 } else { width.max(SEEN) };
        let (y, height) = (self.y, LANE_HEIGHT - 1.0);
        let class = colour(name);
        let title = self.title(shape, "slice");
        let _ = write!(
            self.out,
            "<g><title>{title}</title><rect class=\"c{class}\" x=\"{x:.1}\" y=\"{y:.0}\" width=\"{shown:.1}\" height=\"{height:.0}\"/>"
        );
        let letters = ((width - 6.0) / LETTER_WIDTH) as usize;
        if letters >= 3 && shape.count == 1 {
            let text = escaped(&cut(name, letters));
            let _ = write!(self.out, "<text x=\"{:.1}\" y=\"{:.0}\">{text}</text>", x + 3.0, y + 11.5);
        }
        self.out.push_str("</g>\n");
    }

    fn instants(&mut self, lane: &Lane) {
        for shape in &lane.0 {
            if !self.has_room() {
                continue;
            }
            let (x, y, title) = (left() + shape.x, self.y + 1.0, self.title(shape, "event"));
            let _ = writeln!(
                self.out,
                "<path class=\"i\" d=\"M{x:.1} {y:.0}l3 6h-6z\"><title>{title}</title></path>"
            );
        }
    }

    /// Steps between the lowest value and the highest, 0 if that is lower or higher.
    fn counter(&mut self, row: &Row, unit: &str) {
        let steps = &row.steps;
        let low = steps.iter().map(|step| step.min).fold(0.0, f64::min);
        let high = steps.iter().map(|step| step.max).fold(0.0, f64::max);
        let (bottom, height) = (self.y + COUNTER_HEIGHT, COUNTER_HEIGHT - 4.0);
        let range = (high - low).max(f64::MIN_POSITIVE);
        let y = |value: f64| bottom - (value - low) / range * height;
        let base = y(0.0);
        let first = left() + steps.first().map_or(0.0, |step| step.x);
        let mut path = format!("M{first:.0} {base:.1}");
        for Step { x, min, max, last } in steps {
            let _ = write!(path, "H{:.0}", left() + x);
            if min != max {
                let _ = write!(path, "V{:.1}V{:.1}", y(*max), y(*min));
            }
            let _ = write!(path, "V{:.1}", y(*last));
        }
        let _ = write!(path, "H{:.0}V{base:.1}Z", left() + WIDTH);
        let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
        let title = escaped(&format!("from {low}{unit} to {high}{unit}"));
        let _ = writeln!(self.out, "<path class=\"k\" d=\"{path}\"><title>{title}</title></path>");
        let _ = writeln!(
            self.out,
            "<text class=\"n e\" x=\"{:.0}\" y=\"{:.0}\">{}</text>",
            left() - 4.0,
            bottom - height + 8.0,
            escaped(&cut(&format!("{high}{unit}"), 12))
        );
    }

    /// What a browser shows.
    fn title(&self, shape: &Shape, what: &str) -> String {
        let name = escaped(self.name(shape.name));
        let at = axis::time(shape.begin_ns.saturating_sub(self.window.begin_ns));
        let time = axis::time(shape.end_ns.saturating_sub(shape.begin_ns));
        match shape.count {
            1 if shape.is_open => format!("{name}\nfrom {at}, its end is not in the trace"),
            1 if shape.begin_ns == shape.end_ns => format!("{name}\nat {at}"),
            1 => format!("{name}\n{time} from {at}"),
            count => format!("{}, most: {name}\nwithin {time} from {at}", counted(count, what)),
        }
    }

    fn name(&self, text: Text) -> &'a str {
        if text.is_empty() { "(no name)" } else { self.texts.get(text) }
    }
}

/// The same for the same name: FNV-1a.
fn colour(name: &str) -> usize {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    ((hash ^ hash >> 29) % COLOURS.len() as u64) as usize
}

fn cut(text: &str, letters: usize) -> String {
    match text.char_indices().nth(letters) {
        None => text.to_owned(),
        Some(_) => text.chars().take(letters - 1).chain(['…']).collect(),
    }
}

/// Text of a trace is text, whatever is in it: no markup, and no characters that XML does not have.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in printable(text).chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push(char::REPLACEMENT_CHARACTER),
            char => escaped.push(char),
        }
    }
    escaped
}
