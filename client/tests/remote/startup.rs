//! Memory of a producer's own: services that take it, or do not.

use watershed_client::producer::ProducerEvent;
use watershed_smb::SharedMemory;
use watershed_wire::protos::DataSourceConfig;

use super::*;

/// A producer whose instance has started before there is a service, and that instance's writer.
fn early(server: &Server) -> (Program, TraceWriter) {
    let mut options = options(&server.address);
    options.own_memory = true;
    let program = Program::new(options);
    let config = DataSourceConfig { name: Some(NAME.to_owned()), ..Default::default() };
    program.producer.trace_startup(config, Duration::from_secs(300)).unwrap();
    let writer = program.writer();
    (program, writer)
}

#[test]
fn a_service_may_have_its_own_memory() {
    let server = Server::new();
    let (program, mut early) = early(&server);
    early.write_packet(b"early");
    let (tell, told) = mpsc::channel::<()>();
    early.flush_with(Box::new(move || tell.send(()).unwrap()));
    let (mut client, hello) = server.welcome(true);
    assert!(hello.producer_provided_shmem());
    let reason = "the service does not take it".to_owned();
    assert_eq!(program.event(), RemoteEvent::NoOwnMemory { reason });
    let lost = program.event();
    assert!(matches!(lost, RemoteEvent::Producer(ProducerEvent::StartupLost { .. })), "{lost:?}");
    assert_eq!(told.recv(), Err(mpsc::RecvError), "who waits for a flush learns it");
    assert!(matches!(program.event(), RemoteEvent::Connected { .. }));
    client.serve_until(|client| client.registered == [NAME]);
    client.set_up_memory();
    client.set_up_instance(1, NAME);
    client.serve_until(|client| client.started == [1]);
    let mut writer = program.writer();
    early.write_packet(b"early");
    writer.write_packet(b"late");
    writer.flush();
    let writer_id = writer.writer_id();
    client.serve_until(|client| !client.fake.chunks(writer_id).is_empty());
    assert_eq!(written(&client, writer_id), [b"late"]);
}

/// A connection that nobody accepts takes nothing from what waits.
#[test]
fn what_waits_outlives_a_service_that_says_no() {
    let server = Server::new();
    let (program, mut early) = early(&server);
    let writer_id = early.writer_id();
    for _ in 0..3 {
        early.write_packet(b"early");
        let mut client = server.accept();
        let hello = client.next();
        client.connection.reject(hello.reply_to);
        client.send();
        assert!(program.reason().contains("rejected"), "a reason");
    }
    let reply =
        InitializeConnectionResponse { using_shmem_provided_by_producer: Some(true), ..Default::default() };
    let (mut client, _) = server.welcome_with(reply);
    let memory = SharedMemory::map_trusted(client.fds.pop_front().expect("memory")).unwrap();
    client.fake = support::FakeService::over(memory, 4096);
    // As for all memory, but without a descriptor.
    let setup = SetupTracing { shared_buffer_page_size_kb: Some(4), ..Default::default() };
    client.command_with(Command::SetupTracing(setup), None);
    early.write_packet(b"late");
    let (tell, told) = mpsc::channel();
    early.flush_with(Box::new(move || tell.send(()).unwrap()));
    client.set_up_instance(1, NAME);
    client.serve_until(|client| client.started == [1]);
    client.serve_until(|_| told.try_recv().is_ok());
    assert_eq!(written(&client, writer_id), [&b"early"[..], b"early", b"early", b"late"]);
    assert!(client.fake.registered().contains(&(writer_id, 7)), "{:?}", client.fake.registered());
}
