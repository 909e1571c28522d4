//! Pages of one ring become packets of one session: records are filtered, encoded and collected in
//! bundles, one for each CPU and batch of pages.
//!
//! Has no file and no clock, so that tests and fuzz targets feed it whatever bytes they like.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::addresses::Addresses;
use super::compact::{Compact, CompactFormats, SwitchFormat, TooShort, WakingFormat};
use super::format::EventFormat;
use super::page::{Page, PageLayout, Record};
use super::pids::Pids;
use super::plan::{self, Generic, Plan};
use super::print_filter::PrintFilter;
use super::proto::{put_bytes, put_number};
use super::read;

/// Numbers of `FtraceParseStatus` beside those of a page.
const SHORT_COMPACT_EVENT: i32 = 16;
const INVALID_EVENT: i32 = 17;

/// Errors of one bundle that are written; a broken page needs no thousand of them.
const BUNDLE_ERRORS_MAX: usize = 16;

/// The clock by which records are stamped, if it is not CLOCK_BOOTTIME.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BundleClock {
    /// A number of `FtraceClock`; 0 is CLOCK_BOOTTIME.
    pub(super) number: u64,
    /// One moment by that clock and by CLOCK_BOOTTIME, for clocks that others do not know.
    pub(super) snapshot_ns: Option<(u64, u64)>,
}

/// What is done with the records of an event.
#[derive(Debug)]
pub(super) enum Action {
    Switch(SwitchFormat),
    Waking(WakingFormat),
    Message(Arc<Plan>),
}

impl Action {
    /// How an event is written: compact if it is one of `compact`, else by its message, and if the
    /// schema has none as `generic` says. `None` if that says nothing, or the fields do not fit.
    pub(super) fn of(
        group: &str,
        format: &EventFormat,
        compact: Option<CompactFormats>,
        generic: impl FnOnce() -> Option<Generic>,
    ) -> Option<Self> {
        let plan = match (group, format.name.as_str(), compact) {
            ("sched", "sched_switch", Some((switch, _))) => return Some(Self::Switch(switch)),
            ("sched", "sched_waking", Some((_, waking))) => return Some(Self::Waking(waking)),
            (_, name, _) if plan::is_typed(group, name) => Plan::typed(format),
            _ => Plan::generic(group, format, generic()?),
        };
        plan.map(|plan| Self::Message(Arc::new(plan)))
    }
}

/// An event of a session.
#[derive(Debug)]
struct Chosen {
    action: Action,
    role: Role,
}

/// What an event means to the list of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Nothing beyond the threads that it names.
    Plain,
    /// The current thread has another name.
    Renames,
    /// The named thread ends, and its number may come back.
    Frees,
    /// A text that programs wrote.
    Print,
}

impl Role {
    /// What the events of the kernel mean.
    pub(super) fn of(group: &str, name: &str) -> Self {
        match (group, name) {
            ("task", "task_rename") | ("sched", "sched_process_exec") => Self::Renames,
            ("sched", "sched_process_free") => Self::Frees,
            ("ftrace", "print") => Self::Print,
            _ => Self::Plain,
        }
    }
}

/// What a session asked for.
#[derive(Debug, Default)]
pub(super) struct Choice {
    /// By event id.
    events: Vec<Option<Chosen>>,
    /// Only what these threads do.
    pub(super) tids: Option<HashSet<i32>>,
    pub(super) print_filter: PrintFilter,
    /// Where `common_pid` lies, the same in all events.
    pub(super) common_pid: usize,
}

impl Choice {
    /// Adds an event.
    pub(super) fn add(&mut self, event_id: u16, action: Action, role: Role) {
        let index = usize::from(event_id);
        if self.events.len() <= index {
            self.events.resize_with(index + 1, || None);
        }
        self.events[index] = Some(Chosen { action, role });
    }

    #[inline]
    fn event(&self, event_id: u16) -> Option<&Chosen> {
        self.events.get(usize::from(event_id))?.as_ref()
    }

