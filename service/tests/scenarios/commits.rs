//! Commits, well-behaved and hostile: what is counted, what is freed, and that nobody reaches what
//! is not theirs.

use watershed_service::{ConsumerId, ProducerHello, ProducerId, ProducerMemory};
use watershed_smb::{ChunkFlags, ChunkState};
use watershed_wire::protos;
use watershed_wire::protos::TraceConfig;
use watershed_wire::protos::commit_data_request::{ChunkToPatch, ChunksToMove, chunk_to_patch::Patch};

use crate::support::config::{buffer, discard, one_source, source};
use crate::support::producer::{entry, moves, packet};
use crate::support::{World, hello};

fn recording(world: &mut World) -> (ConsumerId, ProducerId, u32) {
    let producer = world.connect("p");
    world.register(producer, "src");
    let (consumer, _) = world.enable(&one_source("src"));
    (consumer, producer, world.producers[&producer].target_buffer(0))
}

fn stats(world: &mut World, consumer: ConsumerId) -> protos::TraceStats {
    world.service.trace_stats(consumer).expect("a session")
}

fn chunks_in_use(world: &World, producer: ProducerId) -> usize {
    let smb = world.producers[&producer].smb.as_ref().expect("memory was set up");
    (0..smb.num_pages()).filter(|page| !smb.snapshot(*page).expect("a page").is_free()).count()
}

#[test]
fn a_commit_frees_its_chunks() {
    let mut world = World::new();
    let (consumer, producer, target) = recording(&mut world);
    for round in 0..200 {
        // More chunks than the memory has.
        world.write(producer, 1, target, &[packet(&round.to_string())]);
    }
    assert_eq!(chunks_in_use(&world, producer), 0);
    assert_eq!(stats(&mut world, consumer).buffer_stats[0].chunks_written(), 200);
}

#[test]
fn a_request_before_there_is_memory_is_ignored_and_not_answered() {
    let mut world = World::new();
    let producer = world.connect("p");
    assert!(!world.service.handle_commit_data(producer, &moves(vec![entry(0, 0, 1)])));
    assert!(!world.service.handle_commit_data(watershed_service::ProducerId(999), &moves(Vec::new())));
}

#[test]
fn chunks_that_do_not_exist_or_are_not_complete_are_passed_over() {
    let mut world = World::new();
    let (consumer, producer, target) = recording(&mut world);
    let writing = world.producers.get_mut(&producer).expect("connected").chunk(1).packet(&packet("x"));
    let (page, chunk) = writing.place();
    let places = [(u32::MAX, 0), (64, 0), (63, 0), (page, 13), (page, u32::MAX), (page, chunk)];
    for (page, chunk) in places {
        world.commit(producer, moves(vec![entry(page, chunk, target)]));
    }
    let counted = stats(&mut world, consumer);
    assert_eq!((counted.chunks_discarded(), counted.buffer_stats[0].chunks_written()), (0, 0));
    // Still the writer's.
    let request = writing.move_to(target);
    world.commit(producer, request.clone());
    // A second time there is nothing to move.
    world.commit(producer, request);
    assert_eq!(stats(&mut world, consumer).buffer_stats[0].chunks_written(), 1);
}

#[test]
fn buffers_that_are_not_alive_or_not_allowed() {
    let mut world = World::new();
    let (consumer, producer, target) = recording(&mut world);
    let (other_consumer, _) = world.enable(&one_source("another"));
    let not_allowed = target + 1;
    for (target, discarded) in [(0, 1), (999, 2), (not_allowed, 3), (u32::MAX, 4)] {
        world.write(producer, 1, target, &[packet("stray")]);
        assert_eq!(stats(&mut world, consumer).chunks_discarded(), discarded);
        assert_eq!(chunks_in_use(&world, producer), 0, "freed all the same");
    }
    // Only the low 16 bits of a buffer id count.
    world.write(producer, 1, target | 0xabc0_0000, &[packet("arrived")]);
    assert_eq!(world.read(consumer).texts(), ["arrived"]);
    assert!(world.read(other_consumer).texts().is_empty());
}

