//! Names, numbers and types of our messages, against the other schema.
//!
//! That one is older than the version we follow: what it does not have is passed over, and what has
//! changed since is listed here.

use std::collections::{BTreeMap, BTreeSet};

use prost_reflect::{Cardinality, FieldDescriptor, Kind};
use protobuf::reflect::{FileDescriptor, MessageDescriptor, RuntimeFieldType, RuntimeType};
use watershed_wire::schema;

/// Fields whose type or name has changed since: ours, and the older form.
const CHANGED_SINCE: &[(&str, &str)] = &[
    // A bit set of reasons has replaced a boolean; the encodings agree on what both can
    // say.
    ("TracePacket.previous_packet_dropped = 42: uint32", "previous_packet_dropped = 42: bool"),
    // Thread ids have become wider.
    ("ThreadDescriptor.tid = 2: int64", "tid = 2: int32"),
    // -1 says that no CPU was asked for.
    ("WorkqueueQueueWorkFtraceEvent.req_cpu = 4: int32", "req_cpu = 4: uint32"),
    ("WorkqueueQueueWorkFtraceEvent.cpu = 5: int32", "cpu = 5: uint32"),
    // Kept as bytes here, which encode alike.
    ("ExtensionDescriptor.extension_set = 1: bytes", "extension_set = 1: FileDescriptorSet"),
];

/// Values of enums that have another name since: ours, and the older one.
const RENAMED_SINCE: &[(&str, &str)] = &[(
    "ATOM_CERTIFICATE_TRANSPARENCY_LOG_LIST_UPDATE_STATE_CHANGED",
    "ATOM_CERTIFICATE_TRANSPARENCY_LOG_LIST_UPDATE_FAILED",
)];

/// All messages of the other schema, by full name.
fn their_messages() -> BTreeMap<String, MessageDescriptor> {
    let mut messages = BTreeMap::new();
    let mut files = vec![perfetto_protos::trace::file_descriptor().clone()];
    let mut seen: Vec<String> = Vec::new();
    while let Some(file) = files.pop() {
        if seen.iter().any(|name| name == file.name()) {
            continue;
        }
        seen.push(file.name().to_owned());
        files.extend(FileDescriptor::deps(&file).iter().cloned());
        let mut open: Vec<MessageDescriptor> = file.messages().collect();
        while let Some(message) = open.pop() {
            open.extend(message.nested_messages());
            messages.insert(message.full_name().to_owned(), message);
        }
    }
    messages
}

/// `name = number: type`, as the format writes it.
fn our_field(field: &FieldDescriptor) -> String {
    let kind = match field.kind() {
        Kind::Message(message) => message.name().to_owned(),
        Kind::Enum(descriptor) => descriptor.name().to_owned(),
        kind => format!("{kind:?}"),
    };
    let repeated = match field.cardinality() {
        Cardinality::Repeated => "repeated ",
        _ => "",
    };
    format!("{} = {}: {repeated}{kind}", field.name(), field.number())
}

fn their_field(field: &protobuf::reflect::FieldDescriptor) -> String {
    let (repeated, kind) = match field.runtime_field_type() {
        RuntimeFieldType::Singular(kind) => ("", kind),
        RuntimeFieldType::Repeated(kind) => ("repeated ", kind),
        RuntimeFieldType::Map(..) => panic!("the format has no maps"),
    };
    // `int32`, `sint32` and `sfixed32` are one type at run time: the declared one counts.
    let declared = format!("{:?}", field.proto().type_()).trim_start_matches("TYPE_").to_lowercase();
    let kind = match kind {
        RuntimeType::Message(message) => message.name().to_owned(),
        RuntimeType::Enum(descriptor) => descriptor.name().to_owned(),
        _ => declared,
    };
    format!("{} = {}: {repeated}{kind}", field.name(), field.number())
}

#[test]
fn fields_agree() {
    let theirs = their_messages();
    let mut compared = 0;
    let mut differences = Vec::new();
    let mut changes = 0;
    for message in schema::descriptor_pool().all_messages() {
        let Some(their_message) = theirs.get(message.full_name()) else {
            continue;
        };
        for field in message.fields() {
            let Some(their_field_) = their_message.field_by_number(field.number()) else {
                continue;
            };
            compared += 1;
            let (ours, their) = (our_field(&field), their_field(&their_field_));
            let changed = (format!("{}.{ours}", message.name()), their.clone());
            let known = CHANGED_SINCE.iter().any(|(new, old)| *new == changed.0 && *old == changed.1);
            changes += usize::from(known);
            if ours != their && !known {
                differences.push(format!("{}: {ours} <> {their}", message.full_name()));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
    assert_eq!(changes, CHANGED_SINCE.len(), "an exception that is none any more");
    // Neither schema shrinks: fewer would mean that the comparison has gone blind.
    assert!(compared > 700, "only {compared} fields were compared");
}

#[test]
fn enum_values_agree() {
    let theirs = their_messages();
    let mut compared = 0;
    let mut differences: Vec<String> = Vec::new();
    let mut renamed = BTreeSet::new();
    for message in schema::descriptor_pool().all_messages() {
        let Some(their_message) = theirs.get(message.full_name()) else {
            continue;
        };
        for field in message.fields() {
            let Kind::Enum(ours) = field.kind() else {
                continue;
            };
            let Some(their_field) = their_message.field_by_number(field.number()) else {
                continue;
            };
            let (RuntimeFieldType::Singular(RuntimeType::Enum(their))
            | RuntimeFieldType::Repeated(RuntimeType::Enum(their))) = their_field.runtime_field_type()
            else {
                panic!("{} is an enum only here", field.full_name());
            };
            for value in ours.values() {
                let Some(their_value) = their.value_by_number(value.number()) else { continue };
                let names = (value.name(), their_value.name());
                compared += 1;
                if RENAMED_SINCE.contains(&names) {
                    renamed.insert(value.name().to_owned());
                } else if names.0 != names.1 {
                    differences.push(format!("{}: {names:?}", ours.full_name()));
                }
            }
        }
    }
    assert_eq!(differences, [""; 0]);
    // An enum is met in each field that has it.
    assert_eq!(renamed.len(), RENAMED_SINCE.len(), "an exception that is none any more");
    assert!(compared > 200, "only {compared} values were compared");
}
