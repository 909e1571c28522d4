//! The probes as data sources of a producer: adds the thread, the clock and the trace writer that a
//! [`Probe`] lacks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use watershed_client::data_source::{Context, DataSource, DataSourceFactory, Stop, Wake};
use watershed_client::writer::TraceWriter;
use watershed_wire::protos::DataSourceDescriptor;

use crate::{
    Notices, PROCESS_STATS_NAME, Probe, ProcessStatsProbe, Roots, SYS_STATS_NAME, SysStatsProbe,
    boottime_now_ns,
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
        Ok(Box::new(Instance::new(probe, cx.create_writer(), ScanRequest::new())))
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
}

impl DataSourceFactory for ProcessStatsFactory {
    fn descriptor(&self) -> DataSourceDescriptor {
        DataSourceDescriptor { handles_incremental_state_clear: Some(true), ..descriptor(PROCESS_STATS_NAME) }
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        let config = cx.config().process_stats_config.clone().unwrap_or_default();
        let probe = ProcessStatsProbe::new(&self.roots, &config, &self.notices);
        Ok(Box::new(Instance::new(probe, cx.create_writer(), self.scan_request.clone())))
    }
}

/// Sessions wait for the first readings, so that what they say of the machine precedes what is done
/// in them, and for the last ones.
fn descriptor(name: &str) -> DataSourceDescriptor {
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
    fn new(probe: P, writer: TraceWriter, scan_request: ScanRequest) -> Self {
        Self { probe, writer, scan_request }
    }

    fn poll_probe(&mut self) -> Wake {
        let Self { probe, writer, .. } = self;
        probe.poll(boottime_now_ns(), &mut |packet| writer.write_message(packet));
        match self.probe.due_ns() {
            None => Wake::Never,
            Some(due_ns) => Wake::After(Duration::from_nanos(due_ns.saturating_sub(boottime_now_ns()))),
        }
    }
}

impl<P: Probe> DataSource for Instance<P> {
    fn start(&mut self, _: &mut Context<'_>) -> Wake {
        self.poll_probe()
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Wake {
        self.poll_probe()
    }

    fn flush(&mut self, _: &mut Context<'_>) {
        if self.scan_request.take() {
            self.probe.hurry();
            self.poll_probe();
        }
        self.writer.flush();
    }

    fn stop(&mut self, _: &mut Context<'_>) -> Stop {
        // The last readings are those of the recording's end, whatever the periods are.
        self.probe.hurry();
        self.poll_probe();
        self.writer.flush();
        Stop::Done
    }

    fn clear_incremental_state(&mut self, _: &mut Context<'_>) {
        self.probe.clear_incremental_state();
    }
}
