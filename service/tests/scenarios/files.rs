//! Sessions that write into a file: when, how much, in which order, and how they end.

use std::io::IoSlice;

use watershed_service::{
    ConsumerEvent, ConsumerId, FileAction, ProducerId, ReadProgress, SessionId, SessionState, Warning,
};
use watershed_wire::protos::TraceConfig;
use watershed_wire::protos::trace_config::{FFlushMode, WriteFlushMode};

use crate::support::World;
use crate::support::config::{buffer, into_file, one_source};
use crate::support::producer::packet;
use crate::support::trace::Trace;

fn recording(world: &mut World, config: &TraceConfig) -> (ConsumerId, SessionId, ProducerId, u32) {
    let producer = world.connect("p");
    world.register(producer, "src");
    let (consumer, session) = world.enable(config);
    (consumer, session, producer, world.producers[&producer].target_buffer(0))
}

fn large(config: TraceConfig) -> TraceConfig {
    TraceConfig { buffers: vec![buffer(8 * 1024)], ..config }
}

fn over(session_id: SessionId, error: Option<&str>) -> ConsumerEvent {
    ConsumerEvent::TracingDisabled { session_id, error: error.map(str::to_owned) }
}

#[test]
fn everything_ends_up_in_the_file() {
    let mut world = World::new();
    let (consumer, session, producer, target) = recording(&mut world, &into_file("src"));
    world.write(producer, 1, target, &[packet("one")]).advance_ms(5000);
    let after_first = world.files[&session].bytes.len();
    assert!(after_first > 0, "written at the next multiple of five seconds");
    world.acknowledge_flush(producer);
    world.write(producer, 1, target, &[packet("two")]);
    assert_eq!(world.files[&session].bytes.len(), after_first, "not before the next period");
    world.disable(consumer);
    let file = &world.files[&session];
    assert!(file.closed);
    assert_eq!(file.syncs, 1, "once, at the end");
    let trace = Trace::parse(&file.bytes);
    assert_eq!(trace.texts(), ["one", "two"]);
    assert_eq!(
        trace.kinds()[..4],
        ["clock_snapshot", "clock_snapshot", "synchronization_marker", "trace_config"]
    );
    assert_eq!(trace.kinds().last(), Some(&"trace_stats"));
    assert_eq!(trace.kinds().iter().filter(|kind| **kind == "trace_config").count(), 1);
    assert_eq!(trace.kinds().iter().filter(|kind| **kind == "tracing_disabled").count(), 1);
    assert_eq!(world.events_of(consumer), [over(session, None)]);
}

#[test]
fn the_period_has_a_floor_and_is_kept() {
    for (configured, expected_ms) in [(None, 5000), (Some(1), 100), (Some(250), 250)] {
        let mut world = World::new();
        let config = TraceConfig {
            file_write_period_ms: configured,
            write_flush_mode: Some(WriteFlushMode::WriteFlushDisabled.into()),
            ..into_file("src")
        };
        let (_, session, ..) = recording(&mut world, &config);
        world.advance_ms(10 * expected_ms);
        assert_eq!(world.files[&session].writes, 10, "{configured:?}");
    }
}

#[test]
fn the_end_is_told_when_the_file_is_closed() {
    let mut world = World::new();
    let (consumer, session, ..) = recording(&mut world, &into_file("src"));
    world.writes_files = false;
    world.disable(consumer);
    assert_eq!(world.service.session_state(session), Some(SessionState::Disabled));
    let mut steps = Vec::new();
    while let Some(action) = world.service.poll_file() {
        assert!(world.events_of(consumer).is_empty());
        if matches!(action, FileAction::Write(_)) {
            world.service.write_file(session, &mut |_| Ok(()), &world.now);
        } else {
            assert_eq!(world.service.poll_file(), None, "one at a time");
            world.service.write_file(session, &mut |_| panic!("there is nothing to write"), &world.now);
            world.service.handle_file_done(session, Ok(()), &world.now);
        }
        steps.push(action);
    }
    assert_eq!(steps, [FileAction::Write(session), FileAction::Sync(session), FileAction::Close(session)]);
    assert_eq!(world.events_of(consumer), [over(session, None)]);
    // An answer to nothing is of no consequence.
    world.service.handle_file_done(session, Err("late".to_owned()), &world.now);
    assert!(world.events_of(consumer).is_empty());
}

