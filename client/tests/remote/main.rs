//! A producer behind a socket, against a service that does what the test says.

mod flushes;
mod server;
mod startup;
#[path = "../support/mod.rs"]
mod support;

use std::io::Write as _;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use server::{Client, Server};
use support::{body, split_prefix, wait_until};
use watershed_client::remote::{Reconnect, RemoteEvent, RemoteOptions, RemoteProducer};
use watershed_client::{Context, DataSource, DataSourceFactory, TraceWriter, Wake};
use watershed_shell::address::Address;
use watershed_wire::ipc::messages::Command;
use watershed_wire::protos::get_async_command_response::SetupTracing;
use watershed_wire::protos::{DataSourceDescriptor, InitializeConnectionResponse};

const NAME: &str = "test.source";

/// A source for which sessions do not wait.
const QUIET: &str = "test.quiet";

/// A source whose writers the test writes with: the first of each instance.
struct Factory {
    name: &'static str,
    writers: Sender<TraceWriter>,
}

/// An instance with a writer of its own, for what it says at a flush and at the end.
struct Source {
    writer: TraceWriter,
}

impl DataSourceFactory for Factory {
    fn descriptor(&self) -> DataSourceDescriptor {
        let waits = Some(self.name != QUIET);
        DataSourceDescriptor {
            name: Some(self.name.to_owned()),
            will_notify_on_start: waits,
            will_notify_on_stop: waits,
            ..DataSourceDescriptor::default()
        }
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        self.writers.send(cx.create_writer()).unwrap();
        Ok(Box::new(Source { writer: cx.create_writer() }))
    }
}

impl DataSource for Source {
    fn start(&mut self, _: &mut Context<'_>) -> Wake {
        Wake::Never
    }

    fn flush(&mut self, _: &mut Context<'_>) {
        self.writer.write_packet(b"flush");
        self.writer.flush();
    }

    fn stop(&mut self, _: &mut Context<'_>) -> watershed_client::Stop {
        self.writer.write_packet(b"stop");
        watershed_client::Stop::Done
    }
}

/// A producer of the test's, and what it says.
struct Program {
    producer: RemoteProducer,
    events: Receiver<RemoteEvent>,
    writers: Receiver<TraceWriter>,
}

fn options(address: &Address) -> RemoteOptions {
    let mut options = RemoteOptions::for_sockets(vec![address.clone()]);
    options.producer_name = "test.producer".to_owned();
    options.arbiter.batch_commits_duration = Duration::ZERO;
    let step = Duration::from_millis(1);
    options.reconnect = Reconnect::Growing { step, longest: step };
    options
}

impl Program {
    fn new(options: RemoteOptions) -> Self {
        let (tell, events) = mpsc::channel();
        let producer = RemoteProducer::connect(options, move |event| drop(tell.send(event))).unwrap();
        let (to_test, writers) = mpsc::channel();
        producer.register(Box::new(Factory { name: NAME, writers: to_test }));
        Self { producer, events, writers }
    }

    fn event(&self) -> RemoteEvent {
        self.events.recv_timeout(Duration::from_secs(300)).expect("an event")
    }

    fn writer(&self) -> TraceWriter {
        self.writers.recv_timeout(Duration::from_secs(300)).expect("an instance")
    }

    fn reason(&self) -> String {
        match self.event() {
            RemoteEvent::Disconnected { reason, .. } | RemoteEvent::NotConnected { reason, .. } => reason,
            event => panic!("{event:?}"),
        }
    }
}

/// A producer with a running instance 1, whose first writer is given.
fn running(server: &Server) -> (Program, Client, TraceWriter) {
    let program = Program::new(options(&server.address));
    let (mut client, _) = server.welcome(true);
    assert_eq!(program.event(), RemoteEvent::Connected { address: server.address.clone() });
    client.serve_until(|client| !client.registered.is_empty());
    client.set_up_memory();
    client.set_up_instance(1, NAME);
    client.serve_until(|client| client.started == [1]);
    let writer = program.writer();
    (program, client, writer)
}

/// What was written by a writer, in order.
fn written(client: &Client, writer_id: u16) -> Vec<Vec<u8>> {
    let packets = client.fake.packets(writer_id);
    packets.into_iter().map(|packet| split_prefix(&packet.bytes).2.to_vec()).collect()
}

