//! Scheduling events of bundles, in columns or one by one, and where some are missing.

use watershed_wire::packet::Envelope;
use watershed_wire::protos::FtraceEventBundle;
use watershed_wire::protos::ftrace_event_bundle::CompactSched;
use watershed_wire::raw::{Fields, Value};
use watershed_wire::{Decode as _, DecodeError};

use super::comms::{Comm, Comms};
use super::{Event, State, Waker, What};

/// No machine has more CPUs; a hostile trace names any.
const CPUS_MAX: usize = 1 << 14;
/// Field `FtraceEventBundle.event`.
const EVENT: u32 = 2;
/// Fields of `FtraceEvent`.
const TIMESTAMP: u32 = 1;
const PID: u32 = 2;
const SCHED_SWITCH: u32 = 4;
const SCHED_WAKEUP: u32 = 17;
const SCHED_WAKING: u32 = 20;
const SCHED_WAKEUP_NEW: u32 = 114;
const TASK_NEWTASK: u32 = 235;
const TASK_RENAME: u32 = 236;
/// In `task_newtask.clone_flags`: the new task is a thread of its maker's process.
const CLONE_THREAD: u64 = 0x1_0000;
/// In `common_flags` of a waking: it came from a hardware or software interrupt.
const FROM_INTERRUPT: u32 = 0x08 | 0x10;

/// What was read of each CPU.
#[derive(Debug, Default, Clone, Copy)]
struct Cpu {
    /// The latest event; 0 before the first.
    last_ns: u64,
    /// Events are missing before the next.
    is_lossy: bool,
    /// A packet is missing that may have had events of this CPU.
    is_suspect: bool,
}

/// Reads the bundles of one recorder: of the first sequence that has scheduling events.
#[derive(Debug, Default)]
pub(in crate::inspect) struct Bundles {
    sequence_id: Option<Option<u32>>,
    cpus: Vec<Cpu>,
    pub(in crate::inspect) switches: u64,
    pub(in crate::inspect) wakings: u64,
    /// Events are of another clock than the rest of the trace.
    pub(in crate::inspect) has_own_clock: bool,
    /// Times that events of a CPU were missing.
    pub(in crate::inspect) losses: u64,
    /// Bundles of other machines or recorders, and of CPUs that no machine has.
    pub(in crate::inspect) passed_over: u64,
}

impl Bundles {
    /// The events of a bundle, if it is of the recorder.
    pub(in crate::inspect) fn read(
        &mut self,
        envelope: &Envelope<'_>,
        bytes: &[u8],
        comms: &mut Comms,
    ) -> Result<Vec<Event>, DecodeError> {
        let bundle = FtraceEventBundle::decode(bytes)?;
        let cpu = bundle.cpu();
        let is_foreign = self.is_foreign(envelope, cpu);
        let mut first_ns = u64::MAX;
        let mut last_ns = 0;
        let mut events = Vec::new();
        if let Some(compact) = &bundle.compact_sched {
            let names: Vec<Comm> =
                compact.intern_table.iter().map(|name| comms.number(name.as_bytes())).collect();
            read_switches(compact, cpu, &names, &mut events);
            read_wakings(compact, cpu, &names, &mut events);
        }
        for event in Fields::new(bytes).map_while(Result::ok).filter(|field| field.number == EVENT) {
            let event = Message(event.value.bytes().unwrap_or_default());
            let at_ns = event.number(TIMESTAMP);
            (first_ns, last_ns) = (first_ns.min(at_ns), last_ns.max(at_ns));
            events.extend(read_event(event, at_ns, cpu, comms));
        }
        for event in &events {
            (first_ns, last_ns) = (first_ns.min(event.at_ns), last_ns.max(event.at_ns));
        }
        if is_foreign {
            self.passed_over += u64::from(!events.is_empty());
            return Ok(Vec::new());
        }
        if self.sequence_id.is_none() && events.is_empty() {
            return Ok(events);
        }
        self.sequence_id = Some(envelope.sequence_id);
        self.has_own_clock |= bundle.ftrace_clock.is_some_and(|clock| clock != 0);
        let count = |is: fn(&What) -> bool| events.iter().filter(|event| is(&event.what)).count() as u64;
        self.switches += count(|what| matches!(what, What::Switch { .. }));
        self.wakings += count(|what| matches!(what, What::Waking { .. }));
        if let Some(lost_from_ns) = self.lost_from(&bundle, cpu, first_ns, last_ns) {
            self.losses += 1;
            let lost = |at_ns, what| Event { at_ns, cpu, what };
            events.insert(0, lost(lost_from_ns, What::LostFrom));
            events.insert(1, lost(first_ns, What::LostUntil));
        }
        Ok(events)
    }

    /// Looks at a packet of any kind: if one of the sequence is missing before it, any CPU may have
    /// had events in that.
    pub(in crate::inspect) fn take_loss(&mut self, envelope: &Envelope<'_>) {
        let is_ours = self.sequence_id == Some(envelope.sequence_id) && envelope.machine_id.is_none();
        if is_ours && envelope.previous_packet_dropped != 0 && !envelope.first_packet_on_sequence {
            self.cpus.iter_mut().for_each(|cpu| cpu.is_suspect = true);
        }
    }

    fn is_foreign(&self, envelope: &Envelope<'_>, cpu: u32) -> bool {
        let is_of_another = self.sequence_id.is_some_and(|sequence_id| sequence_id != envelope.sequence_id);
        envelope.machine_id.is_some() || cpu as usize >= CPUS_MAX || is_of_another
    }