/// Each step is bounded, and each slice in it; small slices come many in one call.
#[test]
fn steps_and_slices_are_bounded() {
    const SLICE_BYTES_MAX: usize = (1 << 20) + (1 << 17);
    for num_shards in [1, 4] {
        let mut world = World::with_shards(num_shards);
        let config = TraceConfig { buffers: vec![buffer(48 << 10)], ..into_file("src") };
        let (consumer, session, producer, target) = recording(&mut world, &config);
        let text = "b".repeat(3500);
        for serial in 0..10_000 {
            world.write(producer, 1 + serial % 7, target, &[packet(&text)]);
        }
        world.writes_files = false;
        world.disable(consumer);
        let (mut steps, mut calls) = (Vec::new(), 0);
        while let Some(action) = world.service.poll_file() {
            if matches!(action, FileAction::Write(_)) {
                steps.push(0);
                let step_bytes = steps.last_mut().expect("it has one");
                let mut out = |slices: &[IoSlice<'_>]| {
                    calls += 1;
                    *step_bytes += slices.iter().map(|slice| slice.len()).sum::<usize>();
                    assert!(slices.iter().all(|slice| slice.len() < SLICE_BYTES_MAX));
                    Ok(())
                };
                world.service.write_file(session, &mut out, &world.now);
            } else {
                world.service.handle_file_done(session, Ok(()), &world.now);
            }
        }
        assert!(matches!(steps[..], [33_554_432..33_600_000, 1..3_000_000]), "{steps:?}");
        assert!(calls < 500, "{calls} calls for 10,000 packets");
    }
}

/// A session that has ended, of 6000 packets of 500 to 3500 bytes.
fn large_and_over(num_shards: usize, config: TraceConfig) -> (World, ConsumerId, SessionId) {
    let mut world = World::with_shards(num_shards);
    let config = TraceConfig { buffers: vec![buffer(32 << 10)], ..config };
    let (consumer, session, producer, target) = recording(&mut world, &config);
    for serial in 0..6000 {
        let text = format!("{serial} {}", "p".repeat(500 + serial as usize % 3000));
        world.write(producer, 1 + serial % 11, target, &[packet(&text)]);
    }
    world.disable(consumer);
    (world, consumer, session)
}

/// Large steps are read by a pool, what a consumer reads is read by one thread.
#[test]
fn what_is_written_in_large_steps_is_what_is_read_in_small_ones() {
    for num_shards in [1, 2, 5] {
        let (mut world, consumer, _) = large_and_over(num_shards, one_source("src"));
        let read = world.read_bytes(consumer);
        assert!(read.len() > 8 << 20);
        let (mut world, consumer, _) = large_and_over(num_shards, one_source("src"));
        assert!(world.write_trace(consumer) == read, "{num_shards} shards");
        let (world, _, session) = large_and_over(num_shards, into_file("src"));
        let in_file = Trace::parse(&world.files[&session].bytes);
        assert!(in_file.texts() == Trace::parse(&read).texts(), "{num_shards} shards");
    }
}

/// What a writer was given when it fails is the beginning of the trace, and the rest can be read.
#[test]
fn what_a_failed_write_left_can_be_read() {
    let (mut world, consumer, _) = large_and_over(3, one_source("src"));
    let whole = world.read(consumer);
    let (mut world, consumer, _) = large_and_over(3, one_source("src"));
    let mut parts = Vec::new();
    let mut out = |slices: &[IoSlice<'_>]| {
        slices.iter().for_each(|slice| parts.extend_from_slice(slice));
        if parts.len() > 3 << 20 { Err("full".to_owned()) } else { Ok(()) }
    };
    assert_eq!(world.service.write_trace(consumer, &mut out, &world.now), Err("full".to_owned()));
    assert!(parts.len() < 8 << 20);
    parts.extend(world.read_bytes(consumer));
    assert!(Trace::parse(&parts).texts() == whole.texts());
}

