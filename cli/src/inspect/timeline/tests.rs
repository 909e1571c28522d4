//! What is drawn where.

use watershed_wire::protos::{ProcessDescriptor, ThreadDescriptor, TrackDescriptor};

use super::canvas::{Lane, Row, Shapes, Slice, WIDTH, Window};
use super::events::{Event, What};
use super::names::{Text, Texts};
use super::svg::escaped;
use super::tracks::Tracks;
use super::*;

/// A pixel is 10 ns.
const WINDOW: Window = Window { begin_ns: 1_000, from_ns: 1_000, to_ns: 11_000 };

fn slice(begin_ns: u64, end_ns: u64, name: Text) -> Slice {
    Slice { begin_ns, end_ns, name, is_open: false }
}

/// Where the shapes of a lane are, and how many slices each is.
fn places(lane: &Lane) -> Vec<(f64, f64, u64)> {
    let tenths = |x: f64| (x * 10.0).round() / 10.0;
    lane.0.iter().map(|shape| (tenths(shape.x), tenths(shape.end_x), shape.count)).collect()
}

fn lane(slices: &[(u64, u64, Text)]) -> Lane {
    let (mut lane, mut shapes) = (Lane::default(), Shapes::default());
    for &(begin_ns, end_ns, name) in slices {
        lane.add(slice(begin_ns, end_ns, name), &WINDOW, &mut shapes);
    }
    lane
}

#[test]
fn a_window_cuts() {
    let name = Text::default();
    let all = [(0, 500, name), (500, 2_000, name), (5_000, 20_000, name), (12_000, 13_000, name)];
    assert_eq!(places(&lane(&all)), [(0.0, 100.0, 1), (400.0, WIDTH, 1)]);
}

#[test]
fn narrow_slices_are_merged_and_wide_ones_are_not() {
    let mut texts = Texts::default();
    let (a, b) = (texts.number("a"), texts.number("b"));
    // Two that touch, one far off; wide ones beside narrow ones stay.
    let apart =
        [(1_000, 1_004, a), (1_004, 1_006, b), (1_100, 1_102, b), (1_200, 1_300, a), (1_300, 1_301, a)];
    let lane_apart = lane(&apart);
    assert_eq!(places(&lane_apart), [(0.0, 0.6, 2), (10.0, 10.2, 1), (20.0, 30.0, 1), (30.0, 30.1, 1)]);
    assert_eq!(lane_apart.0[0].name, a, "it has most of the time");
    // However many there are: at most one for each pixel, and one for those of one name.
    let many = |name: &dyn Fn(u64) -> Text| {
        lane(&(1_000..11_000).map(|at| (at, at + 1, name(at))).collect::<Vec<_>>())
    };
    let of_two = many(&|at| if at / 20 % 2 == 0 { a } else { b });
    assert!((400..=600).contains(&of_two.0.len()), "{}", of_two.0.len());
    assert_eq!(of_two.0.iter().map(|shape| shape.count).sum::<u64>(), 10_000);
    assert!(many(&|_| a).0.len() <= 2);
}

#[test]
fn a_picture_has_a_limit() {
    let (mut row, mut shapes) = (Row::default(), Shapes::default());
    for number in 0..SHAPES_MAX as u64 + 7 {
        // Each in front of the one before, so that none can be merged.
        let at_ns = 11_000 - number % 10_000;
        row.add(number as usize % DEPTH_MAX, slice(at_ns, at_ns + 20, Text::default()), &WINDOW, &mut shapes);
    }
    let drawn: usize = row.lanes.iter().map(|lane| lane.0.len()).sum();
    assert!(drawn <= SHAPES_MAX && shapes.left_out > 0);
    row.add(DEPTH_MAX, slice(2_000, 3_000, Text::default()), &WINDOW, &mut shapes);
    assert_eq!(row.lanes.len(), DEPTH_MAX);
}

#[test]
fn slices_nest_and_what_has_no_end_goes_on() {
    let (mut tracks, mut texts, mut shapes) = (Tracks::default(), Texts::default(), Shapes::default());
    let (outer, inner) = (texts.number("outer"), texts.number("inner"));
    let mut take = |at_ns, what| tracks.take(Event { at_ns, track: 7, what }, &WINDOW, &mut shapes);
    take(1_100, What::End);
    take(2_000, What::Begin(outer));
    take(3_000, What::Begin(inner));
    take(4_000, What::Instant(inner));
    take(5_000, What::End);
    take(6_000, What::Begin(inner));
    // Deeper than is drawn, and out again.
    (0..40).for_each(|_| take(7_000, What::Begin(inner)));
    (0..40).for_each(|_| take(8_000, What::End));
    take(9_000, What::End);
    tracks.finish(&WINDOW, &mut shapes);
    let row = &tracks.of[&7].row;
    assert_eq!(places(&row.lanes[0]), [(100.0, WIDTH, 1)]);
    assert!(row.lanes[0].0[0].is_open);
    assert_eq!(places(&row.lanes[1]), [(200.0, 400.0, 1), (500.0, 800.0, 1)]);
    assert_eq!(row.lanes.len(), DEPTH_MAX);
    assert_eq!(places(&row.instants), [(300.0, 300.0, 1)]);
}

