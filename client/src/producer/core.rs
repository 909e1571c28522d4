//! The producer as a state machine.

use std::collections::BTreeMap;
use std::time::Duration;

use watershed_smb::Smb;
use watershed_wire::protos::{DataSourceConfig, DataSourceDescriptor};
use watershed_wire::{Decode as _, Encode as _};

use super::Command;
use crate::arbiter::{Arbiter, ArbiterOptions, ExhaustedPolicy, Waker};
use crate::data_source::{Context, DataSource, DataSourceFactory, InstanceInfo, Stop, Wake};
use crate::endpoint::Endpoint;
use crate::sync::{Arc, Ordering};

/// What a producer has to tell its program.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProducerEvent {
    /// An instance could not be made; the session goes on without it.
    SetupFailed {
        /// Name of the data source.
        name: String,
        /// Why.
        reason: String,
    },
}

/// A data source as it was offered.
struct Offered {
    name: String,
    answers: Answers,
    factory: Box<dyn DataSourceFactory>,
}

/// What the service waits for, by the descriptor that it has. Perfetto's complains about answers
/// that it does not wait for.
#[derive(Clone, Copy)]
struct Answers {
    start: bool,
    stop: bool,
}

impl Answers {
    fn new(descriptor: &DataSourceDescriptor) -> Self {
        Answers { start: descriptor.will_notify_on_start(), stop: descriptor.will_notify_on_stop() }
    }
}

/// One instance. Commands that do not fit its state are ignored: the service is trusted but may be
/// late.
struct Instance {
    info: InstanceInfo,
    /// `None`: it could not be made. The service still gets an answer, or it would wait.
    source: Option<Box<dyn DataSource>>,
    answers: Answers,
    started: bool,
    stopping: bool,
    poll_at_ns: Option<u64>,
}

impl Instance {
    /// Its time has come, or somebody asked for a poll since the last look.
    fn is_due(&self, now_ns: u64) -> bool {
        // Acquire: see `PollRequest::raise`.
        let is_wanted = self.info.poll_wanted.swap(false, Ordering::Acquire) && self.started;
        is_wanted || self.poll_at_ns.is_some_and(|at| at <= now_ns)
    }
}

/// The data sources of one connection: takes commands, calls sources, answers.
///
/// Times are readings of CLOCK_MONOTONIC in nanoseconds.
pub struct ProducerCore {
    endpoint: Arc<dyn Endpoint>,
    waker: Option<Box<dyn Waker>>,
    options: ArbiterOptions,
    arbiter: Option<Arbiter>,
    offered: Vec<Offered>,
    instances: BTreeMap<u64, Instance>,
    commit_at_ns: Option<u64>,
    on_event: Box<dyn FnMut(ProducerEvent) + Send>,
}

impl std::fmt::Debug for ProducerCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.offered.iter().map(|offered| &offered.name).collect();
        let instances: Vec<_> = self.instances.keys().collect();
        f.debug_struct("ProducerCore")
            .field("sources", &names)
            .field("instances", &instances)
            .finish_non_exhaustive()
    }
}

impl ProducerCore {
    /// A producer that talks to `endpoint`. `waker` leads to [`ProducerCore::handle_wake`].
    #[must_use]
    pub fn new(
        endpoint: Arc<dyn Endpoint>,
        waker: Box<dyn Waker>,
        options: ArbiterOptions,
        on_event: Box<dyn FnMut(ProducerEvent) + Send>,
    ) -> Self {
        Self {
            endpoint,
            waker: Some(waker),
            options,
            arbiter: None,
            offered: Vec::new(),
            instances: BTreeMap::new(),
            commit_at_ns: None,
            on_event,
        }
    }

    /// The producer has a new connection: what it had of the old one is dropped, as by
    /// [`ProducerCore::shut_down`], and all its data sources are offered to the new `endpoint`.
    pub fn reconnect(&mut self, endpoint: Arc<dyn Endpoint>, waker: Box<dyn Waker>, options: ArbiterOptions) {
        self.shut_down();
        (self.endpoint, self.waker, self.options) = (endpoint, Some(waker), options);
        for offered in &mut self.offered {
            let descriptor = offered.factory.descriptor();
            offered.answers = Answers::new(&descriptor);
            self.endpoint.register_data_source(&descriptor.encode_to_vec());
        }
    }