#[test]
fn a_size_limit_is_never_reached() {
    let mut world = World::new();
    let config = TraceConfig { max_file_size_bytes: Some(20_000), ..large(into_file("src")) };
    let (consumer, session, producer, target) = recording(&mut world, &config);
    for i in 0..20 {
        world.write(producer, 1, target, &[packet(&format!("{i} {}", "s".repeat(2000)))]);
    }
    world.advance_ms(5000);
    let file = &world.files[&session];
    assert!(file.closed && world.service.file_is_full(session));
    assert!((17_500..20_000).contains(&file.bytes.len()), "{}", file.bytes.len());
    let trace = Trace::parse(&file.bytes);
    assert!(trace.stats().is_none(), "there was no room for the end");
    let numbers: Vec<_> =
        trace.texts().iter().map(|text| text.split(' ').next().expect("a number")).collect();
    assert_eq!(
        numbers,
        (0..numbers.len()).map(|i| i.to_string()).collect::<Vec<_>>(),
        "nothing after the first that did not fit"
    );
    // The session ends, too.
    assert_eq!(world.service.session_state(session), Some(SessionState::Disabled));
    assert_eq!(world.events_of(consumer), [over(session, None)]);
    // What had no room is still there for who asks.
    let in_file = numbers.len();
    let rest = world.read(consumer);
    let texts = rest.texts().into_iter();
    let numbers = texts.map(|text| text.split(' ').next().expect("a number").to_owned());
    assert_eq!(numbers.collect::<Vec<_>>(), (in_file..20).map(|i| i.to_string()).collect::<Vec<_>>());
}

#[test]
fn the_limit_counts_the_file_as_a_whole() {
    let mut world = World::new();
    let config = TraceConfig { max_file_size_bytes: Some(20_000), ..large(into_file("src")) };
    let (_, session, producer, target) = recording(&mut world, &config);
    for _ in 0..10 {
        world.write(producer, 1, target, &[packet(&"t".repeat(3000))]).advance_ms(5000);
    }
    let file = &world.files[&session];
    assert!(file.closed && file.writes > 2 && (16_000..20_000).contains(&file.bytes.len()));
}

#[test]
fn a_full_disk_ends_the_session_with_a_reason() {
    let mut world = World::new();
    let (consumer, session, producer, target) = recording(&mut world, &large(into_file("src")));
    world.files.entry(session).or_default().full_at_bytes = Some(4000);
    world.write(producer, 1, target, &[packet("fits")]).advance_ms(5000);
    assert_eq!(world.service.session_state(session), Some(SessionState::Started));
    world.write(producer, 1, target, &[packet(&"f".repeat(3900))]).advance_ms(5000);
    let file = &world.files[&session];
    assert!(file.closed);
    assert_eq!(Trace::parse(&file.bytes).texts(), ["fits"], "what was written is a trace");
    let error = "writing the trace file failed: no space left on device";
    assert!(!world.service.file_is_full(session), "the limit of the config was not reached");
    assert_eq!(world.events_of(consumer), [over(session, Some(error))]);
    let reason = "no space left on device".to_owned();
    let warning = Warning::FileFailed { session_id: session, reason };
    assert_eq!(warning.to_string(), format!("session {session}: {error}"));
    assert!(world.warnings.contains(&warning));
}