#[test]
fn a_registered_writer_keeps_to_its_buffer() {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register(producer, "src");
    let mut config = one_source("src");
    config.buffers = vec![buffer(16), buffer(16)];
    config.data_sources = vec![source("src", 0), source("src", 1)];
    let (consumer, _) = world.enable(&config);
    let (first, second) =
        (world.producers[&producer].target_buffer(0), world.producers[&producer].target_buffer(1));
    world.service.handle_register_trace_writer(producer, 1, first);
    world.write(producer, 1, second, &[packet("wrong")]);
    world.write(producer, 1, first, &[packet("right")]);
    // One that is not registered may write to any buffer that its producer may.
    world.write(producer, 2, first, &[packet("any")]).write(producer, 2, second, &[packet("where")]);
    assert_eq!(stats(&mut world, consumer).chunks_discarded(), 1);
    // Unregistered, it is free again. Its chunks count from wherever they like.
    world.service.handle_unregister_trace_writer(producer, 1);
    world.write(producer, 1, second, &[packet("now")]);
    let mut texts: Vec<String> = world.read(consumer).texts().into_iter().map(str::to_owned).collect();
    texts.sort_unstable();
    assert_eq!(texts, ["any", "now", "right", "where"]);
}

#[test]
fn a_writer_id_that_comes_back_begins_anew() {
    let mut world = World::new();
    let (consumer, producer, target) = recording(&mut world);
    for life in 0..3 {
        world.service.handle_register_trace_writer(producer, 5, target);
        for chunk_id in 0..2 {
            let chunk = world.producers.get_mut(&producer).expect("connected").chunk_with_id(5, chunk_id);
            let request = chunk.packet(&packet(&format!("{life}.{chunk_id}"))).move_to(target);
            world.commit(producer, request);
        }
        world.service.handle_unregister_trace_writer(producer, 5);
    }
    let trace = world.read(consumer);
    assert_eq!(trace.texts(), ["0.0", "0.1", "1.0", "1.1", "2.0", "2.1"]);
    assert!(trace.packets.iter().all(|packet| packet.previous_packet_dropped.is_none()));
}

#[test]
fn data_after_the_end_of_a_session_still_lands_until_it_is_freed() {
    let mut world = World::new();
    let (consumer, producer, target) = recording(&mut world);
    world.disable(consumer).write(producer, 1, target, &[packet("late")]);
    assert_eq!(world.read(consumer).texts(), ["late"]);
    world.free(consumer).write(producer, 1, target, &[packet("too late")]);
    let (other, _) = world.enable(&one_source("nobody"));
    assert_eq!(stats(&mut world, other).chunks_discarded(), 1);
}

#[test]
fn permission_to_write_ends_with_the_session_not_with_the_source() {
    let mut world = World::new();
    let (consumer, producer, target) = recording(&mut world);
    world.service.handle_unregister_data_source(producer, "src", &world.now);
    world.write(producer, 1, target, &[packet("still")]);
    assert_eq!(world.read(consumer).texts(), ["still"]);
}

#[test]
fn permission_does_not_outlive_a_buffer_whose_id_comes_back() {
    let mut world = World::new();
    let (consumer, producer, target) = recording(&mut world);
    world.free(consumer);
    // Ids go round. 128 buffers a session until the next one gets the old id.
    let config = TraceConfig { buffers: vec![buffer(4); 128], ..TraceConfig::default() };
    for _ in 0..65_535 / 128 {
        world.try_enable(consumer, &config).expect("the config is accepted");
        world.free(consumer);
    }
    world.enable(&TraceConfig { buffers: vec![buffer(4); 126], ..TraceConfig::default() });
    let (owner, _) = world.enable(&TraceConfig { buffers: vec![buffer(4)], ..TraceConfig::default() });
    let other = world.connect("other");
    world.register(other, "src");
    let again = world.enable(&one_source("src"));
    assert_eq!(world.producers[&other].target_buffer(0), target + 1, "the owner got the old id");
    world.write(producer, 1, target, &[packet("stray")]);
    assert!(world.read(owner).texts().is_empty());
    assert_eq!(stats(&mut world, again.0).chunks_discarded(), 1);
}

