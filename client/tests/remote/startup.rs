//! A service that does not take the memory of a producer.

use watershed_client::producer::ProducerEvent;
use watershed_wire::protos::DataSourceConfig;

use super::*;

#[test]
fn a_service_may_have_its_own_memory() {
    let server = Server::new();
    let mut options = options(&server.address);
    options.own_memory = true;
    let program = Program::new(options);
    let config = DataSourceConfig { name: Some(NAME.to_owned()), ..Default::default() };
    program.producer.trace_startup(config, Duration::from_secs(300)).unwrap();
    let mut early = program.writer();
    early.write_packet(b"early");
    let (mut client, hello) = server.welcome(true);
    assert!(hello.producer_provided_shmem());
    let reason = "the service does not take it".to_owned();
    assert_eq!(program.event(), RemoteEvent::NoOwnMemory { reason });
    let lost = program.event();
    assert!(matches!(lost, RemoteEvent::Producer(ProducerEvent::StartupLost { .. })), "{lost:?}");
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
    let mut options = options(&server.address);
    options.own_memory = true;
    let program = Program::new(options);
    let config = DataSourceConfig { name: Some(NAME.to_owned()), ..Default::default() };
    program.producer.trace_startup(config, Duration::from_secs(300)).unwrap();
    let mut early = program.writer();
    for _ in 0..3 {
        early.write_packet(b"early");
        let mut client = server.accept();
        let hello = client.next();
        client.connection.reject(hello.reply_to);
        client.send();
        assert!(program.reason().contains("rejected"), "a reason");
    }
    assert_eq!(early.packets_dropped(), 0);
    // It is still the same memory.
    let mut client = server.accept();
    assert_eq!(client.next().method, watershed_wire::ipc::ProducerMethod::InitializeConnection);
    early.write_packet(b"early");
    assert_eq!(early.packets_dropped(), 0);
}
