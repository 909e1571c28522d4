//! Reads in steps that another thread does, and what happens between the beginning and the end of
//! one: nothing comes twice, and what nobody was handed is not lost.

use watershed_service::{
    CloneRequest, CloneSource, ConsumerEvent, ConsumerId, PacketBatch, ProducerId, ReadBegun, ReadDone,
    ReadProgress, SessionId,
};
use watershed_wire::protos::TraceConfig;
use watershed_wire::protos::trace_packet::Data;

use crate::support::World;
use crate::support::config::{into_file, one_source};
use crate::support::producer::packet;
use crate::support::trace::Trace;

struct Session {
    world: World,
    producer: ProducerId,
    consumer: ConsumerId,
    id: SessionId,
}

/// A session with one packet.
fn session(config: &TraceConfig) -> Session {
    let mut world = World::that_never_waits();
    let producer = world.connect("p");
    world.register(producer, "src");
    let (consumer, id) = world.enable(config);
    let mut session = Session { world, producer, consumer, id };
    session.write("one");
    session
}

impl Session {
    fn write(&mut self, text: &str) {
        let target = self.world.producers[&self.producer].target_buffer(0);
        self.world.write(self.producer, 1, target, &[packet(text)]);
    }

    fn begin(&mut self, consumer: ConsumerId) -> ReadBegun {
        let now = self.world.now;
        self.world.service.begin_read(consumer, &now)
    }

    /// Begins a step and runs it.
    fn run_step(&mut self, consumer: ConsumerId) -> ReadDone {
        match self.begin(consumer) {
            ReadBegun::Step(step) => step.run(PacketBatch::new()),
            other => panic!("no step: {other:?}"),
        }
    }

    fn end(&mut self, done: ReadDone) -> (Trace, ReadProgress) {
        let now = self.world.now;
        let (packets, progress) = self.world.service.handle_read(done, &now);
        self.world.pump();
        let mut bytes = Vec::new();
        for packet in packets.packets() {
            prost::encoding::bytes::encode(1, &packet.to_vec(), &mut bytes);
        }
        (Trace::parse(&bytes), progress)
    }

    /// All steps until a read is over.
    fn read(&mut self, consumer: ConsumerId) -> Vec<String> {
        self.world.service.handle_read_buffers(consumer);
        let mut texts = Vec::new();
        loop {
            let done = self.run_step(consumer);
            let (trace, progress) = self.end(done);
            texts.extend(trace.texts().iter().map(ToString::to_string));
            if progress == ReadProgress::Done {
                return texts;
            }
        }
    }

    fn detach(&mut self) {
        assert_eq!(self.world.service.handle_detach(self.consumer, "key"), Ok(self.id));
    }

    fn attach(&mut self) -> ConsumerId {
        let (consumer, now) = (self.world.consumer(), self.world.now);
        self.world.service.handle_attach(consumer, "key", &now).expect("it is detached");
        consumer
    }

    fn disconnect(&mut self) {
        let now = self.world.now;
        self.world.service.handle_consumer_disconnect(self.consumer, &now);
        self.world.pump();
    }
}

#[test]
fn steps_give_what_one_read_gives() {
    let mut session = session(&one_source("src"));
    let consumer = session.consumer;
    let done = session.run_step(consumer);
    // Of the next step.
    session.write("two");
    let (trace, progress) = session.end(done);
    assert_eq!((trace.texts(), progress), (vec!["one"], ReadProgress::More));
    let done = session.run_step(consumer);
    let (trace, progress) = session.end(done);
    assert_eq!((trace.texts().len(), progress), (0, ReadProgress::Done), "it was drained");
    assert_eq!(session.read(consumer), ["two"]);
    // One that begins anew in the middle gets all that is there then.
    session.write("three");
    let done = session.run_step(consumer);
    session.write("four");
    session.world.service.handle_read_buffers(consumer);
    assert_eq!(session.end(done).0.texts(), ["three"]);
    let done = session.run_step(consumer);
    assert_eq!(session.end(done).0.texts(), ["four"]);
    session.world.free(consumer);
    assert!(matches!(session.begin(consumer), ReadBegun::Nothing));
}

/// The session goes on without its consumer, and the next one gets what that did not get, first.
#[test]
fn what_a_consumer_that_has_left_did_not_get_comes_first() {
    for disconnects in [false, true] {
        let mut session = session(&one_source("src"));
        let consumer = session.consumer;
        let done = session.run_step(consumer);
        session.detach();
        if disconnects {
            session.disconnect();
        }
        session.write("two");
        let (trace, progress) = session.end(done);
        assert_eq!((trace.packets.len(), progress), (0, ReadProgress::More));
        assert!(matches!(session.begin(consumer), ReadBegun::Nothing), "it has no session");
        let next = session.attach();
        assert_eq!(session.read(next), ["one", "two"]);
    }
}

