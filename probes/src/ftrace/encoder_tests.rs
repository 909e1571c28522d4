//! Pages in, bundles out.

use super::*;
use crate::ftrace::format::EventFormat;
use crate::ftrace::plan::Generic;
use crate::ftrace::symbols::Symbols;
use prost::Message as _;
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{FtraceEventBundle, TracePacket};

const SWITCH: u16 = 372;
const NEWTASK: u16 = 205;

fn format(name: &str) -> EventFormat {
    let path = format!("{}/tests/formats/6.18-x86_64/{name}", env!("CARGO_MANIFEST_DIR"));
    EventFormat::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn layout() -> PageLayout {
    let text = "field: u64 timestamp; offset:0; size:8;\nfield: local_t commit; offset:8; size:8;\n\
                field: char data; offset:16; size:4080;\n";
    PageLayout::parse(text).unwrap()
}

fn switch(next: i32, name: &str) -> Vec<u8> {
    let mut record = vec![0; 64];
    record[..2].copy_from_slice(&SWITCH.to_le_bytes());
    record[40..40 + name.len()].copy_from_slice(name.as_bytes());
    record[56..60].copy_from_slice(&next.to_le_bytes());
    record
}

fn newtask(current: i32, pid: i32) -> Vec<u8> {
    let mut record = vec![0; 44];
    record[..2].copy_from_slice(&NEWTASK.to_le_bytes());
    record[4..8].copy_from_slice(&current.to_le_bytes());
    record[8..12].copy_from_slice(&pid.to_le_bytes());
    record
}

/// A page whose records are 10 ns apart.
fn page(timestamp_ns: u64, lost: bool, records: &[Vec<u8>]) -> Vec<u8> {
    let mut data = Vec::new();
    for record in records {
        data.extend((10_u32 << 5 | (record.len() / 4) as u32).to_le_bytes());
        data.extend(record);
    }
    let mut page = timestamp_ns.to_le_bytes().to_vec();
    page.extend((data.len() as u64 | u64::from(lost) << 31).to_le_bytes());
    page.extend(data);
    page.resize(4096, 0);
    page
}

fn encoder(tids: Option<&[i32]>) -> Encoder {
    let mut choice = Choice { common_pid: 4, ..Choice::default() };
    choice.add(SWITCH, Action::Switch(SwitchFormat::new(&format("sched_switch")).unwrap()), Role::Plain);
    let plan = Plan::typed(&format("task_newtask")).unwrap();
    choice.add(NEWTASK, Action::Message(Arc::new(plan)), Role::Plain);
    choice.tids = tids.map(|tids| tids.iter().copied().collect());
    Encoder::new(choice, Addresses::default())
}

fn encode(encoder: &mut Encoder, pages: &[Vec<u8>]) -> Vec<FtraceEventBundle> {
    let mut bundles = Vec::new();
    let pages = pages.iter().map(Vec::as_slice);
    encoder.encode(
        1,
        pages,
        layout(),
        BundleClock::default(),
        &mut |packet| match TracePacket::decode(packet).unwrap().data {
            Some(Data::FtraceEvents(bundle)) => bundles.push(bundle),
            other => panic!("{other:?}"),
        },
    );
    bundles
}

#[test]
fn one_bundle_for_pages_that_come_together() {
    let mut encoder = encoder(None);
    let unknown = vec![9, 9, 0, 0];
    let pages = [
        page(1_000, false, &[switch(5, "a"), unknown, newtask(5, 77)]),
        page(2_000, false, &[switch(0, "idle")]),
    ];
    let bundles = encode(&mut encoder, &pages);
    let [bundle] = &bundles[..] else { panic!("{bundles:?}") };
    assert_eq!((bundle.cpu(), bundle.previous_bundle_end_timestamp, bundle.lost_events), (1, Some(0), None));
    let compact = bundle.compact_sched.as_ref().unwrap();
    assert_eq!(compact.switch_timestamp, [1_010, 1_000]);
    assert_eq!(compact.switch_next_pid, [5, 0]);
    assert_eq!(encoder.pids.take().1, [5, 77]);
    let next = encode(&mut encoder, &[page(3_000, false, &[switch(5, "a")])]);
    assert_eq!(next[0].previous_bundle_end_timestamp, Some(2_010));
}

#[test]
fn a_loss_begins_a_bundle() {
    let pages = [page(1_000, false, &[switch(5, "a")]), page(2_000, true, &[vec![9, 9, 0, 0]])];
    let bundles = encode(&mut encoder(None), &pages);
    assert_eq!(bundles.iter().map(|b| b.lost_events()).collect::<Vec<_>>(), [false, true]);
    assert_eq!(bundles[1].compact_sched, None, "said although nothing of the page is wanted");
}

#[test]
fn pages_without_wanted_events_make_no_packet() {
    assert_eq!(encode(&mut encoder(None), &[page(1, false, &[vec![9, 9, 0, 0]])]), []);
    let mut of_one_thread = encoder(Some(&[77]));
    let pages = [page(1, false, &[newtask(5, 6)]), page(2, false, &[newtask(5, 77), newtask(77, 6)])];
    assert_eq!(encode(&mut of_one_thread, &pages[..1]), []);
    let mut size = 0;
    of_one_thread.encode(0, pages.iter().map(Vec::as_slice), layout(), BundleClock::default(), &mut |p| {
        size = p.len()
    });
    let mut all = 0;
    encoder(None)
        .encode(0, pages.iter().map(Vec::as_slice), layout(), BundleClock::default(), &mut |p| all = p.len());
    assert!(size > 0 && size < all);
}

#[test]
fn a_broken_page_costs_only_itself() {
    let mut broken = page(2_000, false, &[switch(6, "b")]);
    broken[8..12].copy_from_slice(&72_u32.to_le_bytes());
    let mut short = page(4_000, false, &[switch(8, "d")[..40].to_vec()]);
    short.truncate(4096);
    let pages = [page(1_000, false, &[switch(5, "a")]), broken, short, page(3_000, false, &[switch(7, "c")])];
    let mut encoder = encoder(None);
    let bundles = encode(&mut encoder, &pages);
    let errors: Vec<_> = bundles[0].error.iter().map(|e| (e.timestamp(), e.status() as i32)).collect();
    assert_eq!(errors, [(2_000, 11), (4_000, 16)]);
    assert_eq!(bundles[0].compact_sched.as_ref().unwrap().switch_next_pid, [5, 6, 7]);
    assert_eq!(encoder.parse_errors.iter().copied().collect::<Vec<_>>(), [11, 16]);
    let bundles = encode(&mut encoder, &[vec![0; 4096]]);
    assert_eq!(bundles[0].error.len(), 1, "an empty page");
}

#[test]
fn descriptors_are_in_each_bundle_that_needs_them() {
    let mut choice = Choice { common_pid: 4, ..Choice::default() };
    let plan = Plan::generic("task", &format("task_newtask"), Generic::Described(65_536)).unwrap();
    choice.add(NEWTASK, Action::Message(Arc::new(plan)), Role::Plain);
    let mut encoder = Encoder::new(choice, Addresses::default());
    let pages = [page(1, false, &[newtask(1, 2), newtask(1, 3)]), page(2, true, &[newtask(1, 4)])];
    let bundles = encode(&mut encoder, &pages);
    let descriptors: Vec<_> = bundles.iter().map(|b| b.generic_event_descriptors.len()).collect();
    assert_eq!(descriptors, [1, 1]);
    assert_eq!(bundles[0].generic_event_descriptors[0].group_name(), "task");
}

#[test]
fn names_of_addresses_come_with_the_first_packet_that_needs_them() {
    let text = "name: caller\nID: 3\n\tfield:u16 common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
                \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
                \tfield:void * caller;\toffset:8;\tsize:8;\tsigned:0;\n";
    let mut choice = Choice { common_pid: 4, ..Choice::default() };
    let plan = Plan::generic("g", &EventFormat::parse(text).unwrap(), Generic::Described(65_536)).unwrap();
    choice.add(3, Action::Message(Arc::new(plan)), Role::Plain);
    let symbols = Symbols::parse("0000000000001000 T first\n0000000000002000 T second\n").unwrap();
    let mut encoder = Encoder::new(choice, Addresses::new(Some(Arc::new(symbols)), Arc::default()));
    let record = |address: u64| [&[3, 0, 0, 0, 1, 0, 0, 0][..], &address.to_le_bytes()].concat();
    let pages = [page(1, false, &[record(0x1004), record(0x1004)]), page(2, true, &[record(0x2000)])];
    let mut packets = Vec::new();
    let mut run = |encoder: &mut Encoder| {
        encoder.encode(0, pages.iter().map(Vec::as_slice), layout(), BundleClock::default(), &mut |packet| {
            packets.push(TracePacket::decode(packet).unwrap());
        });
        encoder.end_of_pass();
        std::mem::take(&mut packets)
    };
    for _ in 0..2 {
        let packets = run(&mut encoder);
        let names: Vec<_> = packets
            .iter()
            .flat_map(|p| &p.interned_data.as_ref().unwrap().kernel_symbols)
            .map(|s| (s.iid(), String::from_utf8_lossy(s.str()).into_owned()))
            .collect();
        assert_eq!(names, [(1, "first".to_owned()), (2, "second".to_owned())]);
        assert_eq!(packets.iter().map(|p| p.sequence_flags).collect::<Vec<_>>(), [Some(1), None]);
    }
}
