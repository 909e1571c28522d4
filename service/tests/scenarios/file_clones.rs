//! Clones of sessions that write into a file: files themselves, with all that was recorded.

use std::io::IoSlice;

use watershed_service::{
    CloneRefused, CloneRequest, CloneSource, ClonedSession, ConsumerEvent, ConsumerId, FileAction,
    ProducerId, SessionId, SessionState,
};
use watershed_wire::protos::TraceConfig;

use crate::support::World;
use crate::support::config::{buffer, into_file, one_source, source};
use crate::support::producer::packet;
use crate::support::trace::Trace;

/// A session that writes into a file, with the first part of it written.
struct Scene {
    world: World,
    producer: ProducerId,
    original: ConsumerId,
    session: SessionId,
    target: u32,
    /// What is asked for.
    into_file: bool,
}

impl Scene {
    fn new(config: &TraceConfig) -> Scene {
        let mut world = World::new();
        let producer = world.connect("p");
        world.register(producer, "src");
        let (original, session) = world.enable(config);
        let target = world.producers[&producer].target_buffer(0);
        let mut scene = Scene { world, producer, original, session, target, into_file: false };
        scene.write("in the file");
        scene.world.advance_ms(5000);
        assert_eq!(scene.texts_of(session), ["in the file"]);
        scene
    }

    fn write(&mut self, text: &str) {
        self.world.write(self.producer, 1, self.target, &[packet(text)]);
    }

    fn ask(&mut self, has_file: bool) -> (ConsumerId, Result<SessionId, CloneRefused>) {
        let consumer = self.world.consumer();
        let source = CloneSource::Session(self.session);
        let request = CloneRequest {
            source,
            for_bugreport: false,
            skip_filter: false,
            trigger: None,
            into_file: self.into_file,
        };
        let now = self.world.now;
        let asked = self.world.service.handle_clone_session(consumer, request, has_file, &now);
        self.world.pump();
        (consumer, asked)
    }

    /// What became of the clone, if that has been told.
    fn told(&mut self, consumer: ConsumerId) -> Option<Result<ClonedSession, String>> {
        let events = self.world.events_of(consumer);
        events.into_iter().find_map(|event| match event {
            ConsumerEvent::Cloned { result, .. } => Some(result),
            _ => None,
        })
    }

    fn texts_of(&self, session: SessionId) -> Vec<String> {
        let trace = Trace::parse(&self.world.files[&session].bytes);
        trace.texts().into_iter().map(str::to_owned).collect()
    }
}

#[test]
fn a_clone_has_what_is_in_the_file_and_in_the_buffers() {
    for handed_over in [false, true] {
        let mut config = into_file("src");
        config.buffers[0].transfer_on_clone = Some(handed_over);
        let mut scene = Scene::new(&config);
        scene.write("in the buffer");
        let (consumer, asked) = scene.ask(true);
        let clone = asked.expect("allowed");
        assert_eq!(scene.told(consumer), None, "a flush comes first");
        scene.write("before the flush is answered");
        scene.world.acknowledge_flush(scene.producer);
        let told = scene.told(consumer).expect("told").expect("made");
        assert!(told.is_in_file);
        scene.write("after it");
        let expected = ["in the file", "in the buffer", "before the flush is answered"];
        assert_eq!(scene.texts_of(clone), expected);
        let file = &scene.world.files[&clone];
        assert!(file.closed && file.syncs == 1);
        let trace = Trace::parse(&file.bytes);
        assert!(trace.kinds().contains(&"clone_started") && trace.stats().is_some());
        assert_eq!(scene.world.service.session_state(clone), Some(SessionState::Cloned));
        assert!(scene.world.read(consumer).texts().is_empty(), "all of it is in the file");
        // The original goes on. What was handed over it does not have.
        scene.world.disable(scene.original);
        let kept = if handed_over { 1 } else { 3 };
        let of_original = [&expected[..kept], &["after it"]].concat();
        assert_eq!(scene.texts_of(scene.session), of_original);
        scene.world.free(consumer);
        assert_eq!(scene.world.service.session_state(clone), None);
    }
}

