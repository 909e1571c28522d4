//! Who wrote what: a connection keeps its number for itself, whoever comes after it.

use watershed_service::{ConnectedProducer, PeerIdentity, ProducerHello, ProducerId, ProducerMemory};
use watershed_wire::protos::commit_data_request::ChunksToMove;

use crate::support::config::one_source;
use crate::support::producer::{entry, moves, packet};
use crate::support::trace::{sequence_id, trusted_uid};
use crate::support::{World, hello};

/// A producer of that user whose chunks come by message, and which takes part in sessions.
fn connect(world: &mut World, uid: i32) -> ProducerId {
    let identity = PeerIdentity { uid, ..Default::default() };
    let hello = ProducerHello { identity, memory: ProducerMemory::Emulated, ..hello() };
    let producer = world.connect_as(hello);
    world.register(producer, "src");
    producer
}

/// Commits the first chunk of writer `writer_id`, of one packet.
fn say(world: &mut World, producer: ProducerId, writer_id: u16, text: &str) {
    let packet = packet(text);
    let [low, high] = writer_id.to_le_bytes();
    let data = [&[0, 0, 0, 0, low, high, 1, 0, packet.len() as u8][..], &packet].concat();
    let target = world.producers[&producer].target_buffer(0);
    world.commit(producer, moves(vec![ChunksToMove { data: Some(data), ..entry(0, 0, target) }]));
}

#[test]
fn a_packet_is_never_given_to_an_earlier_connection() {
    let mut world = World::new();
    let (consumer, _) = world.enable(&one_source("src"));
    let root = connect(&mut world, 0);
    say(&mut world, root, 1, "of root");
    world.disconnect(root);
    // More connections than 16 bits can number. The session has set up something on each of them.
    for _ in 0..65_534 {
        let other = connect(&mut world, 7);
        world.disconnect(other);
    }
    let user = connect(&mut world, 1000);
    say(&mut world, user, 1, "of a user");
    let trace = world.read(consumer);
    let [of_root, of_user] = ["of root", "of a user"].map(|text| trace.saying(text));
    assert_eq!([of_root, of_user].map(trusted_uid), [Some(0), Some(1000)]);
    assert_ne!(sequence_id(of_root), sequence_id(of_user));
    assert_eq!(of_user.previous_packet_dropped(), 0, "it begins a sequence of its own");
}

#[test]
fn numbers_of_connections_do_not_come_back() {
    let mut world = World::new();
    for expected in 1..70_000 {
        let id = world.service.handle_producer_connect(hello()).expect("let in").producer_id;
        assert_eq!(id, ProducerId(expected));
        world.service.handle_producer_disconnect(id, &world.now);
    }
    let last = world.connect("last");
    let connected: Vec<_> =
        world.service.producers().map(|ConnectedProducer { producer_id, .. }| producer_id).collect();
    assert_eq!(connected, [last]);
}

#[test]
fn chunks_of_writers_that_no_client_has_are_refused() {
    let mut world = World::new();
    let (consumer, _) = world.enable(&one_source("src"));
    let producer = connect(&mut world, 77);
    for (writer_id, discarded) in [(1, 0), (0, 1), (32_767, 1), (32_768, 2), (u16::MAX, 3)] {
        say(&mut world, producer, writer_id, &format!("of {writer_id}"));
        // What is registered under such an id changes nothing.
        world.service.handle_register_trace_writer(producer, writer_id.into(), 0);
        let stats = world.service.trace_stats(consumer).expect("a session");
        assert_eq!(stats.chunks_discarded(), discarded, "after writer {writer_id}");
    }
    assert_eq!(world.read(consumer).texts(), ["of 1", "of 32767"]);
}
