//! `linux.ftrace` as a data source of a producer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use watershed_client::ExhaustedPolicy;
use watershed_client::data_source::{Context, DataSource, DataSourceFactory, Stop, Wake};
use watershed_wire::protos::{DataSourceConfig, DataSourceDescriptor, FtraceDescriptor};

use super::hub::Hub;
use super::session::Request;
use super::{FTRACE_NAME, settings};
use crate::on_demand::OnDemand;
use crate::source::descriptor;
use crate::{Notices, Roots};

/// Makes instances of `linux.ftrace`. All instances share one reader.
#[derive(Debug)]
pub struct FtraceFactory {
    hub: Arc<Mutex<Hub>>,
}

impl FtraceFactory {
    /// Nothing of the kernel is touched before the first instance is made. What cannot be recorded
    /// goes to `notices`; processes that events name are described through `on_demand`.
    pub fn new(roots: Roots, notices: Notices, on_demand: OnDemand) -> Self {
        Self { hub: Arc::new(Mutex::new(Hub::new(roots, notices, on_demand))) }
    }
}

impl DataSourceFactory for FtraceFactory {
    fn descriptor(&self) -> DataSourceDescriptor {
        DataSourceDescriptor {
            ftrace_descriptor: Some(FtraceDescriptor::default()),
            handles_incremental_state_clear: Some(true),
            ..descriptor(FTRACE_NAME)
        }
    }

    fn check(&self, config: &DataSourceConfig) -> Result<(), String> {
        config.ftrace_config.as_ref().map_or(Ok(()), settings::check)
    }

    /// The kernel overwrites its oldest events while a writer waits, and says so; a packet that is
    /// dropped here would be of the same age and many times larger.
    fn exhausted_policy(&self) -> ExhaustedPolicy {
        ExhaustedPolicy::StallThenDrop
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        self.check(cx.config())?;
        let config = cx.config().ftrace_config.clone().unwrap_or_default();
        let request = Request {
            config: &config,
            tracing_session: cx.config().tracing_session_id(),
            make_writer: &|| cx.create_writer(),
        };
        let id = lock(&self.hub).add(request)?;
        Ok(Box::new(Instance { id, hub: self.hub.clone(), is_flushing: false }))
    }
}

/// A session's hold on the hub.
struct Instance {
    id: u64,
    hub: Arc<Mutex<Hub>>,
    is_flushing: bool,
}

/// All users run on the producer's one thread; after a panic of one there is nobody left to mind.
fn lock(hub: &Mutex<Hub>) -> MutexGuard<'_, Hub> {
    hub.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DataSource for Instance {
    fn start(&mut self, cx: &mut Context<'_>) -> Wake {
        lock(&self.hub).start(self.id, cx.poll_request())
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Wake {
        let mut hub = lock(&self.hub);
        let wake = hub.poll();
        if !self.is_flushing {
            return wake;
        }
        self.is_flushing = !hub.end_flush(self.id);
        match self.is_flushing {
            true => Wake::After(Duration::ZERO),
            false => {
                cx.flushed();
                wake
            }
        }
    }

    fn flush(&mut self, cx: &mut Context<'_>) {
        self.is_flushing = !lock(&self.hub).flush(self.id);
        if self.is_flushing {
            cx.flush_later();
        }
    }

    fn stop(&mut self, _: &mut Context<'_>) -> Stop {
        lock(&self.hub).stop(self.id);
        Stop::Done
    }

    fn clear_incremental_state(&mut self, _: &mut Context<'_>) {
        lock(&self.hub).forget(self.id);
    }
}

impl Drop for Instance {
    /// The service went away, or the session has stopped already.
    fn drop(&mut self) {
        lock(&self.hub).remove(self.id);
    }
}
