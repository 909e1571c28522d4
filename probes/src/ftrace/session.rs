//! One session's share of the kernel's events: what it asked for, and where it goes.

use std::collections::BTreeSet;
use std::io;

use watershed_client::data_source::PollRequest;
use watershed_client::writer::TraceWriter;
use watershed_wire::protos::ftrace_stats::Phase;
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{FtraceConfig, FtraceCpuStats, FtraceStats, TracePacket};

use super::FTRACE_NAME;
use super::addresses::Addresses;
use super::compact::{self, CompactFormats};
use super::encoder::{Action, BundleClock, Choice, Encoder, Role};
use super::events;
use super::hub::Which;
use super::known::Known;
use super::page::PageLayout;
use super::plan::Generic;
use super::print_filter::PrintFilter;
use super::rest::Rest;
use super::ring::{EventName, Ring};
use super::settings::Settings;
use super::symbols::Symbols;
use crate::clock::boottime_now_ns;
use crate::on_demand::OnDemand;
use crate::{Notices, Roots};

/// A number of `FtraceParseStatus`: a read that failed.
const UNEXPECTED_READ_ERROR: i32 = 2;
/// The same: a page that came in part.
const PARTIAL_PAGE_READ: i32 = 3;

/// What a session is made from.
pub(super) struct Request<'a> {
    pub(super) config: &'a FtraceConfig,
    /// Whose processes are described for it.
    pub(super) tracing_session: u64,
    pub(super) make_writer: &'a dyn Fn() -> TraceWriter,
}

/// Events of one ring on their way into the trace: a sequence of their own.
#[derive(Debug)]
struct Channel {
    encoder: Encoder,
    writer: TraceWriter,
}

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: u64,
    pub(super) settings: Settings,
    pub(super) is_started: bool,
    pub(super) poll: Option<PollRequest>,
    /// While a flush goes on.
    pub(super) rest: Option<Rest>,
    tracing_session: u64,
    own_events: BTreeSet<EventName>,
    top_events: BTreeSet<EventName>,
    own: Channel,
    top: Option<Channel>,
    unknown: Vec<String>,
    failed: Vec<String>,
    start_stats: Vec<FtraceCpuStats>,
    read_errors: BTreeSet<i32>,
}

fn joined((group, name): &EventName) -> String {
    format!("{group}/{name}")
}

impl Session {
    pub(super) fn new(
        id: u64,
        request: Request<'_>,
        known: &mut Known,
        roots: &Roots,
        notices: &Notices,
    ) -> Result<Self, String> {
        let Request { config, tracing_session, make_writer } = request;
        let settings = Settings::new(config, notices);
        let resolved = events::resolve(&known.tracefs, &config.ftrace_events);
        if !resolved.unknown.is_empty() {
            notices.add(FTRACE_NAME, format!("no event {} in this kernel", resolved.unknown.join(", ")));
        }
        let is_of_top = |event: &EventName| joined(event) == "ftrace/print";
        let (top_events, own_events) = resolved.events.into_iter().partition(is_of_top);
        let mut session = Session {
            id,
            is_started: false,
            poll: None,
            rest: None,
            tracing_session,
            own_events,
            top_events,
            own: Channel {
                encoder: Encoder::new(Choice::default(), Addresses::default()),
                writer: make_writer(),
            },
            top: None,
            unknown: resolved.unknown,
            failed: Vec::new(),
            start_stats: Vec::new(),
            read_errors: BTreeSet::new(),
            settings,
        };
        session.own.encoder = session.encoder(Which::Own, config, known, roots, notices);
        if !session.top_events.is_empty() {
            let encoder = session.encoder(Which::Top, config, known, roots, notices);
            session.top = Some(Channel { encoder, writer: make_writer() });
        }
        if session.own_events.is_empty() && session.top_events.is_empty() {
            return Err(match session.unknown.as_slice() {
                [] => "ftrace_events names no event".to_owned(),
                unknown => format!("this kernel has no event {}", unknown.join(", ")),
            });
        }
        Ok(session)
    }

    /// How this session's events of a ring are encoded. Events that cannot be are dropped.
    fn encoder(
        &mut self,
        which: Which,
        config: &FtraceConfig,
        known: &mut Known,
        roots: &Roots,
        notices: &Notices,
    ) -> Encoder {
        let mut choice = Choice::default();
        if !config.tids_to_trace.is_empty() {
            choice.tids = Some(config.tids_to_trace.iter().map(|tid| tid.cast_signed()).collect());
        }
        let compact = self.compact(which, config, known, notices);
        for event in self.events(which).clone() {
            let Some(format) = known.format(&event) else {
                self.drop_event(which, &event);
                continue;
            };
            choice.common_pid = format.common_field("common_pid").map_or(0, |field| field.offset);
            let action = Action::of(&event.0, &format, compact, || self.generic(&event, known));
            let role = Role::of(&event.0, &event.1);
            if let (Role::Print, Some(filter), Some(text)) = (role, &config.print_filter, format.field("buf"))
            {
                choice.print_filter = PrintFilter::new(filter, text.offset);
            }
            match action {
                Some(action) => choice.add(format.id, action, role),
                None => self.drop_event(which, &event),
            }
        }
        let symbols = self.settings.symbolize.then(|| known.symbols(roots)).transpose();
        let symbols = symbols.unwrap_or_else(|error| {
            notices.add(FTRACE_NAME, format!("symbolize_ksyms: {error}"));
            None
        });
        Encoder::new(choice, Addresses::new(symbols, known.texts()))
    }