#[test]
fn a_stop_between_write_and_sync_is_followed_by_the_rest() {
    let mut world = World::new();
    let config =
        TraceConfig { fflush_post_write: Some(FFlushMode::FflushEnabled.into()), ..into_file("src") };
    let (consumer, session, producer, target) = recording(&mut world, &config);
    world.write(producer, 1, target, &[packet("before")]);
    world.writes_files = false;
    world.advance_ms(5000);
    assert_eq!(world.service.poll_file(), Some(FileAction::Write(session)));
    let mut first = Vec::new();
    let mut out = |slices: &[IoSlice<'_>]| {
        slices.iter().for_each(|slice| first.extend_from_slice(slice));
        Ok(())
    };
    world.service.write_file(session, &mut out, &world.now);
    assert_eq!(world.service.poll_file(), Some(FileAction::Sync(session)));
    // Before the shell has done so, more comes in and the session ends.
    world.write(producer, 1, target, &[packet("meanwhile")]);
    world.service.handle_disable_tracing(consumer, &world.now);
    assert_eq!(world.service.poll_file(), None);
    world.service.handle_file_done(session, Ok(()), &world.now);
    world.writes_files = true;
    world.pump();
    assert_eq!(Trace::parse(&first).texts(), ["before"]);
    let rest = Trace::parse(&world.files[&session].bytes);
    assert_eq!(rest.texts(), ["meanwhile"]);
    assert!(rest.stats().is_some());
}

#[test]
fn a_session_that_is_given_up_writes_what_it_has() {
    for disconnect in [false, true] {
        let mut world = World::new();
        let (consumer, session, producer, target) = recording(&mut world, &into_file("src"));
        world.writes_files = false;
        world.write(producer, 1, target, &[packet("kept")]);
        if disconnect {
            world.service.handle_consumer_disconnect(consumer, &world.now);
        } else {
            world.free(consumer);
            assert_eq!(world.service.session_of(consumer), None, "free for another session");
        }
        assert!(world.service.session_state(session).is_some(), "until the file is closed");
        world.writes_files = true;
        world.run_due();
        assert_eq!(Trace::parse(&world.files[&session].bytes).texts(), ["kept"]);
        assert_eq!(world.service.session_state(session), None);
        assert_eq!(world.events_of(consumer), [over(session, None)]);
    }
}

#[test]
fn such_a_session_is_not_read() {
    let mut world = World::new();
    let (consumer, session, producer, target) = recording(&mut world, &into_file("src"));
    world.write(producer, 1, target, &[packet("for the file")]);
    let mut block = Vec::new();
    assert_eq!(world.service.read_framed(consumer, &mut block, &world.now), ReadProgress::Nothing);
    assert!(block.is_empty());
    world.disable(consumer);
    assert_eq!(Trace::parse(&world.files[&session].bytes).texts(), ["for the file"]);
    // Once the file is closed, what comes later can be read.
    world.write(producer, 1, target, &[packet("late")]);
    assert_eq!(world.read(consumer).texts(), ["late"]);
    let nobody = world.consumer();
    assert_eq!(world.service.read_framed(nobody, &mut block, &world.now), ReadProgress::Nothing);
}

#[test]
fn each_write_is_made_durable_if_so_configured() {
    let mut world = World::new();
    let config =
        TraceConfig { fflush_post_write: Some(FFlushMode::FflushEnabled.into()), ..into_file("src") };
    let (consumer, session, ..) = recording(&mut world, &config);
    world.advance_ms(15_000);
    assert_eq!((world.files[&session].writes, world.files[&session].syncs), (3, 3));
    world.disable(consumer);
    assert_eq!((world.files[&session].writes, world.files[&session].syncs), (4, 4));
}

#[test]
fn a_flush_comes_before_each_write_where_they_are_seldom() {
    let mut world = World::new();
    let config = TraceConfig { file_write_period_ms: Some(10_000), ..into_file("src") };
    let (_, session, producer, target) = recording(&mut world, &config);
    world.advance_ms(5000);
    assert!(!world.files.contains_key(&session), "it waits for the flush");
    world.write(producer, 1, target, &[packet("flushed")]).acknowledge_flush(producer);
    assert_eq!(Trace::parse(&world.files[&session].bytes).texts(), ["flushed"]);
    // A flush that fails does not keep the file from being written.
    world.write(producer, 1, target, &[packet("not acknowledged")]).advance_ms(15_000);
    assert_eq!(Trace::parse(&world.files[&session].bytes).texts(), ["flushed", "not acknowledged"]);
}