#[test]
fn discard_and_ring_buffers() {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register(producer, "src");
    let mut config = one_source("src");
    config.buffers = vec![buffer(8), discard(8)];
    config.data_sources = vec![source("src", 0), source("src", 1)];
    let (consumer, _) = world.enable(&config);
    let targets = [world.producers[&producer].target_buffer(0), world.producers[&producer].target_buffer(1)];
    for i in 0..10 {
        for (writer, target) in targets.into_iter().enumerate() {
            let text = format!("{writer}:{i}:{}", "z".repeat(1900));
            world.write(producer, writer as u16 + 1, target, &[packet(&text)]);
        }
    }
    let counted = stats(&mut world, consumer);
    let trace = world.read(consumer);
    let kept = |buffer: &str| -> Vec<&str> {
        let of_buffer = trace.texts().into_iter().filter(|text| text.starts_with(buffer));
        of_buffer.map(|text| text.split(':').nth(1).expect("a number")).collect()
    };
    assert_eq!(kept("0:"), ["6", "7", "8", "9"], "a ring keeps the newest");
    assert_eq!(kept("1:"), ["0", "1", "2", "3"], "a discarding buffer keeps the oldest");
    assert_eq!(counted.buffer_stats[0].chunks_overwritten(), 6);
    assert_eq!(counted.buffer_stats[1].chunks_discarded(), 6);
    assert_eq!(counted.buffer_stats[0].buffer_size(), 8192);
}

#[test]
fn patches() {
    let mut world = World::new();
    let (consumer, producer, target) = recording(&mut world);
    // A packet whose nested length is still open when it spills: tag 900, four bytes of length,
    // then its content in two chunks.
    let text = "t".repeat(300);
    let content = {
        let mut content = Vec::new();
        prost::encoding::string::encode(1, &text, &mut content);
        content
    };
    let mut head = Vec::new();
    prost::encoding::encode_key(900, prost::encoding::WireType::LengthDelimited, &mut head);
    let offset_in_packet = head.len();
    head.extend_from_slice(&[0; 4]);
    head.extend_from_slice(&content[..200]);
    let fake = |world: &mut World| world.producers.get_mut(&producer).expect("connected").chunk(1);
    let chunk = fake(&mut world);
    let open = ChunkFlags::LAST_CONTINUES.with(ChunkFlags::NEEDS_PATCHING);
    let request = chunk.packet(&head).flags(open).move_to(target);
    world.commit(producer, request);
    let rest = fake(&mut world);
    let request = rest.packet(&content[200..]).flags(ChunkFlags::FIRST_CONTINUES).move_to(target);
    world.commit(producer, request);
    assert!(world.read(consumer).texts().is_empty(), "not before it is patched");

    let length = content.len() as u32;
    let redundant = [0x80 | (length & 0x7f) as u8, 0x80 | (length >> 7) as u8, 0x80, 0];
    let of = |writer_id, chunk_id, patches: Vec<Patch>| protos::CommitDataRequest {
        chunks_to_patch: vec![ChunkToPatch {
            target_buffer: Some(target),
            writer_id: Some(writer_id),
            chunk_id: Some(chunk_id),
            patches,
            ..Default::default()
        }],
        ..Default::default()
    };
    // The fragment's own size takes two bytes.
    let offset = 2 + offset_in_packet as u32;
    let patch = |data: &[u8]| Patch { offset: Some(offset), data: Some(data.to_vec()) };
    let discarded = |world: &mut World| stats(world, consumer).patches_discarded();
    world.commit(producer, of(0, 0, vec![patch(&redundant); 2]));
    assert_eq!(discarded(&mut world), 2, "no writer 0");
    world.commit(producer, of(32_768, 0, vec![patch(&redundant)]));
    assert_eq!(discarded(&mut world), 3, "no writer above 32767");
    world.commit(producer, of(1, 0, vec![patch(&redundant); 1025]));
    assert_eq!(discarded(&mut world), 3 + 1025, "too many in one entry");
    world.commit(producer, of(1, 7, vec![patch(&redundant)]));
    assert_eq!(stats(&mut world, consumer).buffer_stats[0].patches_failed(), 1, "no such chunk");
    let stranger = world.connect("stranger");
    world.register(stranger, "src");
    world.commit(stranger, of(1, 0, vec![patch(&[0x81, 0x80, 0x80, 0])]));
    assert_eq!(stats(&mut world, consumer).buffer_stats[0].patches_failed(), 2, "another producer's chunk");

    // Patches of a wrong size are left out, the others apply.
    world.commit(producer, of(1, 0, vec![patch(&[1]), patch(&redundant), patch(&[0; 5])]));
    assert_eq!(discarded(&mut world), 3 + 1025 + 2);
    assert_eq!(world.read(consumer).texts(), [text]);
}