    /// The formats of the compact encoding, if this session's switches are written with it. Readers
    /// infer what it leaves out from the switch before, so all of a CPU's switches must be there.
    fn compact(
        &mut self,
        which: Which,
        config: &FtraceConfig,
        known: &mut Known,
        notices: &Notices,
    ) -> Option<CompactFormats> {
        let name = |event: &str| ("sched".to_owned(), event.to_owned());
        let is_asked = self.events(which).contains(&name("sched_switch"));
        if !is_asked || !self.settings.compact || !config.tids_to_trace.is_empty() {
            return None;
        }
        let formats = compact::formats(|event| known.format(&name(event)));
        if formats.is_none() {
            notices.add(FTRACE_NAME, "compact_sched: this kernel's scheduling events have other fields");
            self.failed.push("perfetto/compact_sched (unexpected sched event format)".to_owned());
        }
        formats
    }

    /// How an event is written that the schema does not have, if it is.
    fn generic(&self, event: &EventName, known: &mut Known) -> Option<Generic> {
        self.settings.generic.then(|| match self.settings.describe_generic {
            true => Generic::Described(known.generic_number(event)),
            false => Generic::Legacy,
        })
    }

    fn drop_event(&mut self, which: Which, event: &EventName) {
        let events = match which {
            Which::Own => &mut self.own_events,
            Which::Top => &mut self.top_events,
        };
        events.remove(event);
        self.failed.push(joined(event));
    }

    /// What it records from a ring.
    pub(super) fn events(&self, which: Which) -> &BTreeSet<EventName> {
        match which {
            Which::Own => &self.own_events,
            Which::Top => &self.top_events,
        }
    }

    /// The kernel does not enable this event.
    pub(super) fn refused(&mut self, event: &EventName) {
        if self.own_events.contains(event) {
            self.failed.push(joined(event));
        }
    }

    /// The buffer of everybody cannot be used.
    pub(super) fn refuse_top(&mut self) {
        self.failed.extend(self.top_events.iter().map(joined));
        self.top_events.clear();
        self.top = None;
    }

    pub(super) fn started_with(&mut self, ring: Option<&Ring>) {
        self.start_stats = ring.map(Ring::cpu_stats).unwrap_or_default();
    }

    pub(super) fn encode<'p>(
        &mut self,
        which: Which,
        cpu: u32,
        pages: impl Iterator<Item = &'p [u8]>,
        layout: PageLayout,
        clock: BundleClock,
    ) {
        let channel = match which {
            Which::Own => Some(&mut self.own),
            Which::Top => self.top.as_mut(),
        };
        if let Some(Channel { encoder, writer }) = channel {
            encoder.encode(cpu, pages, layout, clock, &mut |packet| writer.write_packet(packet));
        }
    }

    pub(super) fn was_read(&mut self, which: Which, pipe: usize, count: usize, may_have_more: bool) {
        if let Some(rest) = &mut self.rest {
            rest.was_read(which, pipe, count, may_have_more);
        }
    }

    pub(super) fn read_failed(&mut self, error: &io::Error) {
        let is_partial = error.kind() == io::ErrorKind::UnexpectedEof;
        self.read_errors.insert(if is_partial { PARTIAL_PAGE_READ } else { UNEXPECTED_READ_ERROR });
    }

    /// Threads that the events named are described before anything else happens.
    pub(super) fn end_of_pass(&mut self, on_demand: &OnDemand) {
        for channel in [Some(&mut self.own), self.top.as_mut()].into_iter().flatten() {
            channel.encoder.end_of_pass();
            let (renamed, fresh) = channel.encoder.pids.take();
            if !renamed.is_empty() || !fresh.is_empty() {
                on_demand.describe(self.tracing_session, &renamed, &fresh);
            }
        }
    }

    pub(super) fn forget(&mut self) {
        self.own.encoder.pids.forget();
        if let Some(top) = &mut self.top {
            top.encoder.pids.forget();
        }
    }

    /// Statistics as they were at the start, with what could not be set up, and as they are now.
    pub(super) fn write_stats(&mut self, ring: Option<&Ring>, symbols: Option<&Symbols>) {
        let page_kb = (rustix::param::page_size() as u32 >> 10).max(1);
        let pages = |kb: u32| kb.div_ceil(page_kb);
        let mut errors = self.read_errors.clone();
        for channel in [Some(&self.own), self.top.as_ref()].into_iter().flatten() {
            errors.extend(&channel.encoder.parse_errors);
        }
        let at = |phase: Phase, cpu_stats: Vec<FtraceCpuStats>| FtraceStats {
            phase: Some(phase as i32),
            cpu_stats,
            kernel_symbols_parsed: symbols.map(|symbols| symbols.count() as u32),
            kernel_symbols_mem_kb: symbols.map(|symbols| (symbols.size_bytes() >> 10) as u32),
            cpu_buffer_size_pages: ring.and_then(Ring::buffer_size_kb).map(pages),
            cached_cpu_buffer_size_pages: Some(pages(self.settings.buffer_size_kb)),
            ..Default::default()
        };
        let start = FtraceStats {
            unknown_ftrace_events: self.unknown.clone(),
            failed_ftrace_events: self.failed.clone(),
            ..at(Phase::StartOfTrace, self.start_stats.clone())
        };
        let end = FtraceStats {
            ftrace_parse_errors: errors.into_iter().collect(),
            ..at(Phase::EndOfTrace, ring.map(Ring::cpu_stats).unwrap_or_default())
        };
        for stats in [start, end] {
            self.own.writer.write_message(&TracePacket {
                timestamp: Some(boottime_now_ns()),
                data: Some(Data::FtraceStats(stats)),
                ..Default::default()
            });
        }
    }

    pub(super) fn flush(&mut self) {
        self.own.writer.flush();
        if let Some(top) = &mut self.top {
            top.writer.flush();
        }
    }
}