    fn wants(&self, plan: &Plan, role: Role, record: &[u8], current: i32) -> bool {
        if let Some(tids) = &self.tids {
            let mut named = plan.pids.iter().map(|&offset| read::int(record, offset));
            if !tids.contains(&current) && !named.any(|tid| tids.contains(&tid)) {
                return false;
            }
        }
        role != Role::Print || self.print_filter.allows(record)
    }
}

/// Encodes for one session and one ring.
#[derive(Debug)]
pub(super) struct Encoder {
    choice: Choice,
    addresses: Addresses,
    pub(super) pids: Pids,
    /// Errors of pages so far, by number.
    pub(super) parse_errors: BTreeSet<i32>,
    /// Time stamp of the last event that was written, by CPU.
    last_ns: HashMap<u32, u64>,
    bundle: Bundle,
}

/// A bundle under construction.
#[derive(Debug, Default)]
struct Bundle {
    is_open: bool,
    /// There is something in it.
    is_used: bool,
    /// Encoded fields of `FtraceEventBundle`.
    body: Vec<u8>,
    compact: Compact,
    described: BTreeSet<u32>,
    errors: usize,
    event: Vec<u8>,
    message: Vec<u8>,
    packet: Vec<u8>,
}

impl Encoder {
    pub(super) fn new(choice: Choice, addresses: Addresses) -> Self {
        Self {
            choice,
            addresses,
            pids: Pids::default(),
            parse_errors: BTreeSet::new(),
            last_ns: HashMap::new(),
            bundle: Bundle::default(),
        }
    }

    /// Encodes the pages of one CPU that were read together, and hands out packets.
    pub(super) fn encode<'p>(
        &mut self,
        cpu: u32,
        pages: impl Iterator<Item = &'p [u8]>,
        layout: PageLayout,
        clock: BundleClock,
        emit: &mut dyn FnMut(&[u8]),
    ) {
        for bytes in pages {
            match Page::parse(bytes, layout) {
                Ok(page) => {
                    if page.has_lost_events || self.bundle.compact.has_many_names() {
                        self.close(emit);
                    }
                    if page.has_lost_events {
                        self.bundle.open(cpu, clock, &self.last_ns);
                        self.bundle.add_lost();
                    }
                    self.encode_page(cpu, &page, clock);
                }
                Err(error) => self.note_error(cpu, 0, error as i32, clock),
            }
        }
        self.close(emit);
    }

    /// See [`Addresses::end_of_pass`].
    pub(super) fn end_of_pass(&mut self) {
        self.addresses.end_of_pass();
    }

    fn encode_page(&mut self, cpu: u32, page: &Page<'_>, clock: BundleClock) {
        let mut last_ns = None;
        for record in page.records() {
            match record {
                Ok(record) => match self.encode_record(cpu, &record, clock) {
                    Ok(true) => last_ns = Some(record.timestamp_ns),
                    Ok(false) => {}
                    Err(status) => self.note_error(cpu, page.timestamp_ns, status, clock),
                },
                Err(error) => self.note_error(cpu, page.timestamp_ns, error as i32, clock),
            }
        }
        if let Some(last_ns) = last_ns {
            self.last_ns.insert(cpu, last_ns);
        }
    }

    /// Whether the record was wanted.
    #[inline]
    fn encode_record(&mut self, cpu: u32, record: &Record<'_>, clock: BundleClock) -> Result<bool, i32> {
        let Some(chosen) = self.choice.event(record.event_id) else { return Ok(false) };
        let current = read::int(record.bytes, self.choice.common_pid);
        self.bundle.open(cpu, clock, &self.last_ns);
        let (compact, timestamp_ns) = (&mut self.bundle.compact, record.timestamp_ns);
        match &chosen.action {
            Action::Switch(format) => {
                let next = compact.add_switch(format, timestamp_ns, record.bytes);
                self.pids.see(next.map_err(|TooShort| SHORT_COMPACT_EVENT)?);
                self.pids.see(current);
            }
            Action::Waking(format) => {
                let woken = compact.add_waking(format, timestamp_ns, record.bytes);
                self.pids.see(woken.map_err(|TooShort| SHORT_COMPACT_EVENT)?);
            }
            Action::Message(plan) => {
                if record.bytes.len() < plan.size_min {
                    return Err(INVALID_EVENT);
                }
                if !self.choice.wants(plan, chosen.role, record.bytes, current) {
                    return Ok(false);
                }
                if !self.bundle.add(plan, record, current, &mut self.addresses) {
                    return Err(INVALID_EVENT);
                }
                note_pids(&mut self.pids, plan, chosen.role, record.bytes, current);
            }
        }
        self.bundle.is_used = true;
        Ok(true)
    }

    fn note_error(&mut self, cpu: u32, timestamp_ns: u64, status: i32, clock: BundleClock) {
        self.parse_errors.insert(status);
        self.bundle.open(cpu, clock, &self.last_ns);
        self.bundle.add_error(timestamp_ns, status);
    }

    fn close(&mut self, emit: &mut dyn FnMut(&[u8])) {
        let bundle = &mut self.bundle;
        if !std::mem::take(&mut bundle.is_open) || !std::mem::take(&mut bundle.is_used) {
            return;
        }
        if !bundle.compact.is_empty() {
            bundle.message.clear();
            bundle.compact.finish(&mut bundle.message);
            put_bytes(&mut bundle.body, 4, &bundle.message);
        }
        let packet = &mut bundle.packet;
        packet.clear();
        put_bytes(packet, 1, &bundle.body);
        self.addresses.write_symbols(packet);
        emit(packet);
    }
}

