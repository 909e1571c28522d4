//! The schema at run time is the schema of the structs.

use prost::Message as _;
use prost_reflect::{DynamicMessage, Value};
use watershed_wire::{packet, protos, schema};

#[test]
fn descriptors_and_structs_agree() {
    let stats =
        protos::TraceStats { producers_seen: Some(3), final_flush_outcome: Some(1), ..Default::default() };
    let descriptor = schema::message("TraceStats").unwrap();
    let dynamic = DynamicMessage::decode(descriptor, stats.encode_to_vec().as_slice()).unwrap();
    let field = |name| dynamic.get_field_by_name(name).unwrap().into_owned();
    assert_eq!(field("producers_seen"), Value::U64(3));
    assert_eq!(field("final_flush_outcome"), Value::EnumNumber(1));
}

#[test]
fn messages_by_name() {
    assert!(schema::message("TraceConfig.BufferConfig").is_some());
    assert!(schema::message("IPCFrame").is_some());
    assert!(schema::message("NoSuchMessage").is_none());
}

/// Clients with method ids built in rely on these numbers.
#[test]
fn methods_of_the_ports_are_in_order() {
    let pool = schema::descriptor_pool();
    let methods = |service: &str| -> Vec<String> {
        let service = pool.get_service_by_name(&format!("perfetto.protos.{service}")).unwrap();
        service.methods().map(|method| method.name().to_owned()).collect()
    };
    let producer = methods("ProducerPort");
    assert_eq!(producer.len(), 12);
    assert_eq!(
        (&producer[3][..], &producer[4][..], &producer[11][..]),
        ("CommitData", "GetAsyncCommand", "UpdateDataSource")
    );
    let consumer = methods("ConsumerPort");
    assert_eq!(consumer.len(), 15);
    assert_eq!(
        (&consumer[0][..], &consumer[2][..], &consumer[14][..]),
        ("EnableTracing", "ReadBuffers", "CloneSession")
    );
}

#[test]
fn payloads_have_the_names_of_the_format() {
    assert_eq!(packet::payload_name(7), Some("sys_stats"));
    assert_eq!(packet::payload_name(900), Some("for_testing"));
    assert_eq!(packet::payload_name(3), None, "trusted_uid is envelope");
    assert_eq!(packet::payload_name(12), None, "interned_data comes beside a payload");
    assert_eq!(packet::payload_name(u32::MAX), None);
}