#[test]
fn a_session_from_the_first_call_to_the_last() {
    let server = Server::new();
    let program = Program::new(options(&server.address));
    let (mut client, hello) = server.welcome(true);
    assert_eq!(hello.producer_name(), "test.producer");
    assert_eq!(hello.shared_memory_page_size_hint_bytes(), 4096);
    assert_eq!(hello.shared_memory_size_hint_bytes(), 1 << 20);
    assert_eq!(hello.smb_scraping_mode, Some(1));
    assert!(!hello.sdk_version().is_empty());
    client.serve_until(|client| client.registered == [NAME]);

    client.set_up_memory();
    client.set_up_instance(11, NAME);
    client.serve_until(|client| client.started == [11]);
    client.serve_until(|client| client.fake.registered().len() == 2);
    assert!(client.fake.registered().iter().all(|&(_, buffer)| buffer == 7));

    let mut writer = program.writer();
    let writer_id = writer.writer_id();
    // Small ones and some that are cut over several chunks.
    let packets: Vec<_> = [10, 5000, 0, 300, 20_000, 4088].map(|size| body(size, size as usize + 1)).into();
    packets.iter().for_each(|packet| writer.write_packet(packet));
    let (tell, flushed) = mpsc::channel();
    writer.flush_with(Box::new(move || tell.send(()).unwrap()));
    // The reply calls back, whether or not the last commit brought chunks.
    client.serve_until(|_| flushed.try_recv().is_ok());
    assert!(client.fake.chunks(writer_id).len() > 7);
    assert_eq!(written(&client, writer_id), packets);

    client.flush(5, 11);
    client.serve_until(|client| client.flushed == [5]);
    let own = writer_id + 1;
    assert_eq!(written(&client, own), [b"flush"], "its data came before the answer");

    client.stop(11);
    client.serve_until(|client| client.stopped == [11]);
    assert_eq!(written(&client, own), [&b"flush"[..], b"stop"]);
    assert_eq!(client.fake.unregistered(), [own]);

    writer.write_packet(b"last");
    drop(writer);
    let Program { producer, .. } = program;
    let stats = producer.stats();
    assert_eq!((stats.connections, stats.commands_ignored, stats.frames_ignored), (1, 0, 0));
    drop(producer);
    client.serve_to_the_end();
    assert_eq!(written(&client, writer_id).last().unwrap(), b"last", "nothing is lost at the end");
}

/// Perfetto's service writes an error to its log for each answer that it does not wait for.
#[test]
fn only_what_the_service_waits_for_is_answered() {
    let server = Server::new();
    let (program, mut client, _writer) = running(&server);
    let (to_test, writers) = mpsc::channel();
    program.producer.register(Box::new(Factory { name: QUIET, writers: to_test }));
    client.serve_until(|client| client.registered == [NAME, QUIET]);
    client.set_up_instance(2, QUIET);
    let quiet = writers.recv_timeout(Duration::from_secs(300)).expect("an instance").writer_id();
    client.stop(2);
    client.stop(1);
    client.serve_until(|client| client.stopped.contains(&1));
    assert_eq!((&client.started[..], &client.stopped[..]), (&[1][..], &[1][..]));
    assert_eq!(written(&client, quiet + 1), [b"stop"], "it was stopped, and its data came");
}

#[test]
fn after_a_disconnect_everything_starts_anew() {
    let server = Server::new();
    let (program, client, mut old) = running(&server);
    old.write_packet(b"before");
    old.flush();
    drop(client);
    assert!(matches!(program.event(), RemoteEvent::Disconnected { .. }));
    assert_eq!(program.producer.stats().arbiter.chunks_acquired, 0, "the arbiter is gone");

    let (mut client, _) = server.welcome(false);
    assert!(matches!(program.event(), RemoteEvent::Connected { .. }));
    client.serve_until(|client| client.registered == [NAME]);
    client.set_up_memory();
    client.set_up_instance(2, NAME);
    client.serve_until(|client| client.started == [2]);
    let mut new = program.writer();
    // A writer of the first connection: whatever it does, the second one sees nothing of it.
    (0..100).for_each(|i| old.write_packet(&body(i, 1000)));
    old.flush();
    drop(old);
    new.write_packet(b"after");
    new.flush();
    let writer_id = new.writer_id();
    client.serve_until(|client| !client.fake.chunks(writer_id).is_empty());
    assert_eq!(written(&client, writer_id), [b"after"]);
    client.stop(2);
    client.serve_until(|client| client.stopped == [2]);
    assert_eq!(client.fake.registered().len(), 2, "the two of the second instance");
    assert_eq!(program.producer.stats().connections, 2);
}

