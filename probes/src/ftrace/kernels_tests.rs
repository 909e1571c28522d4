//! Kernels that are not this one: formats and pages made by their rules. Words of 4 and 8 bytes,
//! common fields in other places, strings of every kind.

use prost::Message as _;
use watershed_wire::protos::TracePacket;
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::raw::{Fields, Value};

use super::testing::PageEncoder;

/// How a kernel lays out pages and records.
#[derive(Clone, Copy, Debug)]
struct Kernel {
    /// Size of a `long`, and of a page's `commit`.
    word: usize,
    /// Common fields: declaration, size. Values other than the id are their offsets.
    common: &'static [(&'static str, usize)],
}

const USUAL: &[(&str, usize)] = &[
    ("unsigned short common_type", 2),
    ("unsigned char common_flags", 1),
    ("unsigned char common_preempt_count", 1),
    ("int common_pid", 4),
];
/// As with PREEMPT_RT.
const WITH_LAZY_COUNT: &[(&str, usize)] = &[
    ("unsigned short common_type", 2),
    ("unsigned char common_flags", 1),
    ("unsigned char common_preempt_count", 1),
    ("int common_pid", 4),
    ("unsigned char common_preempt_lazy_count", 1),
];
/// As no kernel has it: nothing may be taken for granted.
const PID_BEHIND: &[(&str, usize)] = &[
    ("unsigned short common_type", 2),
    ("unsigned short common_news", 2),
    ("int common_lock_depth", 4),
    ("int common_pid", 4),
    ("unsigned char common_flags", 1),
];
const KERNELS: [Kernel; 6] = [
    Kernel { word: 8, common: USUAL },
    Kernel { word: 4, common: USUAL },
    Kernel { word: 8, common: WITH_LAZY_COUNT },
    Kernel { word: 4, common: WITH_LAZY_COUNT },
    Kernel { word: 8, common: PID_BEHIND },
    Kernel { word: 4, common: PID_BEHIND },
];
const PID: i32 = 4242;
const FLAGS: u8 = 0x10;

