//! Times and sizes of events, in turns with the rival's and with the clock's.

use super::events::{Kind, race};
use super::recording::Program;
use super::rival::{Fastrace, Lttng, Rival};
use super::tally::{Outcome, Tally};
use crate::measure::{Contestant, LapResult, Options, Series, WrongAnswer, interleave, interleave_all};
use crate::report::Measurement;
use std::cell::RefCell;

/// Most of a lap's time is not timed: a new ring, and reading the trace.
const LONGER: u32 = 3;

/// Sizes differ by the times between events only, so few laps tell them.
const ROUNDS: usize = 7;

/// What a span may cost above a slice, in spans through a layer that does nothing.
const EMPTY_LAYERS_MAX: f64 = 1.2;

fn longer(options: &Options) -> Options {
    Options { time_limit: options.time_limit * LONGER, ..*options }
}

/// Reading the system's clock alone.
pub(super) fn clock(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let [laps] = interleave(options, [Box::new(|| without_session(Kind::Clock, 1, options))])?;
    Ok(Measurement::ns_per("read", name, &laps))
}

/// Events of one thread, in turns with reads of the clock.
pub(super) fn one_thread(name: &str, kind: Kind, options: &Options) -> Result<Measurement, WrongAnswer> {
    let (mut program, mut ours) = (Program::start()?, Tally::default());
    let (mut rival, mut theirs) = (Rival::start()?, Tally::default());
    let mut fastrace = if kind == Kind::Slice { Fastrace::start()? } else { None };
    let mut lttng = Lttng::start()?;
    let mut contestants: Vec<Contestant<'_>> = vec![
        Box::new(|| Ok(ours.add(program.lap(kind, 1, options)?))),
        Box::new(|| without_session(Kind::Clock, 1, options)),
    ];
    let rival_at = rival.as_mut().map(|rival| {
        contestants.push(Box::new(|| Ok(theirs.add(rival.lap(kind, 1, options)?))));
        contestants.len() - 1
    });
    let fastrace_at = fastrace.as_mut().map(|fastrace| {
        contestants.push(Box::new(|| fastrace.lap(options)));
        contestants.len() - 1
    });
    let lttng_at = lttng.as_mut().map(|lttng| {
        contestants.push(Box::new(|| lttng.lap(kind, 1, options)));
        contestants.len() - 1
    });
    let laps = interleave_all(&longer(options), contestants)?;
    let mut result = Measurement::ns_per("event", name, &laps[0]).with("ns_clock", laps[1].median());
    result = beside(result, "lttng_ust", &laps[0], lttng_at.map(|at| &laps[at]));
    if kind == Kind::Slice {
        result = beside(result, "fastrace", &laps[0], fastrace_at.map(|at| &laps[at]));
    }
    Ok(beside_rival(result, &laps[0], &ours, rival_at.map(|at| &laps[at]), &theirs))
}

/// Spans of `tracing` through the layer, in turns with slices, with layers that do nothing or
/// little, and with the layer of a rival.
pub(super) fn layer(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let program = RefCell::new(Program::start()?);
    let lap = |kind| program.borrow_mut().lap(kind, 1, options);
    let (mut ours, mut theirs) = (Tally::default(), Tally::default());
    let mut rival = Rival::start_tracing()?;
    let mut contestants: Vec<Contestant<'_>> = vec![
        Box::new(|| Ok(ours.add(lap(Kind::Span)?))),
        Box::new(|| Ok(lap(Kind::Slice)?.lap)),
        Box::new(|| without_session(Kind::EmptySpan, 1, options)),
        Box::new(|| Ok(lap(Kind::BareSpan)?.lap)),
    ];
    if let Some(rival) = &mut rival {
        contestants.push(Box::new(|| Ok(theirs.add(rival.lap(Kind::Span, 1, options)?))));
    }
    let laps = interleave_all(&longer(options), contestants)?;
    let limit = laps[1].by_round(&laps[2], |slice, empty| slice + EMPTY_LAYERS_MAX * empty);
    let of_limit = laps[0].by_round(&limit, |span, limit| span / limit);
    let result = Measurement::ns_per("event", name, &laps[0])
        .with("ns_slice", laps[1].median())
        .with("ns_empty_layer", laps[2].median())
        .with("ns_bare_layer", laps[3].median())
        .with("of_limit", of_limit.median())
        .with("of_limit_noise", of_limit.noise())
        .with("percent_dropped", ours.percent_dropped());
    Ok(beside(result, "tracing_perfetto", &laps[0], laps.get(4)))
}