/// Patches in place are for services that say so.
#[test]
fn patches_are_sent_to_a_service_that_wants_them() {
    for direct_patching in [false, true] {
        let server = Server::new();
        let mut options = options(&server.address);
        // The whole packet waits in one batch.
        options.arbiter.batch_commits_duration = Duration::from_secs(3600);
        let program = Program::new(options);
        let (mut client, _) = server.welcome(direct_patching);
        client.serve_until(|client| !client.registered.is_empty());
        client.set_up_memory();
        client.set_up_instance(1, NAME);
        client.serve_until(|client| client.started == [1]);
        let mut writer = program.writer();
        writer.new_packet().nested(900).bytes(1, &body(1, 5000));
        writer.flush();
        client.serve_until(|client| !client.fake.chunks(writer.writer_id()).is_empty());
        let patches: usize = client.fake.take_requests().iter().map(|r| r.chunks_to_patch.len()).sum();
        assert_eq!(patches == 0, direct_patching, "{patches} patches");
    }
}

#[test]
fn memory_for_the_second_time_is_ignored() {
    let server = Server::new();
    let (program, mut client, mut writer) = running(&server);
    let first = client.fake.clone();
    client.fake = support::FakeService::new(4, 4096);
    client.set_up_memory();
    wait_until(|| program.producer.stats().commands_ignored == 1);
    client.fake = first;
    writer.write_packet(b"x");
    writer.flush();
    let writer_id = writer.writer_id();
    client.serve_until(|client| !client.fake.chunks(writer_id).is_empty());
    assert_eq!(written(&client, writer_id), [b"x"]);
}

#[test]
fn memory_that_is_none_ends_the_connection() {
    let setup = |kb| {
        Command::SetupTracing(SetupTracing { shared_buffer_page_size_kb: Some(kb), ..Default::default() })
    };
    let file = || {
        let file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        file.into()
    };
    let memory = |client: &Client| client.fake.smb.memory().fd().unwrap().try_clone_to_owned().unwrap();
    for (case, reason) in [(0, "no shared memory"), (1, "100 bytes"), (2, "pages of 3072 bytes")] {
        let server = Server::new();
        let program = Program::new(options(&server.address));
        let (mut client, _) = server.welcome(true);
        assert!(matches!(program.event(), RemoteEvent::Connected { .. }));
        match case {
            0 => client.command_with(setup(4), None),
            1 => client.command_with(setup(4), Some(file())),
            _ => {
                let memory = memory(&client);
                client.command_with(setup(3), Some(memory));
            }
        }
        let said = program.reason();
        assert!(said.contains(reason), "{said}");
        server.accept();
    }
}

#[test]
fn a_service_that_does_not_answer_is_left() {
    let server = Server::new();
    let mut options = options(&server.address);
    options.accept_timeout = Duration::from_millis(20);
    let program = Program::new(options);
    let client = server.accept();
    assert_eq!(program.reason(), "the service does not answer");
    // It is tried again all the same.
    let _second = server.accept();
    drop(client);
}

#[test]
fn a_service_that_says_no_is_asked_again() {
    let server = Server::new();
    let program = Program::new(options(&server.address));
    let mut client = server.accept();
    let hello = client.next();
    client.connection.reject(hello.reply_to);
    client.send();
    assert!(program.reason().contains("rejected"), "a reason");

    let mut client = server.accept();
    let hello = client.next();
    let reply = InitializeConnectionResponse { use_shmem_emulation: Some(true), ..Default::default() };
    client.connection.reply(hello.reply_to, &reply, false).unwrap();
    client.send();
    assert!(program.reason().contains("no shared memory"));

    let (mut client, _) = server.welcome(true);
    assert!(matches!(program.event(), RemoteEvent::Connected { .. }));
    let stream = client.stream.unwrap();
    client.connection.reply_bytes(stream, &[], false).unwrap();
    client.send();
    assert!(program.reason().contains("stream of commands"));
}