/// What a field of a record holds.
enum Field<'a> {
    Number(usize, i64),
    Words(Vec<u64>),
    Text(&'a str, usize),
    DataLoc(&'a [u8]),
    RelLoc(&'a [u8]),
    ToEnd(&'a str),
}

impl Kernel {
    fn header_page(self) -> String {
        let (word, data) = (self.word, 8 + self.word);
        let size = 4096 - data;
        format!(
            "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
             \tfield: local_t commit;\toffset:8;\tsize:{word};\tsigned:1;\n\
             \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
             \tfield: char data;\toffset:{data};\tsize:{size};\tsigned:0;\n"
        )
    }

    /// The format file of an event, and a record of it.
    fn event(self, name: &str, id: u16, fields: &[(&str, Field<'_>)]) -> (String, Vec<u8>) {
        let mut text = format!("name: {name}\nID: {id}\nformat:\n");
        let mut line = |declaration: &str, offset: usize, size: usize, signed: bool| {
            let signed = u8::from(signed);
            text += &format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n");
        };
        let mut record = Vec::new();
        for &(declaration, size) in self.common {
            record.resize(record.len().next_multiple_of(size), 0);
            line(declaration, record.len(), size, declaration.starts_with("int"));
            let value = match declaration.split(' ').next_back() {
                Some("common_type") => i64::from(id),
                Some("common_pid") => i64::from(PID),
                Some("common_flags") => i64::from(FLAGS),
                _ => 0x77,
            };
            record.extend(&value.to_le_bytes()[..size]);
        }
        // A struct's fields begin where its longest common field may.
        record.resize(record.len().next_multiple_of(4), 0);
        let mut behind: Vec<(usize, usize, &[u8])> = Vec::new();
        for (declaration, field) in fields {
            let (size, align) = match field {
                Field::Number(size, _) => (*size, *size),
                Field::Words(words) => (self.word * words.len(), self.word),
                Field::Text(_, size) => (*size, 1),
                Field::DataLoc(_) | Field::RelLoc(_) => (4, 4),
                Field::ToEnd(_) => (0, 1),
            };
            record.resize(record.len().next_multiple_of(align), 0xEE);
            let offset = record.len();
            line(declaration, offset, size, !declaration.contains("unsigned"));
            record.resize(offset + size, 0);
            match field {
                Field::Number(size, value) => record[offset..].copy_from_slice(&value.to_le_bytes()[..*size]),
                Field::Words(words) => {
                    for (word, bytes) in words.iter().zip(record[offset..].chunks_mut(self.word)) {
                        bytes.copy_from_slice(&word.to_le_bytes()[..self.word]);
                    }
                }
                Field::Text(text, _) => record[offset..offset + text.len()].copy_from_slice(text.as_bytes()),
                Field::DataLoc(bytes) => behind.push((offset, 0, bytes)),
                Field::RelLoc(bytes) => behind.push((offset, offset + 4, bytes)),
                Field::ToEnd(text) => record.extend(text.bytes().chain([0])),
            }
        }
        for (offset, base, bytes) in behind {
            let loc = (bytes.len() << 16 | (record.len() - base)) as u32;
            record[offset..offset + 4].copy_from_slice(&loc.to_le_bytes());
            record.extend(bytes);
        }
        record.resize(record.len().next_multiple_of(4), 0);
        (text, record)
    }

    /// A page. `lost` is the number of events that are missing before it, if some are: `Some(None)`
    /// if the kernel does not say how many.
    fn page(self, timestamp_ns: u64, lost: Option<Option<u64>>, data: &[u8]) -> Vec<u8> {
        let flags = match lost {
            None => 0,
            Some(None) => 1 << 31,
            Some(Some(_)) => 3 << 30,
        };
        let mut page = timestamp_ns.to_le_bytes().to_vec();
        page.extend(&(u64::from(flags | data.len() as u32)).to_le_bytes()[..self.word]);
        page.extend(data);
        page.extend(lost.flatten().unwrap_or(0).to_le_bytes());
        page.resize(4096, 0);
        page
    }
}

/// A record with its header, so long after the one before.
fn after(delta_ns: u32, record: &[u8]) -> Vec<u8> {
    let mut bytes = match record.len() / 4 {
        words @ 1..=28 => (delta_ns << 5 | words as u32).to_le_bytes().to_vec(),
        _ => [(delta_ns << 5).to_le_bytes(), (record.len() as u32 + 4).to_le_bytes()].concat(),
    };
    bytes.extend(record);
    bytes
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn encode(kernel: Kernel, formats: &[(&str, &str)], compact: bool, pages: &[u8]) -> Vec<Vec<u8>> {
    let mut encoder = PageEncoder::new(&kernel.header_page(), formats, compact, true).unwrap();
    let mut packets = Vec::new();
    encoder.encode(3, pages, &mut |packet| packets.push(packet.to_vec()));
    packets
}

fn bundle(packet: &[u8]) -> watershed_wire::protos::FtraceEventBundle {
    match TracePacket::decode(packet).unwrap().data {
        Some(Data::FtraceEvents(bundle)) => bundle,
        other => panic!("{other:?}"),
    }
}

/// The fields of a message, by number.
fn fields(message: &[u8]) -> Vec<(u32, Value<'_>)> {
    Fields::new(message).map(Result::unwrap).map(|field| (field.number, field.value)).collect()
}

fn bytes_of<'a>(fields: &[(u32, Value<'a>)], number: u32) -> Vec<&'a [u8]> {
    fields.iter().filter(|(n, _)| *n == number).map(|(_, value)| value.bytes().unwrap()).collect()
}

/// Number, thread and message of a bundle's only event.
fn only_event(packet: &[u8]) -> (u32, u64, Vec<(u32, Value<'_>)>) {
    let bundle = fields(bytes_of(&fields(packet), 1)[0]);
    let events = bytes_of(&bundle, 2);
    assert_eq!(events.len(), 1);
    let event = fields(events[0]);
    let [(1, _), (2, pid), (number, message)] = event[..] else { panic!("{event:?}") };
    (number, pid.varint().unwrap(), fields(message.bytes().unwrap()))
}

fn switch(kernel: Kernel, state: i64) -> (String, Vec<u8>) {
    use Field::{Number, Text};
    let fields = [
        ("char prev_comm[16]", Text("before", 16)),
        ("pid_t prev_pid", Number(4, 1)),
        ("int prev_prio", Number(4, 120)),
        ("long prev_state", Number(kernel.word, state)),
        ("char next_comm[16]", Text("exactly16bytes..", 16)),
        ("pid_t next_pid", Number(4, 70_000)),
        ("int next_prio", Number(4, -1)),
    ];
    kernel.event("sched_switch", 47, &fields)
}

fn waking(kernel: Kernel) -> (String, Vec<u8>) {
    use Field::{Number, Text};
    let fields = [
        ("char comm[16]", Text("woken", 16)),
        ("pid_t pid", Number(4, 70_001)),
        ("int prio", Number(4, 99)),
        ("int success", Number(4, 1)),
        ("int target_cpu", Number(4, 5)),
    ];
    kernel.event("sched_waking", 48, &fields)
}

#[test]
fn scheduling_is_compact_on_every_kernel() {
    for kernel in KERNELS {
        let ((format, record), (waking_format, woken)) = (switch(kernel, -1), waking(kernel));
        let formats = [("sched", format.as_str()), ("sched", &waking_format)];
        let data = [after(7, &record), after(8, &woken), after(9, &record)].concat();
        let packets = encode(kernel, &formats, true, &kernel.page(1_000, None, &data));
        let compact = bundle(&packets[0]).compact_sched.unwrap();
        assert_eq!(compact.switch_timestamp, [1_007, 17], "{kernel:?}");
        assert_eq!(compact.switch_prev_state, [-1, -1], "{kernel:?}");
        assert_eq!(compact.switch_next_pid, [70_000, 70_000]);
        assert_eq!(compact.switch_next_prio, [-1, -1]);
        assert_eq!(compact.intern_table, ["exactly16bytes..", "woken"]);
        assert_eq!((compact.waking_timestamp, compact.waking_pid), (vec![1_015], vec![70_001]));
        assert_eq!((compact.waking_target_cpu, compact.waking_prio), (vec![5], vec![99]));
        assert_eq!(compact.waking_common_flags, [u32::from(FLAGS)], "{kernel:?}");
    }
}

#[test]
fn scheduling_is_compact_only_if_both_events_can_be() {
    let kernel = KERNELS[0];
    let ((format, record), (waking_format, _)) = (switch(kernel, 2), waking(kernel));
    let other_waking = waking_format.replace("target_cpu", "cpu");
    let page = kernel.page(1, None, &after(1, &record));
    for formats in [vec![("sched", format.as_str())], vec![("sched", &format), ("sched", &other_waking)]] {
        let packets = encode(kernel, &formats, true, &page);
        assert_eq!(bundle(&packets[0]).compact_sched, None);
        let (number, pid, _) = only_event(&packets[0]);
        assert_eq!((number, pid), (4, PID as u64), "sched_switch has a message too");
    }
}

#[test]
fn strings_of_every_kind() {
    use Field::{DataLoc, Number, RelLoc, ToEnd};
    for kernel in KERNELS {
        let all = [
            ("__data_loc char[] name", DataLoc(b"data\0")),
            ("__rel_loc char[] path", RelLoc(b"/rel\0")),
            ("__rel_loc u8[] raw", RelLoc(&[0, 1, 0])),
            ("__data_loc unsigned char[] empty", DataLoc(&[])),
            ("int x[2]", Number(8, 9)),
            ("short small", Number(2, -2)),
            ("unsigned long word", Number(kernel.word, 3)),
        ];
        let (format, record) = kernel.event("thing", 300, &all);
        let packets = encode(kernel, &[("own", &format)], true, &kernel.page(1, None, &after(1, &record)));
        let (_, pid, message) = only_event(&packets[0]);
        assert_eq!(pid, PID as u64, "{kernel:?}");
        let [(1, name), (2, path), (3, raw), (4, empty), (5, small), (6, word)] = message[..] else {
            panic!("{kernel:?}: {message:?}")
        };
        let texts = [name, path, raw, empty].map(|value| value.bytes().unwrap());
        assert_eq!(texts, [&b"data"[..], b"/rel", &[0, 1, 0], b""], "{kernel:?}");
        assert_eq!((small.varint(), word.varint()), (Some(-2_i64 as u64), Some(3)), "{kernel:?}");

        let print = [("unsigned long ip", Number(kernel.word, 0)), ("char buf[]", ToEnd("B|1|draw\n"))];
        let (format, record) = kernel.event("print", 5, &print);
        let packets = encode(kernel, &[("ftrace", &format)], true, &kernel.page(1, None, &after(1, &record)));
        let (number, _, message) = only_event(&packets[0]);
        assert_eq!((number, message[1].0, message[1].1.bytes()), (3, 2, Some(&b"B|1|draw\n"[..])));
    }
}

#[test]
fn arguments_of_system_calls_are_words() {
    use Field::{Number, Words};
    for kernel in KERNELS {
        let all = [
            ("long id", Number(kernel.word, 39)),
            ("unsigned long args[6]", Words(vec![1, 2, 3, 4, 5, 0xFFFF_FFFF])),
        ];
        let (format, record) = kernel.event("sys_enter", 17, &all);
        let page = kernel.page(1, None, &after(1, &record));
        let packets = encode(kernel, &[("raw_syscalls", &format)], true, &page);
        let (number, _, message) = only_event(&packets[0]);
        let args: Vec<_> =
            message.iter().filter(|(n, _)| *n == 2).map(|(_, v)| v.varint().unwrap()).collect();
        assert_eq!((number, args), (329, vec![1, 2, 3, 4, 5, 0xFFFF_FFFF]), "{kernel:?}");
    }
}

#[test]
fn work_that_was_put_off_has_its_function() {
    use Field::{DataLoc, Number};
    for kernel in KERNELS {
        let all = [
            ("void * work", Number(kernel.word, -0x1000)),
            ("void * function", Number(kernel.word, -0x800)),
            ("__data_loc char[] workqueue", DataLoc(b"events\0")),
            ("int req_cpu", Number(4, -1)),
            ("int cpu", Number(4, 3)),
        ];
        let (format, record) = kernel.event("workqueue_queue_work", 90, &all);
        let page = kernel.page(1, None, &after(1, &record));
        let packets = encode(kernel, &[("workqueue", &format)], true, &page);
        let (number, _, message) = only_event(&packets[0]);
        let values = message.iter().map(|(number, value)| (*number, value.varint()));
        // The trace has numbers instead of addresses.
        let expected = [(1, Some(1)), (2, Some(2)), (6, None), (4, Some(u64::MAX)), (5, Some(3))];
        assert_eq!((number, values.collect()), (59, expected.to_vec()), "{kernel:?}");
        assert_eq!(message[2].1.bytes(), Some(&b"events"[..]), "{kernel:?}");
    }
}

#[test]
fn every_kind_of_record_and_page() {
    for kernel in KERNELS {
        let ((format, record), (waking_format, _)) = (switch(kernel, 2), waking(kernel));
        let formats = [("sched", format.as_str()), ("sched", &waking_format)];
        // A time extend, padding of 12 bytes, and a stamp that is absolute.
        let extend = words(&[5 << 5 | 30, 1]);
        let padding = words(&[3 << 5 | 29, 12, 0, 0]);
        let stamp = words(&[100 << 5 | 31, 4]);
        let data = [extend, after(1, &record), padding, after(1, &record), stamp, after(1, &record)].concat();
        let pages = [
            kernel.page(1_000, None, &data),
            kernel.page(900_000_000, Some(None), &after(1, &record)),
            kernel.page(900_001_000, Some(Some(17)), &after(1, &record)),
            kernel.page(900_002_000, None, &after(1, &record)),
        ];
        let packets = encode(kernel, &formats, true, &pages.concat());
        let bundles: Vec<_> = packets.iter().map(|packet| bundle(packet)).collect();
        assert!(bundles.iter().all(|bundle| bundle.error.is_empty()), "{kernel:?}: {bundles:?}");
        let lost: Vec<_> = bundles.iter().map(|bundle| bundle.lost_events()).collect();
        assert_eq!(lost, [false, true, true], "{kernel:?}");
        let times: Vec<_> =
            bundles.iter().map(|b| b.compact_sched.as_ref().unwrap().switch_timestamp.clone()).collect();
        let (first, stamped) = (1_000 + 5 + (1 << 27) + 1, 100 + (4 << 27) + 1);
        let deltas = vec![first, 4, stamped - first - 4];
        assert_eq!(times, [deltas, vec![900_000_001], vec![900_001_001, 1_000]], "{kernel:?}");
    }
}
