//! The probes as data sources of a producer: adds the thread, the clock and the trace writer that a
//! [`Probe`] lacks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use watershed_client::data_source::{Context, DataSource, DataSourceFactory, Stop, Wake};
use watershed_client::writer::TraceWriter;
use watershed_wire::protos::DataSourceDescriptor;

use crate::on_demand::{Describer, OnDemand};
use crate::{
    Notices, PROCESS_STATS_NAME, Probe, ProcessStatsProbe, Roots, SYS_STATS_NAME, SYSTEM_INFO_NAME,
    SysStatsProbe, SystemInfoProbe, boottime_now_ns,
};

/// Asks `linux.process_stats` to look for new processes at the next flush, not only at its next
/// poll.
///
/// Whoever starts a program that lives shorter than a poll raises it and flushes the session, or
/// the program might end without having been seen.
#[derive(Clone, Debug, Default)]
pub struct ScanRequest(Arc<AtomicBool>);

impl ScanRequest {
    /// Nothing is asked for.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for a look; asking again before it happened changes nothing.
    pub fn raise(&self) {
        // Publishes nothing besides itself; what must happen before the look (the program's start)
        // is a system call.
        self.0.store(true, Ordering::Relaxed);
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// Makes instances of `linux.sys_stats`.
#[derive(Debug)]
pub struct SysStatsFactory {
    /// Where /proc and /sys are.
    pub roots: Roots,
    /// Where instances say what they cannot serve.
    pub notices: Notices,
}

impl DataSourceFactory for SysStatsFactory {
    fn descriptor(&self) -> DataSourceDescriptor {
        descriptor(SYS_STATS_NAME)
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        let config = cx.config().sys_stats_config.clone().unwrap_or_default();
        let probe = SysStatsProbe::new(&self.roots, &config, &self.notices);
        Ok(Box::new(Source::new(probe, cx.create_writer(), ScanRequest::new())))
    }
}

/// Makes instances of `linux.system_info`.
#[derive(Debug)]
pub struct SystemInfoFactory {
    /// Where /proc and /sys are.
    pub roots: Roots,
    /// Where instances say what they cannot serve.
    pub notices: Notices,
}

impl DataSourceFactory for SystemInfoFactory {
    fn descriptor(&self) -> DataSourceDescriptor {
        descriptor(SYSTEM_INFO_NAME)
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        let config = cx.config().system_info_config.unwrap_or_default();
        let probe = SystemInfoProbe::new(&self.roots, &config, &self.notices);
        Ok(Box::new(Source::new(probe, cx.create_writer(), ScanRequest::new())))
    }
}

/// Makes instances of `linux.process_stats`.
#[derive(Debug)]
pub struct ProcessStatsFactory {
    /// Where /proc is.
    pub roots: Roots,
    /// Where instances say what they cannot serve.
    pub notices: Notices,
    /// Looks besides the polls.
    pub scan_request: ScanRequest,
    /// Where sources that meet threads ask for their description.
    pub on_demand: OnDemand,
}

impl DataSourceFactory for ProcessStatsFactory {
    fn descriptor(&self) -> DataSourceDescriptor {
        DataSourceDescriptor { handles_incremental_state_clear: Some(true), ..descriptor(PROCESS_STATS_NAME) }
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        let config = cx.config().process_stats_config.clone().unwrap_or_default();
        let probe = ProcessStatsProbe::new(&self.roots, &config, &self.notices);
        let source = Source::new(probe, cx.create_writer(), self.scan_request.clone());
        let describer: Weak<Mutex<Instance<ProcessStatsProbe>>> = Arc::downgrade(&source.0);
        self.on_demand.register(cx.config().tracing_session_id(), describer);
        Ok(Box::new(source))
    }
}

/// Sessions wait for the first readings, so that what they say of the machine precedes what is done
/// in them, and for the last ones.
pub(crate) fn descriptor(name: &str) -> DataSourceDescriptor {
    DataSourceDescriptor {
        name: Some(name.to_owned()),
        will_notify_on_start: Some(true),
        will_notify_on_stop: Some(true),
        ..Default::default()
    }
}

/// A probe with a writer.
struct Instance<P> {
    probe: P,
    writer: TraceWriter,
    scan_request: ScanRequest,
}

impl<P: Probe> Instance<P> {
    fn poll_probe(&mut self) -> Wake {
        let Self { probe, writer, .. } = self;
        probe.poll(boottime_now_ns(), &mut |packet| writer.write_message(packet));
        match self.probe.due_ns() {
            None => Wake::Never,
            Some(due_ns) => Wake::After(Duration::from_nanos(due_ns.saturating_sub(boottime_now_ns()))),
        }
    }

    fn poll_now(&mut self) {
        self.probe.hurry();
        self.poll_probe();
    }
}

impl Describer for Instance<ProcessStatsProbe> {
    fn describe(&mut self, renamed: &[i32], fresh: &[i32]) {
        let Self { probe, writer, .. } = self;
        probe.describe(renamed, fresh, boottime_now_ns(), &mut |packet| writer.write_message(packet));
        // Whoever asks is about to hand over what it has, this source perhaps was before.
        writer.flush();
    }
}

/// An instance that others may reach, see [`OnDemand`].
struct Source<P>(Arc<Mutex<Instance<P>>>);

impl<P: Probe> Source<P> {
    fn new(probe: P, writer: TraceWriter, scan_request: ScanRequest) -> Self {
        Self(Arc::new(Mutex::new(Instance { probe, writer, scan_request })))
    }

    fn instance(&self) -> MutexGuard<'_, Instance<P>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Probe> DataSource for Source<P> {
    fn start(&mut self, _: &mut Context<'_>) -> Wake {
        self.instance().poll_probe()
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Wake {
        self.instance().poll_probe()
    }

    fn flush(&mut self, _: &mut Context<'_>) {
        let mut instance = self.instance();
        if instance.scan_request.take() {
            instance.poll_now();
        }
        instance.writer.flush();
    }

    fn stop(&mut self, _: &mut Context<'_>) -> Stop {
        // The last readings are those of the recording's end, whatever the periods are.
        let mut instance = self.instance();
        instance.poll_now();
        instance.writer.flush();
        Stop::Done
    }

    fn clear_incremental_state(&mut self, _: &mut Context<'_>) {
        self.instance().probe.clear_incremental_state();
    }
}