#[test]
fn bytes_that_are_no_frames() {
    let server = Server::new();
    let program = Program::new(options(&server.address));
    // A frame that is too long, before anything else.
    let mut socket = server.accept_socket();
    socket.write_all(&[0xFF; 64]).unwrap();
    let said = program.reason();
    assert!(said.contains("no frame"), "{said}");
    drop(socket);

    let (mut client, _) = server.welcome(true);
    assert!(matches!(program.event(), RemoteEvent::Connected { .. }));
    // A frame without a meaning, one that cannot be read, a command that is none: passed over.
    client.socket.write_all(&[2, 0, 0, 0, 0x10, 99]).unwrap();
    client.socket.write_all(&[3, 0, 0, 0, 0xFF, 0xFF, 0xFF]).unwrap();
    let stream = client.stream.unwrap();
    client.connection.reply_bytes(stream, &[0xFF; 3], true).unwrap();
    client.send();
    wait_until(|| program.producer.stats().commands_ignored == 1);
    assert_eq!(program.producer.stats().frames_ignored, 2);
    client.serve_until(|client| client.registered == [NAME]);

    // A frame that ends in the middle, and then the connection does.
    client.socket.write_all(&[200, 0, 0, 0, 1, 2, 3]).unwrap();
    drop(client);
    assert_eq!(program.reason(), "the service closed the connection");
}

#[test]
fn a_service_that_does_not_read_is_left() {
    let server = Server::new();
    let (program, client, mut writer) = running(&server);
    // Commits without end: of chunks there are only 32, so the calls are of another kind.
    let (tell, done) = mpsc::channel::<()>();
    let names = vec!["x".repeat(100_000)];
    for _ in 0..60 {
        program.producer.activate_triggers(&names);
    }
    writer.flush_with(Box::new(move || drop(tell)));
    let said = program.reason();
    assert!(said.contains("does not read"), "{said}");
    assert!(done.recv_timeout(Duration::from_secs(300)).is_err(), "dropped, not called");
    drop(client);
    let (_client, _) = server.welcome(true);
    assert!(matches!(program.event(), RemoteEvent::Connected { .. }));
}

/// A full socket delays commits and loses none.
#[test]
fn a_service_that_reads_late_gets_everything() {
    let server = Server::new();
    let (program, mut client, mut writer) = running(&server);
    let names = vec!["x".repeat(100_000)];
    for _ in 0..10 {
        program.producer.activate_triggers(&names);
    }
    let packets: Vec<_> = (0..20).map(|i| body(i, 3000)).collect();
    packets.iter().for_each(|packet| writer.write_packet(packet));
    writer.flush();
    wait_until(|| program.producer.stats().arbiter.commits > 0);
    for _ in 0..10 {
        while client.next().method != watershed_wire::ipc::ProducerMethod::ActivateTriggers {}
    }
    let writer_id = writer.writer_id();
    client.flush(1, 1);
    client.serve_until(|client| client.flushed == [1]);
    assert_eq!(written(&client, writer_id), packets);
}

#[test]
fn a_call_that_no_frame_holds_is_counted() {
    let server = Server::new();
    let (program, mut client, _writer) = running(&server);
    program.producer.activate_triggers(&["x".repeat(200_000)]);
    std::thread::scope(|scope| {
        let synced = scope.spawn(|| program.producer.sync(Duration::from_secs(300)));
        client.serve_until(|client| client.syncs == 1);
        assert!(synced.join().unwrap());
    });
    assert_eq!(program.producer.stats().calls_too_long, 1);
}

#[test]
fn nobody_listens() {
    let (address, _folder) = Server::new().stop();
    let mut options = options(&address);
    options.reconnect = Reconnect::Never;
    let program = Program::new(options);
    match program.event() {
        RemoteEvent::NotConnected { reason, retry_after: None } => {
            assert!(reason.starts_with(&address.to_string()), "{reason}");
        }
        event => panic!("{event:?}"),
    }
    assert!(!program.producer.sync(Duration::from_secs(300)), "answered at once");
    assert_eq!(program.producer.stats().connections, 0);
}

#[test]
fn the_first_socket_that_answers_is_taken() {
    let (nobody, _folder) = Server::new().stop();
    let server = Server::new();
    let mut options = options(&nobody);
    options.sockets.push(server.address.clone());
    let program = Program::new(options);
    let _client = server.welcome(true);
    assert_eq!(program.event(), RemoteEvent::Connected { address: server.address.clone() });
}