/// The step of one that has left is waited for, and the other is told.
#[test]
fn two_consumers_do_not_read_one_session_at_a_time() {
    let mut session = session(&one_source("src"));
    let consumer = session.consumer;
    let done = session.run_step(consumer);
    session.detach();
    let next = session.attach();
    assert!(matches!(session.begin(next), ReadBegun::Later));
    session.world.pump();
    assert!(session.world.events_of(next).is_empty());
    let _ = session.end(done);
    assert_eq!(session.world.events_of(next), [ConsumerEvent::ReadReady]);
    assert_eq!(session.read(next), ["one"]);
}

#[test]
fn who_comes_back_in_the_middle_gets_it() {
    let mut session = session(&one_source("src"));
    let consumer = session.consumer;
    let done = session.run_step(consumer);
    session.detach();
    let now = session.world.now;
    session.world.service.handle_attach(consumer, "key", &now).expect("it is detached");
    assert_eq!(session.end(done).0.texts(), ["one"]);
}

/// What is freed is not handed out, nor is it said of the next session.
#[test]
fn a_session_may_go_in_the_middle_of_a_step() {
    for disconnects in [false, true] {
        let mut session = session(&one_source("src"));
        let consumer = session.consumer;
        let done = session.run_step(consumer);
        if disconnects {
            session.disconnect();
        } else {
            session.world.free(consumer);
        }
        assert_eq!(session.world.service.num_sessions(), 0);
        let (trace, progress) = session.end(done);
        assert_eq!((trace.packets.len(), progress), (0, ReadProgress::More));
        assert!(matches!(session.begin(consumer), ReadBegun::Nothing));
    }
}

/// Statistics are of the end, and everything is read before them.
#[test]
fn a_session_that_ends_in_the_middle_of_a_step_is_read_to_its_end() {
    for is_pass_over in [false, true] {
        let mut session = session(&one_source("src"));
        let consumer = session.consumer;
        let mut done = Some(session.run_step(consumer));
        if is_pass_over {
            let (trace, _) = session.end(done.take().expect("it was run"));
            assert_eq!(trace.texts(), ["one"]);
        }
        session.write("two");
        session.world.disable(consumer);
        if let Some(done) = done {
            assert_eq!(session.end(done).0.texts(), ["one"]);
        }
        let done = session.run_step(consumer);
        assert_eq!(session.end(done).0.texts(), ["two"], "before the read is over");
        let done = session.run_step(consumer);
        let (trace, progress) = session.end(done);
        let is_stats = |data: &Data| matches!(data, Data::TraceStats(_));
        assert!(trace.packets.iter().filter_map(|packet| packet.data.as_ref()).any(is_stats));
        assert_eq!(progress, ReadProgress::Done);
    }
}

/// A clone has what nobody was handed when it is made, also if that was read before.
#[test]
fn a_clone_waits_for_a_step() {
    for leaves in [false, true] {
        let mut session = session(&one_source("src"));
        let consumer = session.consumer;
        session.read(consumer);
        session.write("two");
        let done = session.run_step(consumer);
        session.write("three");
        if leaves {
            session.detach();
        }
        let (other, now) = (session.world.consumer(), session.world.now);
        let request = CloneRequest {
            source: CloneSource::Session(session.id),
            for_bugreport: false,
            skip_filter: false,
            trigger: None,
            into_file: false,
        };
        session.world.service.handle_clone_session(other, request, false, &now).expect("allowed");
        let work = session.world.service.poll_clone().expect("memory is wanted");
        session.world.service.handle_clone_work(work.run(), &now);
        session.world.pump();
        session.world.acknowledge_flush(session.producer);
        session.world.run_due();
        assert!(session.world.service.poll_clone().is_none(), "a step is under way");
        let _ = session.end(done);
        let reader = if leaves { session.attach() } else { consumer };
        let work = session.world.service.poll_clone().expect("buffers are to be copied");
        assert!(matches!(session.begin(reader), ReadBegun::Later), "the copy is to have it");
        session.write("four");
        session.world.service.handle_clone_work(work.run(), &now);
        session.world.pump();
        assert_eq!(session.world.events_of(reader).pop(), Some(ConsumerEvent::ReadReady));
        assert!(matches!(session.world.events_of(other)[..], [ConsumerEvent::Cloned { result: Ok(_), .. }]));
        let left: &[&str] = if leaves { &["two", "three", "four"] } else { &["three", "four"] };
        assert_eq!(session.read(other), left);
        assert_eq!(session.read(reader), left);
    }
}

#[test]
fn a_session_with_a_file_is_not_read() {
    let mut session = session(&into_file("src"));
    let consumer = session.consumer;
    assert!(matches!(session.begin(consumer), ReadBegun::Nothing));
}
