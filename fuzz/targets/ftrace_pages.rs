//! Format files and raw pages of any content: no panic, and what comes out is a valid bundle.
//!
//! ```text
//!   input:  flags | lines of a format file | 0 | edits of 3 bytes, or bytes of pages
//! ```
//!
//! Edits change pages that a kernel wrote, so that the inside of records is reached too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use watershed_probes::testing::PageEncoder;
use watershed_wire::protos::TracePacket;
use watershed_wire::protos::trace_packet::Data;

const SWITCH: (&str, &str) = ("sched", include_str!("../../probes/tests/formats/6.18-x86_64/sched_switch"));
const WAKING: (&str, &str) = ("sched", include_str!("../../probes/tests/formats/6.18-x86_64/sched_waking"));
/// One of them is chosen by an input: to look an event up in the schema takes long.
const OTHERS: [(&str, &str); 4] = [
    ("task", include_str!("../../probes/tests/formats/6.18-x86_64/task_newtask")),
    ("ftrace", include_str!("../../probes/tests/formats/6.18-x86_64/print")),
    ("raw_syscalls", include_str!("../../probes/tests/formats/6.18-x86_64/sys_enter")),
    ("block", include_str!("../../probes/tests/formats/6.18-x86_64/block_io_start")),
];
const RECORDED: &[u8] = include_bytes!("../../probes/tests/pages/6.18-x86_64/lost/pages");
/// Pages that the input brings are small, so that it has several.
const PAGE_SIZE: usize = 256;
/// As many errors of a bundle are written.
const ERRORS_MAX: usize = 16;

fn header_page(commit_size: usize, page_size: usize) -> String {
    let data = 8 + commit_size;
    format!(
        "field: u64 timestamp; offset:0; size:8;\nfield: local_t commit; offset:8; size:{commit_size};\n\
         field: char data; offset:{data}; size:{};\n",
        page_size - data
    )
}

/// The recorded pages with changes: a place and a value each.
fn edited(edits: &[u8]) -> Vec<u8> {
    let mut pages = RECORDED.to_vec();
    for edit in edits.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % pages.len();
        pages[place] = edit[2];
    }
    pages
}

fn check(packet: &[u8]) {
    let packet = TracePacket::decode(packet).expect("the encoder writes messages");
    let Some(Data::FtraceEvents(bundle)) = packet.data else { panic!("no bundle") };
    assert!(bundle.error.len() <= ERRORS_MAX);
    let Some(c) = bundle.compact_sched else { return };
    let switches = c.switch_timestamp.len();
    let columns = [c.switch_prev_state.len(), c.switch_next_pid.len(), c.switch_next_prio.len()];
    assert_eq!((columns, c.switch_next_comm_index.len()), ([switches; 3], switches));
    let wakings = c.waking_timestamp.len();
    let columns = [c.waking_pid.len(), c.waking_target_cpu.len(), c.waking_prio.len()];
    assert_eq!((columns, c.waking_comm_index.len()), ([wakings; 3], wakings));
    assert_eq!(c.waking_common_flags.len(), wakings);
    let names = c.switch_next_comm_index.iter().chain(&c.waking_comm_index);
    assert!(names.into_iter().all(|&index| (index as usize) < c.intern_table.len()));
}

fuzz_target!(|input: &[u8]| {
    let Some((&flags, rest)) = input.split_first() else { return };
    let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
    let (text, rest) = rest.split_at(end);
    let text = String::from_utf8_lossy(text);
    let rest = rest.get(1..).unwrap_or(&[]);
    let is = |bit: u32| flags >> bit & 1 == 0;
    // An event of the kernel that has another format, or an event of its own.
    let name = if is(0) { "sched_switch" } else { "another" };
    let own = format!("name: {name}\nID: 3\nfield:u16 common_type; offset:0; size:2; signed:0;\n{text}");
    let other = OTHERS[usize::from(flags >> 5) % OTHERS.len()];
    let formats = [SWITCH, WAKING, other, ("sched", own.as_str()), ("any", &text)];
    let (pages, header) = if is(3) {
        (edited(rest), header_page(8, 4096))
    } else {
        let mut pages = rest.to_vec();
        pages.resize(rest.len().next_multiple_of(PAGE_SIZE), 0);
        (pages, header_page(if is(4) { 8 } else { 4 }, PAGE_SIZE))
    };
    let mut encoder = PageEncoder::new(&header, &formats, is(1), is(2)).expect("the header is right");
    encoder.encode(0, &pages, &mut check);
    // Whoever wrote the header: it is understood or refused.
    if let Some(mut encoder) = PageEncoder::new(&text, &[], true, true) {
        encoder.encode(0, &pages, &mut check);
    }
});