impl Bundle {
    #[inline(always)]
    fn open(&mut self, cpu: u32, clock: BundleClock, last_ns: &HashMap<u32, u64>) {
        if !self.is_open {
            self.begin(cpu, clock, last_ns.get(&cpu).copied().unwrap_or(0));
        }
    }

    #[cold]
    fn begin(&mut self, cpu: u32, clock: BundleClock, last_ns: u64) {
        self.is_open = true;
        self.errors = 0;
        self.described.clear();
        let body = &mut self.body;
        body.clear();
        put_number(body, 1, u64::from(cpu));
        if clock.number != 0 {
            put_number(body, 5, clock.number);
        }
        if let Some((ring_ns, boot_ns)) = clock.snapshot_ns {
            put_number(body, 6, ring_ns);
            put_number(body, 7, boot_ns);
        }
        put_number(body, 10, last_ns);
    }

    /// False if the record is invalid; then nothing was added.
    fn add(&mut self, plan: &Plan, record: &Record<'_>, current: i32, addresses: &mut Addresses) -> bool {
        self.message.clear();
        if !plan.write(record.bytes, addresses, &mut self.message) {
            return false;
        }
        self.event.clear();
        put_number(&mut self.event, 1, record.timestamp_ns);
        put_number(&mut self.event, 2, u64::from(current.cast_unsigned()));
        put_bytes(&mut self.event, plan.number, &self.message);
        put_bytes(&mut self.body, 2, &self.event);
        if let Some(descriptor) = &plan.descriptor
            && self.described.insert(plan.number)
        {
            put_bytes(&mut self.body, 11, descriptor);
        }
        true
    }

    fn add_lost(&mut self) {
        self.is_used = true;
        put_number(&mut self.body, 3, 1);
    }

    fn add_error(&mut self, timestamp_ns: u64, status: i32) {
        self.is_used = true;
        self.errors += 1;
        if self.errors <= BUNDLE_ERRORS_MAX {
            let mut error = Vec::new();
            put_number(&mut error, 1, timestamp_ns);
            put_number(&mut error, 2, status as u64);
            put_bytes(&mut self.body, 8, &error);
        }
    }
}

fn note_pids(pids: &mut Pids, plan: &Plan, role: Role, record: &[u8], current: i32) {
    let named = plan.pids.iter().map(|&offset| read::int(record, offset));
    match role {
        Role::Renames => pids.renamed(current),
        Role::Frees => named.for_each(|tid| pids.ended(tid)),
        Role::Plain | Role::Print => {
            pids.see(current);
            named.for_each(|tid| pids.see(tid));
        }
    }
}

#[cfg(test)]
#[path = "encoder_tests.rs"]
mod tests;