#[test]
fn without_a_file_there_is_no_clone() {
    let mut scene = Scene::new(&into_file("src"));
    assert_eq!(scene.ask(false).1, Err(CloneRefused::NoFile));
    // Once the file is closed, what comes later is cloned as from any session.
    scene.world.disable(scene.original);
    scene.write("late");
    let (consumer, asked) = scene.ask(false);
    asked.expect("allowed");
    scene.world.run_due();
    assert!(!scene.told(consumer).expect("told").expect("made").is_in_file);
    assert_eq!(scene.world.read(consumer).texts(), ["late"]);
}

/// What a write has taken from the buffers is not in the file before it is over.
#[test]
fn a_clone_waits_for_the_write_that_is_under_way() {
    let mut scene = Scene::new(&into_file("src"));
    scene.write("taken by the write");
    scene.world.writes_files = false;
    scene.world.advance_ms(5000);
    let now = scene.world.now;
    let step = scene.world.service.begin_write(scene.session, &now).expect("a write is due");
    let (consumer, asked) = scene.ask(true);
    let clone = asked.expect("allowed");
    scene.world.acknowledge_flush(scene.producer);
    scene.write("committed meanwhile");
    assert_eq!(scene.world.service.session_state(clone), None);
    let file = scene.world.files.get_mut(&scene.session).expect("it was written");
    let written = step.write_to(&mut |slices: &[IoSlice<'_>]| {
        slices.iter().for_each(|slice| file.bytes.extend_from_slice(slice));
        Ok(())
    });
    scene.world.service.handle_written(written, &now);
    assert_eq!(scene.world.service.session_state(clone), Some(SessionState::Cloned));
    scene.world.writes_files = true;
    scene.world.pump();
    assert!(scene.told(consumer).expect("told").is_ok());
    assert_eq!(scene.texts_of(clone), ["in the file", "taken by the write", "committed meanwhile"]);
}

#[test]
fn large_files_are_copied_in_steps_while_the_original_ends() {
    let config = TraceConfig { buffers: vec![buffer(128 << 10)], ..into_file("src") };
    let config = TraceConfig { data_sources: vec![source("src", 0)], ..config };
    let mut scene = Scene::new(&config);
    for _ in 0..40_000 {
        scene.write(&"l".repeat(3500));
    }
    scene.world.advance_ms(5000);
    let in_file = scene.world.files[&scene.session].bytes.len() as u64;
    let (consumer, asked) = scene.ask(true);
    let clone = asked.expect("allowed");
    scene.world.writes_files = false;
    scene.world.acknowledge_flush(scene.producer);
    scene.world.disable(scene.original);
    let mut copies = Vec::new();
    while let Some(action) = scene.world.service.poll_file() {
        match action {
            FileAction::Copy { from, to, offset_bytes, size_bytes } => {
                assert_eq!((from, to), (scene.session, clone));
                assert_eq!(copies.iter().sum::<u64>(), offset_bytes);
                copies.push(size_bytes);
                assert!(!scene.world.files[&from].closed);
                let now = scene.world.now;
                scene.world.service.handle_file_done(to, Ok(()), &now);
            }
            FileAction::Write(session) => {
                let now = scene.world.now;
                scene.world.service.write_file(session, &mut |_| Ok(()), &now);
            }
            FileAction::Sync(session) => {
                let now = scene.world.now;
                scene.world.service.handle_file_done(session, Ok(()), &now);
            }
            FileAction::Close(session) => {
                let all_copied = copies.iter().sum::<u64>() == in_file;
                assert!(all_copied, "{session} is closed while its bytes are wanted");
                let now = scene.world.now;
                scene.world.service.handle_file_done(session, Ok(()), &now);
            }
        }
    }
    assert!(copies.len() == 2 && copies.iter().all(|bytes| *bytes <= 64 << 20), "{copies:?}");
    assert!(scene.told(consumer).expect("told").is_ok());
}

