//! Formats of a kernel against the schema, and records against both.

use std::collections::HashMap;

use super::*;
use prost_reflect::{DynamicMessage, Value};

fn format(name: &str) -> EventFormat {
    let path = format!("{}/tests/formats/6.18-x86_64/{name}", env!("CARGO_MANIFEST_DIR"));
    EventFormat::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[derive(Default)]
struct Addresses(HashMap<u64, Vec<u8>>);

impl Lookup for Addresses {
    fn symbol_number(&mut self, address: u64) -> u64 {
        address + 1
    }

    fn object_number(&self, address: u64) -> u64 {
        address + 2
    }

    fn text_at(&self, address: u64) -> &[u8] {
        self.0.get(&address).map_or(&[], Vec::as_slice)
    }
}

fn written(plan: &Plan, record: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(plan.write(record, &mut Addresses(HashMap::from([(7, b"suspend".to_vec())])), &mut out));
    out
}

fn typed(name: &str, record: &[u8]) -> DynamicMessage {
    let plan = Plan::typed(&format(name)).unwrap();
    let (_, message) = typed_message(name).unwrap();
    DynamicMessage::decode(message, &written(&plan, record)[..]).unwrap()
}

fn field(message: &DynamicMessage, name: &str) -> Value {
    message.get_field_by_name(name).unwrap().into_owned()
}

#[test]
fn a_new_task() {
    let mut record = vec![0; 44];
    record[8..12].copy_from_slice(&4242_i32.to_le_bytes());
    record[12..16].copy_from_slice(b"make");
    record[32..40].copy_from_slice(&0x10000_u64.to_le_bytes());
    record[40..42].copy_from_slice(&(-17_i16).to_le_bytes());
    let message = typed("task_newtask", &record);
    assert_eq!(field(&message, "pid"), Value::I32(4242));
    assert_eq!(field(&message, "comm"), Value::String("make".into()));
    assert_eq!(field(&message, "clone_flags"), Value::U64(0x10000));
    assert_eq!(field(&message, "oom_score_adj"), Value::I32(-17));
}

#[test]
fn texts_behind_addresses_and_in_the_record() {
    let mut record = vec![0; 24];
    record[8] = 7;
    record[16..20].copy_from_slice(&3_i32.to_le_bytes());
    record[20] = 1;
    let message = typed("suspend_resume", &record);
    assert_eq!(field(&message, "action"), Value::String("suspend".into()));
    assert_eq!(field(&message, "start"), Value::U32(1));
    let message = typed("print", b"\x05\0\0\0\x01\0\0\0\x11\0\0\0\0\0\0\0hello\n\0\0");
    assert_eq!(field(&message, "buf"), Value::String("hello\n".into()));
}

#[test]
fn device_and_command_of_a_block_request() {
    let format = format("block_io_start");
    let mut record = vec![0; 64];
    record[8..12].copy_from_slice(&(8_u32 << 20 | 1).to_le_bytes());
    record[60..64].copy_from_slice(&(4_u32 << 16 | 64).to_le_bytes());
    record.extend(b"abc\0");
    let message = typed("block_io_start", &record);
    assert_eq!(field(&message, "dev"), Value::U64(0x801));
    assert_eq!(field(&message, "cmd"), Value::String("abc".into()));
    record[62] = 5;
    let plan = Plan::typed(&format).unwrap();
    assert!(!plan.write(&record, &mut Addresses::default(), &mut Vec::new()), "a text outside of the record");
    assert_eq!(plan.size_min, 64);
}

#[test]
fn arguments_of_a_system_call() {
    let mut record = vec![0; 64];
    record[8] = 3;
    for number in 0..6 {
        record[16 + number * 8] = number as u8 + 10;
    }
    let message = typed("sys_enter", &record);
    let args: Vec<_> = (10..16).map(Value::U64).collect();
    assert_eq!(field(&message, "args"), Value::List(args));
}

#[test]
fn numbers_of_another_sign_or_width() {
    let text = "name: mm_vmscan_direct_reclaim_begin\nID: 3\n\
                \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
                \tfield:unsigned long gfp_flags;\toffset:8;\tsize:8;\tsigned:0;\n\
                \tfield:unsigned int order;\toffset:16;\tsize:4;\tsigned:0;\n\
                \tfield:long may_writepage;\toffset:24;\tsize:8;\tsigned:1;\n";
    let plan = Plan::typed(&EventFormat::parse(text).unwrap()).unwrap();
    let message = |gfp_flags: u64| {
        let mut record = vec![0; 32];
        record[8..16].copy_from_slice(&gfp_flags.to_le_bytes());
        record[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        record[24] = 1;
        let of_type = schema::message("MmVmscanDirectReclaimBeginFtraceEvent").unwrap();
        DynamicMessage::decode(of_type, &written(&plan, &record)[..]).unwrap()
    };
    let fits = message(0xFFFF_FFFF);
    assert_eq!(field(&fits, "gfp_flags"), Value::U32(0xFFFF_FFFF));
    assert_eq!(field(&fits, "order"), Value::I32(-1));
    assert!(!fits.has_field_by_name("may_writepage"), "it may have more than the field's bits");
    assert!(!message(0x1_0000_0000).has_field_by_name("gfp_flags"), "it has more");
}

#[test]
fn what_the_schema_has_no_message_for() {
    assert!(is_typed("sched", "sched_switch") && !is_typed("other", "sched_switch"));
    assert!(!is_typed("sched", "generic") && !is_typed("sched", "pid") && !is_typed("timer", "tick_stop"));
    assert!(is_typed("ftrace", "print") && !is_typed("ftrace", "sched_switch"));
}

#[test]
fn an_event_that_describes_itself() {
    let format = format("suspend_resume");
    let plan = Plan::generic("power", &format, Generic::Described(65_540)).unwrap();
    let descriptor = plan.descriptor.clone().unwrap();
    let name = b"suspend_resume";
    assert!(descriptor.windows(name.len()).any(|w| w == name));
    let mut record = vec![0; 24];
    (record[8], record[16]) = (7, 3);
    let mut expected = Vec::new();
    put_bytes(&mut expected, 1, b"suspend");
    put_number(&mut expected, 2, 3);
    put_number(&mut expected, 3, 0);
    assert_eq!(written(&plan, &record), expected);
    assert!(Plan::generic("power", &format, Generic::Described(GENERIC_LAST + 1)).is_none());
}

#[test]
fn an_event_with_its_names_in_clear() {
    let plan = Plan::generic("power", &format("suspend_resume"), Generic::Legacy).unwrap();
    assert_eq!(plan.number, LEGACY_GENERIC);
    let message = schema::message("GenericFtraceEvent").unwrap();
    let mut record = vec![0; 24];
    (record[8], record[16]) = (7, 3);
    let message = DynamicMessage::decode(message, &written(&plan, &record)[..]).unwrap();
    assert_eq!(field(&message, "event_name"), Value::String("suspend_resume".into()));
    let Value::List(fields) = field(&message, "field") else { panic!() };
    let of = |number: usize, name: &str| {
        let Value::Message(field) = &fields[number] else { panic!() };
        field.get_field_by_name(name).unwrap().into_owned()
    };
    assert_eq!(
        (of(0, "name"), of(0, "str_value")),
        (Value::String("action".into()), Value::String("suspend".into()))
    );
    assert_eq!((of(1, "name"), of(1, "int_value")), (Value::String("val".into()), Value::I64(3)));
}
