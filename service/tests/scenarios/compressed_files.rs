//! Files that are compressed while they are written.

use std::io::IoSlice;

use watershed_service::FileAction;
use watershed_wire::protos::TraceConfig;
use watershed_wire::protos::trace_config::trigger_config::{Trigger, TriggerMode};
use watershed_wire::protos::trace_config::{CompressionType, TriggerConfig};

use crate::support::World;
use crate::support::config::{buffer, into_file};
use crate::support::producer::packet;
use crate::support::trace::Trace;

/// What is in the file of a session with deflate, how large that became, and whether it is full.
/// All is written in the end.
fn compressed(config: TraceConfig, num_triggers: usize, num_packets: usize) -> (Trace, usize, bool) {
    let mut world = World::new();
    let compression_type = Some(CompressionType::Deflate.into());
    let config = TraceConfig { compression_type, buffers: vec![buffer(8 * 1024)], ..config };
    let producer = world.connect("p");
    world.register(producer, "src");
    let (consumer, session) = world.enable(&config);
    let (names, now) = (vec!["go".to_owned(); num_triggers], world.now);
    assert_eq!(world.service.handle_activate_triggers(producer, &names, &now), num_triggers);
    world.pump();
    let target = world.producers[&producer].target_buffer(0);
    for number in 0..num_packets {
        world.write(producer, 1, target, &[packet(&format!("{number} {}", "z".repeat(2000)))]);
    }
    world.writes_files = false;
    world.disable(consumer);
    let mut file = Vec::new();
    while let Some(action) = world.service.poll_file() {
        match action {
            FileAction::Write(_) => {
                let step = world.service.begin_write(session, &world.now).expect("there is something");
                let written = step.write_to(&mut |slices: &[IoSlice<'_>]| {
                    slices.iter().for_each(|slice| file.extend_from_slice(slice));
                    Ok(())
                });
                world.service.handle_written(written, &world.now);
            }
            _ => world.service.handle_file_done(session, Ok(()), &world.now),
        }
    }
    let mut plain = Vec::new();
    for packet in watershed_wire::reader::packets(&file) {
        watershed_wire::framing::append_packet(&mut plain, &[&packet.expect("it is whole")]);
    }
    (Trace::parse(&plain), file.len(), world.service.file_is_full(session))
}

#[test]
fn files_are_compressed() {
    let (trace, file_bytes, is_full) = compressed(into_file("src"), 0, 1000);
    let numbers = trace.texts().into_iter().map(|text| text.split(' ').next().unwrap().to_owned());
    assert_eq!(numbers.collect::<Vec<_>>(), (0..1000).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(trace.kinds().last(), Some(&"trace_stats"));
    assert!(file_bytes < 100_000 && !is_full, "2 MB of the same letters in {file_bytes} bytes");
}

/// What counts is the size of the file.
#[test]
fn a_size_limit_is_one_of_compressed_bytes() {
    let config = TraceConfig { max_file_size_bytes: Some(20_000), ..into_file("src") };
    let (trace, file_bytes, is_full) = compressed(config, 0, 3000);
    assert!(is_full && (15_000..20_000).contains(&file_bytes), "{file_bytes}");
    assert!(trace.texts().len() > 100, "{} packets of 2 KB", trace.texts().len());
}

/// Packets of the service are emitted once. Where there was no room for one of them nothing may
/// come behind it, although what came before became smaller than was reckoned.
#[test]
fn a_file_without_room_for_a_packet_of_the_service_is_full() {
    let of_size = |max_file_size_bytes| {
        let go = Trigger { name: Some("go".to_owned()), ..Trigger::default() };
        let trigger_config = Some(TriggerConfig {
            trigger_mode: Some(TriggerMode::StartTracing.into()),
            triggers: vec![go],
            trigger_timeout_ms: Some(1000),
            ..TriggerConfig::default()
        });
        let config = TraceConfig { trigger_config, max_file_size_bytes, ..into_file("src") };
        let (trace, _, is_full) = compressed(config, 200, 3);
        let num_triggers = trace.kinds().iter().filter(|kind| **kind == "trigger").count();
        (num_triggers, trace.texts().len(), is_full)
    };
    let (num_triggers, num_texts, is_full) = of_size(Some(3500));
    assert!((1..200).contains(&num_triggers), "{num_triggers}");
    assert_eq!((num_texts, is_full), (0, true));
    assert_eq!(of_size(Some(30_000)), (200, 3, false));
}
