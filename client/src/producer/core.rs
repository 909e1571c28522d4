//! The producer as a state machine.

use std::collections::BTreeMap;
use std::time::Duration;

use watershed_smb::Smb;
use watershed_wire::protos::DataSourceConfig;
use watershed_wire::{Decode as _, Encode as _};

use super::flushes::Flushes;
use super::instance::{Answers, Instance, Offered};
use super::startup::{StartupError, Startups};
use super::{BATCH_COMMITS, Command};
use crate::arbiter::{Arbiter, ArbiterOptions, ExhaustedPolicy, Waker};
use crate::data_source::{Context, DataSource, DataSourceFactory, InstanceInfo, Wake};
use crate::endpoint::Endpoint;
use crate::sync::Arc;

/// How long a descriptor that has changed waits for others: a program has many categories, and
/// names them one by one.
const DESCRIBE_AFTER: Duration = Duration::from_millis(10);

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
    /// An instance that traced at startup has ended before a session came for it. What it wrote is
    /// in no trace.
    StartupLost {
        /// Name of the data source.
        name: String,
        /// Why.
        reason: String,
    },
}

/// The data sources of one connection: takes commands, calls sources, answers.
///
/// Times are readings of CLOCK_MONOTONIC in nanoseconds.
pub struct ProducerCore {
    endpoint: Arc<dyn Endpoint>,
    waker: Option<Box<dyn Waker>>,
    options: ArbiterOptions,
    arbiter: Option<Arbiter>,
    /// The arbiter's, if the producer made it.
    own_memory: Option<Smb>,
    offered: Vec<Offered>,
    instances: BTreeMap<u64, Instance>,
    startups: Startups,
    flushes: Flushes,
    commit_at_ns: Option<u64>,
    describe_at_ns: Option<u64>,
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
            own_memory: None,
            offered: Vec::new(),
            instances: BTreeMap::new(),
            startups: Startups::default(),
            flushes: Flushes::default(),
            commit_at_ns: None,
            describe_at_ns: None,
            on_event,
        }
    }

    /// The producer has a new connection: what it had of the old one is dropped, as by
    /// [`ProducerCore::shut_down`], and all its data sources are offered to the new `endpoint`.
    pub fn reconnect(&mut self, endpoint: Arc<dyn Endpoint>, waker: Box<dyn Waker>, options: ArbiterOptions) {
        self.shut_down();
        (self.waker, self.options) = (Some(waker), options);
        self.offer_to(endpoint);
    }

    /// The producer makes memory itself, before there is a service.
    pub(crate) fn set_own_memory(&mut self, smb: Smb, waker: Box<dyn Waker>, options: ArbiterOptions) {
        self.waker = None;
        let arbiter = Arbiter::unbound(smb.clone(), waker, options);
        arbiter.set_producer_thread();
        self.arbiter = Some(arbiter);
        self.own_memory = Some(smb);
    }

    /// Memory that the producer made and uses.
    pub(crate) fn own_memory(&self) -> Option<&Smb> {
        self.own_memory.as_ref()
    }

    /// The service has taken the memory that the producer made.
    pub(crate) fn connect_own(&mut self, endpoint: Arc<dyn Endpoint>, direct_patching: bool) {
        if let Some(arbiter) = &self.arbiter {
            arbiter.bind(endpoint.clone(), direct_patching);
        }
        self.offer_to(endpoint);
    }

    fn offer_to(&mut self, endpoint: Arc<dyn Endpoint>) {
        self.endpoint = endpoint;
        for offered in &mut self.offered {
            offered.describe();
            self.endpoint.register_data_source(&offered.descriptor);
        }
    }

    /// Offers a data source to the service. A second source of the same name is never asked: the
    /// first one is.
    pub fn register(&mut self, factory: Box<dyn DataSourceFactory>) {
        let offered = Offered::new(factory, self.offered.len() as u64);
        self.endpoint.register_data_source(&offered.descriptor);
        self.offered.push(offered);
    }

    /// Some data source is described in another way from now on. The service is told a little
    /// later: changes of this kind come together.
    pub fn handle_descriptor_changed(&mut self, now_ns: u64) {
        let due_ns = now_ns.saturating_add(DESCRIBE_AFTER.as_nanos() as u64);
        self.describe_at_ns.get_or_insert(due_ns);
    }

    fn update_descriptors(&mut self) {
        for offered in &mut self.offered {
            if offered.describe() {
                self.endpoint.update_data_source(&offered.descriptor);
            }
        }
    }

    /// The first of `configs` that its data source refuses: the source's name and what it says.
    #[must_use]
    pub fn check(&self, configs: &[DataSourceConfig]) -> Option<(String, String)> {
        configs.iter().find_map(|config| {
            let offered = self.offered.iter().find(|offered| offered.name == config.name())?;
            offered.factory.check(config).err().map(|reason| (offered.name.clone(), reason))
        })
    }

    /// The arbiter, once there is memory.
    #[must_use]
    pub fn arbiter(&self) -> Option<&Arbiter> {
        self.arbiter.as_ref()
    }

    /// Starts an instance before any session asks for it. The first session that sets up the same
    /// data source with the same config takes it over; without one within `adopt_within` it ends,
    /// and what it wrote is lost.
    pub(crate) fn trace_startup(
        &mut self,
        config: DataSourceConfig,
        adopt_within: Duration,
        now_ns: u64,
    ) -> Result<(), StartupError> {
        let arbiter =
            self.arbiter.as_ref().filter(|_| self.own_memory.is_some()).ok_or(StartupError::NoMemory)?;
        let name = config.name().to_owned();
        let offered = self.offered.iter_mut().find(|offered| offered.name == name);
        let offered = offered.ok_or_else(|| StartupError::NoSuchDataSource(name.clone()))?;
        let reservation = arbiter.reserve();
        let info = InstanceInfo {
            instance_id: 0,
            config_bytes: config.encode_to_vec().into(),
            config,
            policy: ExhaustedPolicy::Drop,
            reservation: Some(reservation),
            poll_wanted: Arc::default(),
        };
        match offered.factory.setup(&mut Context::new(&info, arbiter, now_ns)) {
            Ok(source) => {
                let instance = Instance::new(info, Some(source), offered.answers);
                self.startups.start(instance, adopt_within, arbiter, now_ns);
                Ok(())
            }
            Err(reason) => {
                arbiter.bind_reservation(reservation, None);
                Err(StartupError::SetupFailed { name, reason })
            }
        }
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
        let polls = self.instances.values().filter_map(|instance| instance.poll_at_ns);
        polls.chain(self.startups.poll_timeout()).chain(self.commit_at_ns).chain(self.describe_at_ns).min()
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
        if let Some(arbiter) = &self.arbiter {
            let over = self.startups.handle_timeout(arbiter, now_ns);
            self.tell_lost(over, "no session came for it in time");
        }
        if self.describe_at_ns.take_if(|at| *at <= now_ns).is_some() {
            self.update_descriptors();
        }
        if self.commit_at_ns.is_some_and(|at| at <= now_ns) {
            self.commit_at_ns = None;
            match self.endpoint.has_room() {
                true => self.commit(),
                false => self.handle_wake(BATCH_COMMITS, now_ns),
            }
        }
    }

    /// The connection ends: instances are dropped without being asked, memory is given up.
    pub fn shut_down(&mut self) {
        let instances = std::mem::take(&mut self.instances).into_values();
        // Those that a session has taken over, and not started.
        let waiting = instances.filter(|instance| instance.info.reservation.is_some());
        let mut lost: Vec<String> = waiting.map(|instance| instance.name().to_owned()).collect();
        lost.extend(self.startups.clear());
        self.tell_lost(lost, "the memory that it wrote to was given up");
        self.own_memory = None;
        self.flushes.clear();
        self.commit_at_ns = None;
        if let Some(arbiter) = self.arbiter.take() {
            arbiter.shut_down();
        }
    }

    fn tell_lost(&mut self, names: Vec<String>, reason: &str) {
        for name in names {
            (self.on_event)(ProducerEvent::StartupLost { name, reason: reason.to_owned() });
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
            reservation: None,
            poll_wanted: Arc::default(),
        };
        if damaged.is_none()
            && let Some(mut startup) = self.startups.adopt(&info.config_bytes)
        {
            let startup_info = std::mem::replace(&mut startup.info, info);
            (startup.info.reservation, startup.info.poll_wanted) =
                (startup_info.reservation, startup_info.poll_wanted);
            self.instances.insert(instance_id, startup);
            return;
        }
        let source = match (damaged, offered) {
            (Some(damaged), _) => Err(damaged),
            (None, None) => Err("this producer has no such data source".to_owned()),
            (None, Some(offered)) => offered.factory.setup(&mut Context::new(&info, arbiter, now_ns)),
        };
        let source =
            source.map_err(|reason| (self.on_event)(ProducerEvent::SetupFailed { name, reason })).ok();
        self.instances.insert(instance_id, Instance::new(info, source, answers));
    }

    fn start(&mut self, instance_id: u64, now_ns: u64) {
        let Some(arbiter) = &self.arbiter else { return };
        let Some(instance) = self.instances.get_mut(&instance_id).filter(|i| !i.stopping) else { return };
        match instance.info.reservation.take() {
            // It has run since startup.
            Some(reservation) => {
                arbiter.bind_reservation(reservation, Some(instance.info.config.target_buffer() as u16));
            }
            None if instance.started => return,
            None => instance.start(arbiter, now_ns),
        }
        if instance.answers.start {
            self.endpoint.data_source_started(instance_id);
        }
    }

    fn poll(&mut self, instance_id: u64, now_ns: u64) {
        let Some(arbiter) = &self.arbiter else { return };
        let Some(instance) = self.instances.get_mut(&instance_id) else { return };
        match instance.poll(arbiter, now_ns) {
            true => self.end(instance_id),
            false => self.answer_flushes(),
        }
    }

    fn stop(&mut self, instance_id: u64, now_ns: u64) {
        let Some(arbiter) = &self.arbiter else { return };
        let Some(instance) = self.instances.get_mut(&instance_id).filter(|i| !i.stopping) else { return };
        if instance.stop(arbiter, now_ns) {
            self.end(instance_id);
        }
    }

    /// Drops an instance, hands over what its writers had, and answers the stop behind it.
    fn end(&mut self, instance_id: u64) {
        let Some(Instance { answers, info, .. }) = self.instances.remove(&instance_id) else { return };
        if let (Some(reservation), Some(arbiter)) = (info.reservation, &self.arbiter) {
            arbiter.bind_reservation(reservation, Some(info.config.target_buffer() as u16));
        }
        self.answer_flushes();
        self.commit();
        if answers.stop {
            self.endpoint.data_source_stopped(instance_id);
        }
    }

    fn flush(&mut self, request_id: u64, instance_ids: &[u64], now_ns: u64) {
        let Some(arbiter) = &self.arbiter else { return };
        for instance_id in instance_ids {
            if let Some(instance) = self.instances.get_mut(instance_id) {
                instance.flush(arbiter, now_ns);
            }
        }
        self.flushes.begin(request_id, instance_ids);
        self.answer_flushes();
    }

    fn answer_flushes(&mut self) {
        let Some(arbiter) = &self.arbiter else { return };
        let is_flushing = |id: u64| self.instances.get(&id).is_some_and(|instance| instance.flushing);
        for request_id in self.flushes.take_done(is_flushing) {
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