#[test]
fn two_files_at_once() {
    let mut world = World::new();
    let (first_consumer, first, producer, to_first) = recording(&mut world, &into_file("src"));
    let (_, second) = world.enable(&into_file("src"));
    let to_second = world.producers[&producer].target_buffer(1);
    world.write(producer, 1, to_first, &[packet("1")]).write(producer, 2, to_second, &[packet("2")]);
    world.disable(first_consumer).advance_ms(5000);
    assert_eq!(Trace::parse(&world.files[&first].bytes).texts(), ["1"]);
    assert_eq!(Trace::parse(&world.files[&second].bytes).texts(), ["2"]);
    assert!(world.files[&first].closed && !world.files[&second].closed);
}

/// A step is written by another thread, from what had been committed when it began.
#[test]
fn what_comes_while_a_step_is_written_is_in_the_next() {
    for num_shards in [1, 4] {
        let mut world = World::with_shards(num_shards);
        let (consumer, session, producer, target) = recording(&mut world, &into_file("src"));
        for writer in 1..=5 {
            world.write(producer, writer, target, &[packet(&format!("before {writer}"))]);
        }
        world.writes_files = false;
        world.advance_ms(5000);
        let step = world.service.begin_write(session, &world.now).expect("a write is due");
        assert!(world.service.begin_write(session, &world.now).is_none(), "one at a time");
        assert_eq!(world.service.poll_file(), None);
        // Known sequences and a new one; then the session stops.
        for writer in 1..=6 {
            world.write(producer, writer, target, &[packet(&format!("meanwhile {writer}"))]);
        }
        world.service.handle_disable_tracing(consumer, &world.now);
        assert_eq!(world.service.poll_file(), None, "the step is under way");
        world.service.handle_file_done(session, Err("no answer to it".to_owned()), &world.now);
        let (written, first) = std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let mut bytes = Vec::new();
                let mut out = |slices: &[IoSlice<'_>]| {
                    slices.iter().for_each(|slice| bytes.extend_from_slice(slice));
                    Ok(())
                };
                let written = step.write_to(&mut out);
                (written, bytes)
            });
            thread.join().unwrap()
        });
        world.service.handle_written(written, &world.now);
        assert!(world.events_of(consumer).is_empty(), "there is more to write");
        world.writes_files = true;
        world.pump();
        let texts = |about: &str, last| (1..=last).map(|n| format!("{about} {n}")).collect::<Vec<_>>();
        assert_eq!(Trace::parse(&first).texts(), texts("before", 5));
        let rest = Trace::parse(&world.files[&session].bytes);
        assert_eq!(rest.texts(), texts("meanwhile", 6));
        assert!(rest.stats().is_some(), "the last statistics come last");
        assert_eq!(world.events_of(consumer), [over(session, None)]);
    }
}

#[test]
fn a_step_that_fails_ends_the_session() {
    let mut world = World::new();
    let (consumer, session, producer, target) = recording(&mut world, &into_file("src"));
    world.write(producer, 1, target, &[packet("lost")]);
    world.writes_files = false;
    world.advance_ms(5000);
    let step = world.service.begin_write(session, &world.now).expect("a write is due");
    let written = step.write_to(&mut |_| Err("no space left on device".to_owned()));
    world.service.handle_written(written, &world.now);
    assert_eq!(world.service.session_state(session), Some(SessionState::Disabled));
    assert_eq!(world.service.poll_file(), Some(FileAction::Sync(session)), "what is there is kept");
    world.service.handle_file_done(session, Err("no space left on device".to_owned()), &world.now);
    world.writes_files = true;
    world.pump();
    let is_told = |warning: &&Warning| matches!(warning, Warning::FileFailed { .. });
    assert_eq!(world.warnings.iter().filter(is_told).count(), 1, "one reason is told once");
    let error = "writing the trace file failed: no space left on device";
    assert_eq!(world.events_of(consumer), [over(session, Some(error))]);
}