#[test]
fn a_counter_has_a_step_for_each_pixel() {
    let (mut row, mut shapes) = (Row::default(), Shapes::default());
    for (at_ns, value) in [(500, 3.0), (900, 4.0), (1_000, 5.0), (1_005, 1.0), (1_009, 2.0), (20_000, 9.0)] {
        row.step(at_ns, value, &WINDOW, &mut shapes);
    }
    let steps: Vec<_> = row.steps.iter().map(|step| (step.x, step.min, step.max, step.last)).collect();
    assert_eq!(steps, [(0.0, 1.0, 5.0, 2.0)]);
    (1_000..11_000).for_each(|at_ns| row.step(at_ns, at_ns as f64, &WINDOW, &mut shapes));
    assert_eq!(row.steps.len(), WIDTH as usize);
    let mut rows: Vec<Row> = (0..110).map(|_| Row::default()).collect();
    for row in &mut rows {
        (1_000..11_000).step_by(10).for_each(|at_ns| row.step(at_ns, 1.0, &WINDOW, &mut shapes));
    }
    assert_eq!(rows.iter().map(|row| row.steps.len()).sum::<usize>(), STEPS_MAX - WIDTH as usize);
    assert!(shapes.left_out > 0);
}

#[test]
fn rows_have_names_and_their_order() {
    let (mut tracks, mut texts, mut shapes) = (Tracks::default(), Texts::default(), Shapes::default());
    let process =
        ProcessDescriptor { pid: Some(9), process_name: Some("/bin/prog".to_owned()), ..Default::default() };
    let thread = |tid, name: &str| ThreadDescriptor {
        pid: Some(9),
        tid: Some(tid),
        thread_name: Some(name.to_owned()),
        ..Default::default()
    };
    let track = |uuid, parent_uuid| TrackDescriptor { uuid: Some(uuid), parent_uuid, ..Default::default() };
    let named = |uuid, parent, name: &str| TrackDescriptor {
        static_or_dynamic_name: Some(watershed_wire::protos::track_descriptor::StaticOrDynamicName::Name(
            name.to_owned(),
        )),
        ..track(uuid, parent)
    };
    for descriptor in [
        TrackDescriptor { process: Some(process), ..track(1, None) },
        TrackDescriptor { thread: Some(thread(10, "worker")), ..track(2, Some(1)) },
        TrackDescriptor { thread: Some(thread(9, "main")), ..track(3, Some(1)) },
        named(4, Some(1), "requests"),
        named(5, Some(4), "GET"),
        named(6, Some(6), "its own parent"),
    ] {
        tracks.describe(&descriptor, &mut texts);
    }
    let name = texts.number("x");
    for track in [2, 3, 4, 5, 6, 0xab] {
        tracks.take(Event { at_ns: 2_000, track, what: What::Instant(name) }, &WINDOW, &mut shapes);
    }
    let (cpus, mut shown) = (Cpus::default(), Vec::new());
    for group in layout::groups(&cpus, &tracks, &texts) {
        shown.push(group.heading);
        shown.extend(group.rows.into_iter().map(|row| row.name));
    }
    assert_eq!(
        shown,
        [
            "prog 9",
            "main 9",
            "worker 10",
            "requests",
            "requests: GET",
            "Tracks without a process",
            "its own parent: its own parent",
            "track ab"
        ]
    );
}

#[test]
fn long_names_do_not_make_it_larger_than_its_limit() {
    let (mut texts, mut shapes, mut row) = (Texts::default(), Shapes::default(), Row::default());
    let name = texts.number(&"&".repeat(NAME_SIZE_BYTES_MAX));
    for number in 0..SHAPES_MAX {
        row.add(number / 1_000 % DEPTH_MAX, slice(11_000, 11_000, name), &WINDOW, &mut shapes);
        let at_ns = 11_000 - 20 * (number as u64 % 500);
        row.add(number / 500 % DEPTH_MAX, slice(at_ns - 15, at_ns, name), &WINDOW, &mut shapes);
    }
    let rows = vec![layout::Named { name: "row".to_owned(), unit: "", row: &row }];
    let groups = vec![layout::Group { heading: "group".to_owned(), rows }];
    let cut = svg::Cut { shapes: 0, events: 0, late: 0, foreign_clock: false };
    let picture = svg::draw("t", &WINDOW, groups, 1, &cut, &texts).unwrap();
    assert!((SIZE_BYTES_MAX..SIZE_BYTES_MAX + 10_000).contains(&picture.svg.len()), "{}", picture.svg.len());
    assert!(
        picture.notes[0].contains("left out") && picture.svg.ends_with("</svg>\n"),
        "{:?}",
        picture.notes
    );
}

#[test]
fn text_is_no_markup() {
    assert_eq!(escaped("<b>&\"\u{1}\u{ffff}ä"), "&lt;b&gt;&amp;\"\u{fffd}\u{fffd}ä");
}

#[test]
fn marks_have_units() {
    for (time_ns, distance_ns) in
        [(0, 1), (10_000, 1_000), (10_001, 2_000), (48, 5), (u64::MAX, 2_000_000_000_000_000_000)]
    {
        assert_eq!(axis::distance_ns(time_ns), distance_ns, "{time_ns}");
        assert!(time_ns / axis::distance_ns(time_ns) <= 10);
    }
    for (at_ns, largest_ns, distance_ns, mark) in [
        (0, 118_000_000, 20_000_000, "0 ms"),
        (2_500_000, 7_000_000, 500_000, "2.5 ms"),
        (2_000_500_000, 2_004_000_000, 500_000, "2.0005 s"),
        (7, 40, 5, "7 ns"),
    ] {
        assert_eq!(axis::mark(at_ns, largest_ns, distance_ns), mark);
    }
    assert_eq!(
        [axis::time(7), axis::time(1_500), axis::time(2_000_000_000)],
        ["7 ns", "1.500 us", "2.000 s"]
    );
}