#[test]
fn a_file_without_room_for_the_copy_fails_the_clone_only() {
    let mut scene = Scene::new(&into_file("src"));
    let (consumer, asked) = scene.ask(true);
    let clone = asked.expect("allowed");
    scene.world.files.entry(clone).or_default().full_at_bytes = Some(10);
    scene.world.acknowledge_flush(scene.producer);
    let error = scene.told(consumer).expect("told").expect_err("it has no room");
    assert!(error.contains("no space left on device"), "{error}");
    assert!(scene.world.files[&clone].closed);
    assert_eq!(scene.world.service.session_state(clone), None);
    assert_eq!(scene.world.service.session_of(consumer), None);
    assert_eq!(scene.world.service.session_state(scene.session), Some(SessionState::Started));
}

#[test]
fn a_consumer_that_goes_leaves_the_file_as_it_is() {
    let mut scene = Scene::new(&into_file("src"));
    let (consumer, asked) = scene.ask(true);
    let clone = asked.expect("allowed");
    scene.world.writes_files = false;
    scene.world.acknowledge_flush(scene.producer);
    let now = scene.world.now;
    scene.world.service.handle_consumer_disconnect(consumer, &now);
    scene.world.writes_files = true;
    scene.world.pump();
    assert_eq!(scene.world.service.session_state(clone), None);
    assert!(scene.world.files[&clone].closed && scene.world.files[&clone].bytes.is_empty());
    // The original can be given up, too; who waits for a clone of it is told at once.
    let (waiting, asked) = scene.ask(true);
    asked.expect("allowed");
    scene.world.free(scene.original);
    assert_eq!(scene.told(waiting), Some(Err("the original session has ended".to_owned())));
    assert_eq!(scene.world.service.session_state(scene.session), None);
}

#[test]
fn a_clone_is_not_left_behind_before_it_is_in_its_file() {
    let mut scene = Scene::new(&into_file("src"));
    scene.world.writes_files = false;
    let (consumer, asked) = scene.ask(true);
    asked.expect("allowed");
    scene.world.acknowledge_flush(scene.producer);
    assert!(scene.told(consumer).is_none());
    let refused = scene.world.service.handle_detach(consumer, "key");
    assert_eq!(refused, Err(watershed_service::DetachRefused::NoSession));
    while scene.world.write_file_once() {}
    assert!(matches!(scene.told(consumer), Some(Ok(_))), "who asked is told");
    scene.world.service.handle_detach(consumer, "key").expect("a good key");
}

#[test]
fn a_clone_of_buffers_goes_into_a_file_where_that_is_wanted() {
    for (into_file, has_file) in [(true, true), (true, false), (false, true)] {
        let mut world = World::new();
        let producer = world.connect("p");
        world.register(producer, "src");
        let (original, session) = world.enable(&one_source("src"));
        let target = world.producers[&producer].target_buffer(0);
        let mut scene = Scene { world, producer, original, session, target, into_file };
        scene.write("a");
        let (consumer, asked) = scene.ask(has_file);
        let clone = asked.expect("allowed");
        scene.world.acknowledge_flush(producer);
        let is_in_file = into_file && has_file;
        assert_eq!(scene.told(consumer).expect("told").expect("made").is_in_file, is_in_file);
        let read = scene.world.read(consumer);
        match is_in_file {
            true => {
                assert_eq!(scene.texts_of(clone), ["a"]);
                assert!(scene.world.files[&clone].closed && read.texts().is_empty());
                let events = Trace::parse(&scene.world.files[&clone].bytes).kinds();
                assert!(events.contains(&"clone_started") && events.contains(&"trace_stats"), "{events:?}");
            }
            false => assert_eq!(read.texts(), ["a"]),
        }
        // The original goes on.
        scene.write("b");
        assert_eq!(scene.world.read(scene.original).texts(), ["a", "b"]);
    }
}