    /// Offers a data source to the service. A second source of the same name is never asked: the
    /// first one is.
    pub fn register(&mut self, factory: Box<dyn DataSourceFactory>) {
        let descriptor = factory.descriptor();
        self.endpoint.register_data_source(&descriptor.encode_to_vec());
        let answers = Answers::new(&descriptor);
        self.offered.push(Offered { name: descriptor.name.unwrap_or_default(), answers, factory });
    }

    /// The first of `configs` that its data source refuses: the source's name and what it says.
    #[must_use]
    pub fn check(&self, configs: &[DataSourceConfig]) -> Option<(String, String)> {
        configs.iter().find_map(|config| {
            let offered = self.offered.iter().find(|offered| offered.name == config.name())?;
            offered.factory.check(config).err().map(|reason| (offered.name.clone(), reason))
        })
    }

    /// The arbiter, once the service has provided memory.
    #[must_use]
    pub fn arbiter(&self) -> Option<&Arbiter> {
        self.arbiter.as_ref()
    }

    /// Does what the service asks.
    pub fn handle_command(&mut self, command: Command, now_ns: u64) {
        match command {
            Command::SetupTracing { smb } => self.set_up_tracing(smb),
            Command::SetupDataSource { instance_id, config } => self.set_up(instance_id, config, now_ns),
            Command::StartDataSource { instance_id, .. } => self.start(instance_id, now_ns),
            Command::StopDataSource { instance_id } => self.stop(instance_id, now_ns),
            Command::Flush { request_id, instance_ids } => self.flush(request_id, &instance_ids, now_ns),
            Command::ClearIncrementalState { instance_ids } => {
                self.each(&instance_ids, now_ns, |source, cx| source.clear_incremental_state(cx));
            }
        }
    }

    /// Commits are wanted after `delay`.
    pub fn handle_wake(&mut self, delay: Duration, now_ns: u64) {
        let due = Wake::After(delay).due_ns(None, now_ns);
        self.commit_at_ns = [self.commit_at_ns, due].into_iter().flatten().min();
    }

