//! Pages of a kernel against the kernel's own text of the same events. `tests/pages/record` made
//! both.

use prost::Message as _;
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{FtraceEventBundle, TracePacket};
use watershed_wire::raw::Fields;

use super::testing::PageEncoder;

const FORMATS: [(&str, &str); 3] = [
    ("sched", include_str!("../../tests/formats/6.18-x86_64/sched_switch")),
    ("sched", include_str!("../../tests/formats/6.18-x86_64/sched_waking")),
    ("task", include_str!("../../tests/formats/6.18-x86_64/task_newtask")),
];

/// A switch or a waking.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at_us: u64,
    is_waking: bool,
    tid: i32,
    prio: i32,
    name: String,
    /// Of a waking.
    target_cpu: Option<i32>,
}

/// What a recording has, by our reading and by the kernel's.
struct Recorded {
    bundles: Vec<FtraceEventBundle>,
    /// Events that are not written compactly.
    messages: usize,
    text: Vec<Event>,
    new_tasks_in_text: usize,
}

/// `FtraceEventBundle.event` of a packet.
fn messages(packet: &[u8]) -> usize {
    let of = |bytes: &[u8], number: u32| -> Vec<Vec<u8>> {
        let fields = Fields::new(bytes).map(Result::unwrap).filter(|field| field.number == number);
        fields.map(|field| field.value.bytes().unwrap().to_vec()).collect()
    };
    of(packet, 1).iter().map(|bundle| of(bundle, 2).len()).sum()
}

fn recorded(name: &str) -> Recorded {
    let dir = format!("{}/tests/pages/6.18-x86_64/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = |file: &str| std::fs::read_to_string(format!("{dir}/{file}")).unwrap();
    let pages = std::fs::read(format!("{dir}/pages")).unwrap();
    let mut encoder = PageEncoder::new(&text("header_page"), &FORMATS, true, true).unwrap();
    let (mut bundles, mut count) = (Vec::new(), 0);
    encoder.encode(0, &pages, &mut |packet| {
        count += messages(packet);
        match TracePacket::decode(packet).unwrap().data {
            Some(Data::FtraceEvents(bundle)) => bundles.push(bundle),
            other => panic!("{other:?}"),
        }
    });
    let trace = text("trace.txt");
    let new_tasks_in_text = trace.lines().filter(|line| line.contains(": task_newtask: ")).count();
    let text = trace.lines().filter_map(event_of_line).collect();
    Recorded { bundles, messages: count, text, new_tasks_in_text }
}

/// `sh-7 [000] d..2. 12.000345: sched_waking: comm=a b pid=8 prio=120 target_cpu=000`
fn event_of_line(line: &str) -> Option<Event> {
    let (before, fields) = line.split_once(": sched_")?;
    let (seconds, micros) = before.split_whitespace().next_back()?.split_once('.')?;
    let at_us = seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap();
    let is_waking = fields.starts_with("waking: ");
    let prefix = if is_waking { "" } else { "next_" };
    let fields = if is_waking { fields.strip_prefix("waking: ")? } else { fields.split_once(" ==> ")?.1 };
    let (name, rest) =
        fields.strip_prefix(&format!("{prefix}comm="))?.split_once(&format!(" {prefix}pid="))?;
    let mut numbers = rest.split(' ').map(|word| word.rsplit('=').next().unwrap().parse::<i32>().unwrap());
    let (tid, prio) = (numbers.next()?, numbers.next()?);
    Some(Event { at_us, is_waking, tid, prio, name: name.to_owned(), target_cpu: numbers.next() })
}

fn events_of_bundle(bundle: &FtraceEventBundle) -> Vec<Event> {
    let compact = bundle.compact_sched.as_ref().unwrap();
    let times = |deltas: &[u64]| {
        deltas
            .iter()
            .scan(0, |at, delta| {
                *at += delta;
                // The kernel's text is rounded.
                Some((*at + 500) / 1000)
            })
            .collect::<Vec<_>>()
    };
    let name = |index: u32| compact.intern_table[index as usize].clone();
    let switches = times(&compact.switch_timestamp).into_iter().enumerate().map(|(i, at_us)| Event {
        at_us,
        is_waking: false,
        tid: compact.switch_next_pid[i],
        prio: compact.switch_next_prio[i],
        name: name(compact.switch_next_comm_index[i]),
        target_cpu: None,
    });
    let wakings = times(&compact.waking_timestamp).into_iter().enumerate().map(|(i, at_us)| Event {
        at_us,
        is_waking: true,
        tid: compact.waking_pid[i],
        prio: compact.waking_prio[i],
        name: name(compact.waking_comm_index[i]),
        target_cpu: Some(compact.waking_target_cpu[i]),
    });
    let mut events: Vec<_> = switches.chain(wakings).collect();
    events.sort();
    events
}

#[test]
fn what_the_kernel_says_in_text_is_in_the_bundle() {
    for (name, has_lost_events) in [("whole", None), ("lost", Some(true))] {
        let mut recorded = recorded(name);
        let [bundle] = &recorded.bundles[..] else { panic!("{name}: {:?}", recorded.bundles) };
        assert_eq!((&bundle.error[..], bundle.lost_events), (&[][..], has_lost_events), "{name}");
        recorded.text.sort();
        assert!(recorded.text.len() > 80, "{name}: {}", recorded.text.len());
        assert_eq!(events_of_bundle(bundle), recorded.text, "{name}");
        assert_eq!(recorded.messages, recorded.new_tasks_in_text, "{name}");
    }
}