/// Instant events of two threads, against two loops that read the clock.
pub(super) fn two_threads(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    // One program, of which one thread writes in some laps and two in others.
    let program = RefCell::new(Program::start()?);
    let lap = |threads| program.borrow_mut().lap(Kind::Instant, threads, options);
    let ready_lap = |threads| program.borrow_mut().lap_in_ready_ring(threads, options);
    let mut ours = Tally::default();
    let (mut rival, mut theirs) = (Rival::start()?, Tally::default());
    let mut lttng = Lttng::start()?;
    let mut contestants: Vec<Contestant<'_>> = vec![
        Box::new(|| Ok(lap(1)?.lap)),
        Box::new(|| Ok(ours.add(lap(2)?))),
        Box::new(|| without_session(Kind::Clock, 1, options)),
        Box::new(|| without_session(Kind::Clock, 2, options)),
        Box::new(|| Ok(ready_lap(1)?.lap)),
        Box::new(|| Ok(ready_lap(2)?.lap)),
    ];
    let rival_at = rival.as_mut().map(|rival| {
        contestants.push(Box::new(|| Ok(theirs.add(rival.lap(Kind::Instant, 2, options)?))));
        contestants.len() - 1
    });
    let lttng_at = lttng.as_mut().map(|lttng| {
        contestants.push(Box::new(|| lttng.lap(Kind::Instant, 2, options)));
        contestants.len() - 1
    });
    let laps = interleave_all(&longer(options), contestants)?;
    let scaling_of = |first: usize| laps[first].by_round(&laps[first + 1], |one, two| one / two);
    let (two, clock_two) = (&laps[1], &laps[3]);
    let (scaling, clock_scaling, ready_scaling) = (scaling_of(0), scaling_of(2), scaling_of(4));
    let of_clock = scaling.by_round(&clock_scaling, |ours, clocks| ours / clocks);
    let ready_of_clock = ready_scaling.by_round(&clock_scaling, |ours, clocks| ours / clocks);
    let result = Measurement::ns_per("event", name, two)
        .with("scaling", scaling.median())
        .with("clock_scaling", clock_scaling.median())
        .with("of_clock", of_clock.median())
        .with("of_clock_noise", of_clock.noise())
        .with("of_clock_ready_ring", ready_of_clock.median())
        .with("ns_clock", clock_two.median());
    let result = beside(result, "lttng_ust", two, lttng_at.map(|at| &laps[at]));
    Ok(beside_rival(result, two, &ours, rival_at.map(|at| &laps[at]), &theirs))
}