#[test]
fn patches_for_a_buffer_that_is_gone_are_counted() {
    let mut world = World::new();
    let (consumer, producer, _) = recording(&mut world);
    let request = protos::CommitDataRequest {
        chunks_to_patch: vec![ChunkToPatch {
            target_buffer: Some(77),
            writer_id: Some(1),
            patches: vec![Patch::default(); 3],
            ..Default::default()
        }],
        ..Default::default()
    };
    world.commit(producer, request);
    assert_eq!(stats(&mut world, consumer).patches_discarded(), 3);
}

#[test]
fn chunks_that_come_by_message() {
    let mut world = World::new();
    let producer = world.connect_as(ProducerHello { memory: ProducerMemory::Emulated, ..hello() });
    world.register(producer, "src");
    let (consumer, _) = world.enable(&one_source("src"));
    let target = world.producers[&producer].target_buffer(0);
    assert!(world.producers[&producer].smb.is_none());
    let by_message = |data: Vec<u8>, incomplete: bool| {
        // Places mean nothing here.
        let place = entry(u32::MAX, u32::MAX, target);
        moves(vec![ChunksToMove { data: Some(data), chunk_incomplete: Some(incomplete), ..place }])
    };
    let chunk = |chunk_id: u8, fragments: u8, packets: &[Vec<u8>]| {
        let mut bytes = vec![chunk_id, 0, 0, 0, 1, 0, fragments, 0];
        for packet in packets {
            bytes.push(packet.len() as u8);
            bytes.extend_from_slice(packet);
        }
        bytes
    };
    world.commit(producer, by_message(chunk(0, 2, &[packet("a"), packet("b")]), false));
    // Of a chunk that is not complete the last fragment does not count.
    world.commit(producer, by_message(chunk(1, 2, &[packet("c"), packet("unfinished")]), true));
    assert_eq!(world.read(consumer).texts(), ["a", "b", "c"]);
    let before = stats(&mut world, consumer);
    for data in [vec![], vec![0; 7], vec![0; 65_537]] {
        world.commit(producer, by_message(data, false));
    }
    assert_eq!(
        stats(&mut world, consumer).buffer_stats,
        before.buffer_stats,
        "too short or too long for a chunk"
    );
    // The largest that may come is one byte more than a record can hold.
    let mut largest = chunk(2, 0, &[]);
    largest.resize(65_536, 0);
    world.commit(producer, by_message(largest, false));
    assert!(
        stats(&mut world, consumer).buffer_stats[0].chunks_written()
            > before.buffer_stats[0].chunks_written()
    );
}

#[test]
fn a_producer_that_plays_with_the_page_header_harms_only_itself() {
    let mut world = World::new();
    let (consumer, producer, target) = recording(&mut world);
    // Complete chunks with every writer id and nonsense in the header.
    for (writer_id, chunk_id) in [(0, 0), (u16::MAX, u32::MAX), (40_000, 1 << 31)] {
        let chunk = world.producers.get_mut(&producer).expect("connected").chunk_with_id(writer_id, chunk_id);
        let request = chunk.packet(&packet("odd")).flags(ChunkFlags::from_bits(0x38)).move_to(target);
        world.commit(producer, request);
    }
    // The same chunk many times in one request, and places all over.
    let chunk = world.producers.get_mut(&producer).expect("connected").chunk(1).packet(&packet("once"));
    let (page, index) = chunk.place();
    chunk.complete();
    let all = (0..70).flat_map(|page| (0..16).map(move |index| entry(page, index, target)));
    world.commit(producer, moves(std::iter::repeat_n(entry(page, index, target), 50).chain(all).collect()));
    let trace = world.read(consumer);
    assert_eq!(trace.texts().iter().filter(|text| **text == "once").count(), 1);
    assert_eq!(chunks_in_use(&world, producer), 0);
    let smb = world.producers[&producer].smb.clone().expect("memory was set up");
    assert!(smb.snapshot(0).expect("a page").states().all(|(_, state)| state == ChunkState::Free));
}

