//! Our own producer and consumer, with the same packets as the official one's.

use std::io::{Read as _, Seek as _};
use std::sync::mpsc::{Receiver, Sender, channel};

use prost::Message as _;
use watershed_client::consumer::{CloneOf, Consumer, ConsumerOptions, FLUSH_AT_STOP, Notice, Wait};
use watershed_client::remote::{RemoteOptions, RemoteProducer};
use watershed_client::{Context, DataSource, DataSourceFactory, ExhaustedPolicy, TraceWriter, Wake};
use watershed_shell::address;
use watershed_wire::framing::append_packet;
use watershed_wire::protos::observable_events::{CloneTriggerHit, Type};
use watershed_wire::protos::test_event::TestPayload;
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{DataSourceDescriptor, TestEvent, TraceConfig, TracePacket};

use crate::SOON;
use crate::producer::{NUMBERED, strings};
use crate::trace::Trace;

/// Gives the scenario writers for each session.
struct Factory {
    num_writers: u64,
    writers: Sender<Vec<TraceWriter>>,
}

struct Running;

impl DataSourceFactory for Factory {
    fn descriptor(&self) -> DataSourceDescriptor {
        DataSourceDescriptor { name: Some(NUMBERED.to_owned()), ..Default::default() }
    }

    fn exhausted_policy(&self) -> ExhaustedPolicy {
        ExhaustedPolicy::StallThenDrop
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        let writers = (0..self.num_writers).map(|_| cx.create_writer()).collect();
        self.writers.send(writers).map_err(|error| error.to_string())?;
        Ok(Box::new(Running))
    }
}

impl DataSource for Running {
    fn start(&mut self, _: &mut Context<'_>) -> Wake {
        Wake::Never
    }
}

/// A producer of [`numbered`] packets.
pub(crate) struct Producer {
    _remote: RemoteProducer,
    writers: Receiver<Vec<TraceWriter>>,
}

impl Producer {
    /// Connects and registers; the service knows it afterwards. A session gets so many writers.
    pub(crate) fn start(num_writers: u64) -> Producer {
        let options = RemoteOptions::from_environment().expect("the environment names sockets");
        let remote = RemoteProducer::connect(options, |_| ()).expect("it is made");
        let (writers, receiver) = channel();
        remote.register(Box::new(Factory { num_writers, writers }));
        assert!(remote.sync(SOON), "the service answers");
        Producer { _remote: remote, writers: receiver }
    }

    /// The writers of one session that records.
    pub(crate) fn writers(&self) -> Vec<TraceWriter> {
        self.writers.recv_timeout(SOON).expect("a session records")
    }
}

/// The packet that the official producer writes for the same thread and number.
pub(crate) fn numbered(thread: u64, number: u32) -> TracePacket {
    let strings = strings(thread, number);
    let nested = TestPayload { str: strings, ..TestPayload::default() };
    let payload =
        (!nested.str.is_empty()).then(|| TestPayload { nested: vec![nested], ..Default::default() });
    let event = TestEvent { counter: Some(thread), seq_value: Some(number), payload, ..TestEvent::default() };
    TracePacket { data: Some(Data::ForTesting(event)), ..TracePacket::default() }
}

/// A session of our own consumer.
pub(crate) struct Session(Consumer);

impl Session {
    /// Starts a session and waits until every producer has.
    pub(crate) fn start(config: &TraceConfig) -> Session {
        let mut consumer = connect();
        consumer.enable_tracing(&config.encode_to_vec(), None).expect("it is sent");
        let mut session = Session(consumer);
        assert!(session.flush(), "every producer answers");
        session
    }

    /// A session whose triggers are told.
    pub(crate) fn observe_clones(config: &TraceConfig) -> Session {
        let mut consumer = connect();
        consumer.observe_events(&[Type::CloneTriggerHit]).expect("it is sent");
        consumer.enable_tracing(&config.encode_to_vec(), None).expect("it is sent");
        Session(consumer)
    }

    /// Waits for the next trigger; the scenario's own limit ends a wait for nothing.
    pub(crate) fn next_hit(&mut self) -> CloneTriggerHit {
        loop {
            match self.0.next_notice().expect("the daemon answers") {
                Notice::Events(events) => {
                    if let Some(hit) = events.clone_trigger_hit {
                        return hit;
                    }
                }
                other => panic!("no trigger, but {other:?}"),
            }
        }
    }

    /// Leaves it behind.
    pub(crate) fn detach(mut self, key: &str) {
        assert!(self.0.detach(key).expect("the daemon answers"));
    }

    /// Takes up what was left behind.
    pub(crate) fn attach(key: &str) -> Session {
        let mut consumer = connect();
        assert!(consumer.attach(key).expect("the daemon answers").is_some(), "it is still there");
        Session(consumer)
    }

    fn flush(&mut self) -> bool {
        self.0.flush(SOON, FLUSH_AT_STOP).expect("the daemon answers")
    }

    /// Flushes, stops and reads.
    pub(crate) fn finish(mut self) -> Trace {
        assert!(self.flush(), "every producer answers");
        self.0.disable().expect("the daemon answers");
        assert_eq!(self.0.wait_end(Some(SOON)).expect("it ends"), Wait::Ended { error: None });
        let mut file = Vec::new();
        self.0
            .read_packets(|packet| {
                append_packet(&mut file, &[packet]);
                Ok(())
            })
            .expect("it is read");
        Trace::decode(&file)
    }
}

fn connect() -> Consumer {
    let socket = address::consumer_socket().expect("the environment names a socket");
    Consumer::connect(&socket, &ConsumerOptions::default()).expect("the daemon runs")
}

/// The state of the session with this name.
pub(crate) fn state_of(name: &str) -> Option<String> {
    let state = connect().query_state(true).expect("the daemon answers");
    let session = state.tracing_sessions.iter().find(|session| session.unique_session_name() == name)?;
    Some(session.state().to_owned())
}

/// A clone of the session with this name, which the daemon writes into a file of ours.
pub(crate) fn clone(name: &str, trigger: Option<&CloneTriggerHit>) -> Trace {
    let of = CloneOf::Name(name.to_owned());
    let mut file = tempfile::tempfile().expect("a file");
    let handle = file.try_clone().expect("a second descriptor");
    let cloned = connect().clone_session(&of, trigger, handle, SOON).expect("it is cloned");
    assert!(cloned.is_in_file);
    let mut bytes = Vec::new();
    file.rewind().expect("it is a file");
    file.read_to_end(&mut bytes).expect("it can be read");
    Trace::decode(&bytes)
}