/// Events that no session wants, less an empty loop.
pub(super) fn disabled(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let mut program = Program::start()?;
    let mut rival = Rival::start()?.map(RefCell::new);
    let mut lttng = Lttng::start()?.map(RefCell::new);
    let mut contestants: Vec<Contestant<'_>> = vec![
        Box::new(|| Ok(program.lap(Kind::Disabled, 1, options)?.lap)),
        Box::new(|| without_session(Kind::Empty, 1, options)),
    ];
    let rival_at = rival.as_mut().map(|rival| {
        for kind in [Kind::Disabled, Kind::Empty] {
            let rival = &*rival;
            contestants.push(Box::new(move || Ok(rival.borrow_mut().lap(kind, 1, options)?.lap)));
        }
        contestants.len() - 2
    });
    let lttng_at = lttng.as_mut().map(|lttng| {
        for kind in [Kind::Disabled, Kind::Empty] {
            let lttng = &*lttng;
            contestants.push(Box::new(move || lttng.borrow_mut().lap(kind, 1, options)));
        }
        contestants.len() - 2
    });
    let laps = interleave_all(&longer(options), contestants)?;
    let above = |events: &Series, empty: &Series| events.by_round(empty, |events, empty| events - empty);
    let ours = above(&laps[0], &laps[1]);
    let mut result = Measurement::ns_per("event", name, &ours).with("ns_empty", laps[1].median());
    if !result.noise.is_finite() {
        // The value is zero.
        result.noise = 1.0;
    }
    // No ratio: both may be nearly zero.
    for (name, at) in [("ns_perfetto_sdk", rival_at), ("ns_lttng_ust", lttng_at)] {
        result = match at {
            Some(at) => result.with(name, above(&laps[at], &laps[at + 1]).median()),
            None => result.without(name),
        };
    }
    Ok(result)
}

fn without_session(kind: Kind, threads: u64, options: &Options) -> LapResult {
    Ok(race(kind, threads, kind.counts(threads, options)).lap)
}

/// Adds what was lost, and the rival's figures, where there are some.
fn beside_rival(
    result: Measurement,
    laps: &Series,
    ours: &Tally,
    rival_laps: Option<&Series>,
    theirs: &Tally,
) -> Measurement {
    let mut result =
        result.with("percent_dropped", ours.percent_dropped()).with("whole_laps", ours.whole_laps() as f64);
    for (name, ns) in [("ns_cpu", ours.cpu_ns()), ("ns_whole", ours.whole_ns())] {
        if let Some(ns) = ns {
            result = result.with(name, ns);
        }
    }
    match rival_laps {
        Some(rival) => result
            .with("ratio_to_perfetto_sdk", laps.speedup_over(rival))
            .with("ns_perfetto_sdk", rival.median())
            .with("percent_dropped_perfetto_sdk", theirs.percent_dropped()),
        None => result.without("ratio_to_perfetto_sdk"),
    }
}

/// Adds the figures of a rival that has no service, where there are some.
fn beside(result: Measurement, rival: &str, laps: &Series, rival_laps: Option<&Series>) -> Measurement {
    let ratio = format!("ratio_to_{rival}");
    match rival_laps {
        Some(rival_laps) => result
            .with(&ratio, laps.speedup_over(rival_laps))
            .with(&format!("ns_{rival}"), rival_laps.median()),
        None => result.without(&ratio),
    }
}

/// Bytes of packets for each instant event.
pub(super) fn bytes_per_event(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let (mut program, mut rival) = (Program::start()?, Rival::start()?);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds.min(ROUNDS) {
        ours.push(program.lap(Kind::Instant, 1, options)?);
        if let Some(rival) = &mut rival {
            theirs.push(rival.lap(Kind::Instant, 1, options)?);
        }
    }
    let ([bytes, all], theirs) = (series(&ours), (!theirs.is_empty()).then(|| series(&theirs)));
    let result = Measurement::ratio(name, &bytes).with("bytes_in_trace", all.median());
    let result = Measurement { unit: "bytes/event".into(), ..result };
    Ok(match theirs {
        Some([their_bytes, their_all]) => result
            .with("ratio_to_perfetto_sdk", bytes.speedup_over(&their_bytes))
            .with("bytes_perfetto_sdk", their_bytes.median())
            .with("bytes_in_trace_perfetto_sdk", their_all.median()),
        None => result.without("ratio_to_perfetto_sdk"),
    })
}

/// Bytes of an event's packet, and of the whole trace for each event.
fn series(laps: &[Outcome]) -> [Series; 2] {
    let each = |bytes: fn(&Outcome) -> u64| {
        let share = |lap: &Outcome| bytes(lap) as f64 / lap.contents.events.max(1) as f64;
        Series::new(laps.iter().map(share).collect())
    };
    [each(|lap| lap.contents.event_bytes), each(|lap| lap.contents.trace_bytes)]
}