#[test]
fn memory_that_a_producer_brings() {
    let memory =
        |size_bytes| std::sync::Arc::new(watershed_smb::SharedMemory::anonymous(size_bytes).expect("memory"));
    let connect = |world: &mut World, size_bytes, page_size_hint_bytes| {
        let memory = ProducerMemory::Provided(memory(size_bytes));
        let hello = ProducerHello { memory, page_size_hint_bytes, ..hello() };
        let welcome = world.service.handle_producer_connect(hello).expect("let in");
        let told = world.service.poll_output();
        (welcome.using_provided_memory, told)
    };
    let mut world = World::new();
    let (used, told) = connect(&mut world, 64 * 1024, 8192);
    assert!(used);
    // It is told at once, without memory: it has it.
    let Some(watershed_service::Output::Producer(_, command)) = told else { panic!("{told:?}") };
    assert!(matches!(
        command,
        watershed_service::ProducerCommand::SetupTracing { memory: None, page_size_bytes: 8192 }
    ));
    // Sizes that do not go together: the service makes its own memory later.
    let (used, told) = connect(&mut world, 60 * 1024, 8192);
    assert!(!used && told.is_none());
    let (used, _) = connect(&mut world, 64 * 1024, 5000);
    assert!(!used);
}

#[test]
fn patches_for_a_buffer_of_others_are_counted() {
    let mut world = World::new();
    let (_, _, target) = recording(&mut world);
    let (cloning, session) = (world.consumer(), world.service.session_of(ConsumerId(1)));
    let source = watershed_service::CloneSource::Session(session.expect("it records"));
    let request = watershed_service::CloneRequest {
        source,
        for_bugreport: false,
        skip_filter: false,
        trigger: None,
        into_file: false,
    };
    let now = world.now;
    world.service.handle_clone_session(cloning, request, false, &now).expect("allowed");
    world.advance_ms(6000);
    assert!(world.service.session_of(cloning).is_some(), "there is a clone");
    let liar = world.connect("liar");
    world.register(liar, "src");
    // Its own session's buffer, that of the clone, and one that does not exist.
    for (target_buffer, discarded) in [(target, 0), (target + 1, 1), (target + 2, 2)] {
        let chunks_to_patch = vec![ChunkToPatch {
            target_buffer: Some(target_buffer),
            writer_id: Some(1),
            patches: vec![Patch { offset: Some(0), data: Some(vec![0x80, 0x80, 0x80, 0]) }],
            ..Default::default()
        }];
        world.commit(liar, protos::CommitDataRequest { chunks_to_patch, ..Default::default() });
        assert_eq!(stats(&mut world, cloning).patches_discarded(), discarded, "{target_buffer}");
    }
}

#[test]
fn a_patch_for_a_chunk_that_was_refused_changes_no_older_one() {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register(producer, "src");
    let config = TraceConfig { buffers: vec![discard(8)], ..one_source("src") };
    let (consumer, _) = world.enable(&config);
    let target = world.producers[&producer].target_buffer(0);
    let text = "x".repeat(3000);
    let write = |world: &mut World, chunk_id| {
        let fake = world.producers.get_mut(&producer).expect("connected");
        let request = fake.chunk_with_id(1, chunk_id).packet(&packet(&text)).move_to(target);
        world.commit(producer, request);
    };
    (0..2).for_each(|chunk_id| write(&mut world, chunk_id));
    // The writer's number goes to another one, for whose second chunk there is no room.
    world.service.handle_unregister_trace_writer(producer, 1);
    (0..2).for_each(|chunk_id| write(&mut world, chunk_id));
    let chunks_to_patch = vec![ChunkToPatch {
        target_buffer: Some(target),
        writer_id: Some(1),
        chunk_id: Some(1),
        patches: vec![Patch { offset: Some(100), data: Some(vec![0x80, 0x80, 0x80, 0]) }],
        ..Default::default()
    }];
    world.commit(producer, protos::CommitDataRequest { chunks_to_patch, ..Default::default() });
    assert_eq!(stats(&mut world, consumer).buffer_stats[0].patches_failed(), 1);
    assert!(world.read(consumer).texts().iter().all(|read| *read == text));
}