    /// When [`ProducerCore::handle_timeout`] is wanted; `None` while nothing is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        self.instances.values().filter_map(|instance| instance.poll_at_ns).chain(self.commit_at_ns).min()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        let due: Vec<u64> = self
            .instances
            .iter()
            .filter(|(_, instance)| instance.is_due(now_ns))
            .map(|(&instance_id, _)| instance_id)
            .collect();
        for instance_id in due {
            self.poll(instance_id, now_ns);
        }
        if self.commit_at_ns.is_some_and(|at| at <= now_ns) {
            self.commit_at_ns = None;
            self.commit();
        }
    }

    /// The connection ends: instances are dropped without being asked, memory is given up.
    pub fn shut_down(&mut self) {
        self.instances.clear();
        self.commit_at_ns = None;
        if let Some(arbiter) = self.arbiter.take() {
            arbiter.shut_down();
        }
    }

    fn commit(&self) {
        if let Some(arbiter) = &self.arbiter {
            arbiter.flush_commits();
        }
    }

    fn set_up_tracing(&mut self, smb: Smb) {
        // A second memory would strand the writers of the first.
        if let Some(waker) = self.waker.take() {
            let arbiter = Arbiter::new(smb, self.endpoint.clone(), waker, self.options);
            arbiter.set_producer_thread();
            self.arbiter = Some(arbiter);
        }
    }

    fn set_up(&mut self, instance_id: u64, config_bytes: Arc<[u8]>, now_ns: u64) {
        let Some(arbiter) = &self.arbiter else { return };
        let (config, damaged) = match DataSourceConfig::decode(&config_bytes) {
            Ok(config) => (config, None),
            Err(error) => {
                (DataSourceConfig::default(), Some(format!("its config cannot be decoded: {error}")))
            }
        };
        let name = config.name().to_owned();
        let offered = self.offered.iter_mut().find(|offered| offered.name == name);
        let policy = ExhaustedPolicy::from_config(config.buffer_exhausted_policy.unwrap_or(0));
        // Where it is unknown what the service waits for, too much is better than a wait.
        let (answers, default) = offered
            .as_ref()
            .map_or((Answers { start: true, stop: true }, ExhaustedPolicy::Drop), |offered| {
                (offered.answers, offered.factory.exhausted_policy())
            });
        let info = InstanceInfo {
            instance_id,
            config,
            config_bytes,
            policy: policy.unwrap_or(default),
            poll_wanted: Arc::default(),
        };
        let source = match (damaged, offered) {
            (Some(damaged), _) => Err(damaged),
            (None, None) => Err("this producer has no such data source".to_owned()),
            (None, Some(offered)) => offered.factory.setup(&mut Context::new(&info, arbiter, now_ns)),
        };
        let source =
            source.map_err(|reason| (self.on_event)(ProducerEvent::SetupFailed { name, reason })).ok();
        let instance = Instance { info, source, answers, started: false, stopping: false, poll_at_ns: None };
        self.instances.insert(instance_id, instance);
    }

    fn start(&mut self, instance_id: u64, now_ns: u64) {
        let Some(arbiter) = &self.arbiter else { return };
        let Some(instance) = self.instances.get_mut(&instance_id).filter(|i| !i.started && !i.stopping)
        else {
            return;
        };
        instance.started = true;
        if let Some(source) = &mut instance.source {
            let wake = source.start(&mut Context::new(&instance.info, arbiter, now_ns));
            instance.poll_at_ns = wake.due_ns(None, now_ns);
        }
        if instance.answers.start {
            self.endpoint.data_source_started(instance_id);
        }
    }

    fn poll(&mut self, instance_id: u64, now_ns: u64) {
        let Some(arbiter) = &self.arbiter else { return };
        let Some(instance) = self.instances.get_mut(&instance_id) else { return };
        let before = instance.poll_at_ns.take();
        let Some(source) = &mut instance.source else { return };
        let mut cx = Context::new(&instance.info, arbiter, now_ns);
        let wake = source.poll(&mut cx);
        if cx.stopped && instance.stopping {
            self.end(instance_id);
            return;
        }
        // `Keep` of a moment that has passed would poll without end.
        instance.poll_at_ns = wake.due_ns(before.filter(|&at| at > now_ns), now_ns);
    }

    fn stop(&mut self, instance_id: u64, now_ns: u64) {
        let Some(arbiter) = &self.arbiter else { return };
        let Some(instance) = self.instances.get_mut(&instance_id).filter(|i| !i.stopping) else { return };
        instance.stopping = true;
        let mut cx = Context::new(&instance.info, arbiter, now_ns);
        let stop = match &mut instance.source {
            Some(source) if instance.started => source.stop(&mut cx),
            _ => Stop::Done,
        };
        match stop {
            Stop::Later(wake) if !cx.stopped => {
                instance.poll_at_ns = wake.due_ns(instance.poll_at_ns, now_ns)
            }
            _ => self.end(instance_id),
        }
    }

    /// Drops an instance, hands over what its writers had, and answers the stop behind it.
    fn end(&mut self, instance_id: u64) {
        let Some(Instance { answers, .. }) = self.instances.remove(&instance_id) else { return };
        self.commit();
        if answers.stop {
            self.endpoint.data_source_stopped(instance_id);
        }
    }

    fn flush(&mut self, request_id: u64, instance_ids: &[u64], now_ns: u64) {
        self.each(instance_ids, now_ns, |source, cx| source.flush(cx));
        if let Some(arbiter) = &self.arbiter {
            arbiter.notify_flush_complete(request_id);
        }
    }

    /// Calls `act` on those of the instances that are running.
    fn each(&mut self, ids: &[u64], now_ns: u64, mut act: impl FnMut(&mut dyn DataSource, &mut Context<'_>)) {
        let Some(arbiter) = &self.arbiter else { return };
        for instance_id in ids {
            let Some(instance) = self.instances.get_mut(instance_id).filter(|i| i.started) else { continue };
            if let Some(source) = &mut instance.source {
                act(source.as_mut(), &mut Context::new(&instance.info, arbiter, now_ns));
            }
        }
    }
}