    /// Since when events were missing before the bundle's first, if any were.
    fn lost_from(
        &mut self,
        bundle: &FtraceEventBundle,
        cpu: u32,
        first_ns: u64,
        last_ns: u64,
    ) -> Option<u64> {
        let index = cpu as usize;
        if index >= self.cpus.len() {
            self.cpus.resize(index + 1, Cpu::default());
        }
        let cpu = &mut self.cpus[index];
        // A recorder says where the bundle before this one ended.
        let continues = bundle.previous_bundle_end_timestamp.filter(|&end_ns| end_ns > 0);
        let is_missing = match continues {
            Some(end_ns) => end_ns > cpu.last_ns,
            None => cpu.is_suspect,
        };
        cpu.is_suspect = false;
        cpu.is_lossy |= bundle.lost_events() || is_missing;
        if first_ns > last_ns {
            return None;
        }
        let known_until_ns = cpu.last_ns;
        cpu.last_ns = known_until_ns.max(last_ns);
        let is_lossy = std::mem::take(&mut cpu.is_lossy);
        // Before the first event nothing is known anyway.
        (is_lossy && known_until_ns > 0).then_some(known_until_ns.min(first_ns))
    }
}

fn read_switches(compact: &CompactSched, cpu: u32, names: &[Comm], events: &mut Vec<Event>) {
    let mut at_ns = 0_u64;
    let columns = compact.switch_timestamp.iter().zip(&compact.switch_prev_state);
    let columns = columns.zip(&compact.switch_next_pid).zip(&compact.switch_next_comm_index);
    for (((delta, &state), &next), &name) in columns {
        at_ns = at_ns.wrapping_add(*delta);
        let (prev_state, next_comm) = (State::of_kernel(state), interned(names, name));
        let what = What::Switch { prev: None, prev_comm: Comm::default(), prev_state, next, next_comm };
        events.push(Event { at_ns, cpu, what });
    }
}

fn read_wakings(compact: &CompactSched, cpu: u32, names: &[Comm], events: &mut Vec<Event>) {
    let mut at_ns = 0_u64;
    let columns = compact.waking_timestamp.iter().zip(&compact.waking_pid).zip(&compact.waking_comm_index);
    for (index, ((delta, &tid), &name)) in columns.enumerate() {
        at_ns = at_ns.wrapping_add(*delta);
        let comm = interned(names, name);
        let flags = compact.waking_common_flags.get(index).copied().unwrap_or(0);
        let waker = if flags & FROM_INTERRUPT != 0 { Waker::Interrupt } else { Waker::Current };
        events.push(Event { at_ns, cpu, what: What::Waking { waker, tid, comm } });
    }
}

fn interned(names: &[Comm], index: u32) -> Comm {
    names.get(index as usize).copied().unwrap_or_default()
}

/// An event, if it is about threads.
fn read_event(event: Message<'_>, at_ns: u64, cpu: u32, comms: &mut Comms) -> Option<Event> {
    let current = event.number(PID) as i32;
    let field = event.fields().find(|field| field.0 > PID && matches!(field.1, Value::LengthDelimited(_)))?;
    let (number, about) = (field.0, Message(field.1.bytes()?));
    let what = match number {
        SCHED_SWITCH => {
            let (prev, next) = (about.number(2) as i32, about.number(6) as i32);
            let (prev_comm, next_comm) = (comms.number(about.bytes(1)), comms.number(about.bytes(5)));
            let prev_state = State::of_kernel(about.number(4).cast_signed());
            What::Switch { prev: Some(prev), prev_comm, prev_state, next, next_comm }
        }
        SCHED_WAKING | SCHED_WAKEUP | SCHED_WAKEUP_NEW => {
            let (tid, comm) = (about.number(2) as i32, comms.number(about.bytes(1)));
            match number {
                SCHED_WAKING => What::Waking { waker: Waker::Thread(current), tid, comm },
                _ => What::Runnable { tid, comm },
            }
        }
        TASK_NEWTASK => {
            let (tid, comm) = (about.number(1) as i32, comms.number(about.bytes(2)));
            let is_thread = about.number(3) & CLONE_THREAD != 0;
            What::New { tid, comm, maker: current, is_thread }
        }
        TASK_RENAME => What::Renamed { tid: about.number(1) as i32, comm: comms.number(about.bytes(3)) },
        _ => return None,
    };
    Some(Event { at_ns, cpu, what })
}

/// An encoded message of which a few fields are wanted.
#[derive(Debug, Clone, Copy)]
struct Message<'a>(&'a [u8]);

impl<'a> Message<'a> {
    fn fields(self) -> impl Iterator<Item = (u32, Value<'a>)> {
        Fields::new(self.0).map_while(Result::ok).map(|field| (field.number, field.value))
    }

    /// 0 if it is not there.
    fn number(self, number: u32) -> u64 {
        let values = self.fields().filter(|field| field.0 == number);
        values.filter_map(|field| field.1.varint()).last().unwrap_or(0)
    }

    fn bytes(self, number: u32) -> &'a [u8] {
        let values = self.fields().filter(|field| field.0 == number);
        values.filter_map(|field| field.1.bytes()).last().unwrap_or_default()
    }
}

impl State {
    /// What a thread does after it was switched away from in this state, as kernels from 4.14 on
    /// write it: one bit, or none if it could go on.
    fn of_kernel(state: i64) -> Self {
        match state {
            _ if state & 0x30 != 0 => State::Dead,
            _ if state & 0x02 != 0 => State::Uninterruptible,
            _ if state & 0x01 != 0 => State::Interruptible,
            _ if state & 0x80 != 0 => State::Idle,
            _ if state & 0x4c != 0 => State::Stopped,
            _ => State::Runnable,
        }
    }
}
