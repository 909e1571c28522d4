//! From a config to a session with buffers and data sources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use watershed_engine::{BufferConfig, FillPolicy, HugePages};
use watershed_smb::SmbSize;
use watershed_wire::protos;

use crate::buffers::Buffer;
use crate::clock::ClockReadings;
use crate::compress::Codec;
use crate::consumer::OutputFile;
use crate::error::EnableError;
use crate::filter::{Filtering, TraceFilter};
use crate::ids::{BufferId, ConsumerId, SessionId};
use crate::limits;
use crate::options::Shards;
use crate::output::Warning;
use crate::producer::Producer;
use crate::read::{ReadState, SharedSequences};
use crate::service::Service;
use crate::session::trigger_rules::{TriggerMode, TriggerRules};
use crate::session::triggers::SessionTriggers;
use crate::session::validate::open_file;
use crate::session::{
    FileWriter, Instances, PendingPackets, Session, SessionConfig, SessionCounters, SessionState,
};
use crate::timer::TimerTable;

impl Service {
    /// A consumer asks for a session. It is configured, and started unless the config defers that.
    ///
    /// `config` is a binary `TraceConfig`. It goes into the trace as it is, byte for byte, and each
    /// data source gets its part of it with everything that the schema does not know. `file`
    /// matters only to a config with `write_into_file`.
    ///
    /// That no data source of a wanted name is registered is no error: it may come later.
    /// [`Service::data_sources`] tells what there is.
    ///
    /// # Errors
    ///
    /// [`EnableError`], whose text is for the consumer; no session is left behind. `lockdown_mode`
    /// takes effect even then. An unknown consumer gets [`EnableError::AlreadyHasSession`]: it has
    /// no room for one.
    pub fn handle_enable_tracing(
        &mut self,
        consumer_id: ConsumerId,
        config: &[u8],
        file: OutputFile<'_>,
        now: &ClockReadings,
    ) -> Result<SessionId, EnableError> {
        let mut config = SessionConfig::read(config)?;
        self.apply_lockdown(config.message().lockdown_mode());
        let consumer = self.consumers.get(&consumer_id);
        let free_consumer = consumer.filter(|_| !self.has_or_awaits_session(consumer_id));
        let consumer_uid = free_consumer.ok_or(EnableError::AlreadyHasSession)?.identity.uid;
        self.check_config(&mut config, consumer_uid, now)?;
        let filter = config.message().trace_filter.as_ref().map(TraceFilter::load).transpose()?;
        let filtering = Filtering::new(filter, config.message().buffers.len(), self.options.filter_clock);
        let has_file = open_file(config.message(), file)?;
        // Of the session to come.
        let session_id = SessionId(self.counters.last_session_id + 1);
        let buffers = self.make_buffers(session_id, config.message())?;

        if config.message().exclusive_prio() > 0 {
            self.abort_all_sessions(now);
        }
        if config.message().enable_extra_guardrails() {
            self.note_start(config.message().unique_session_name(), now);
        }
        self.counters.last_session_id = session_id.0;
        self.warn_about_ignored(session_id, config.message());
        self.warn_about_buffers(session_id, &buffers);
        let deferred = config.message().deferred_start() || config.triggers.mode == TriggerMode::Start;
        let session = Session {
            consumer_id: Some(consumer_id),
            detach_key: None,
            consumer_uid,
            uuid: self.trace_uuid(config.message()),
            file: has_file.then(|| FileWriter::new(config.message().max_file_size_bytes())),
            look: None,
            reading: ReadState::default(),
            config,
            state: SessionState::Disabled,
            instances: Instances::default(),
            buffers,
            producers: BTreeSet::new(),
            timers: TimerTable::default(),
            flushes: BTreeMap::new(),
            clones: BTreeMap::new(),
            pending: PendingPackets::default(),
            sequences: SharedSequences::default(),
            filtering: Arc::new(filtering),
            triggers: SessionTriggers::default(),
            counters: SessionCounters::default(),
            all_started_told: false,
            error: None,
            end_told: false,
            free_when_closed: false,
        };
        self.sessions.insert(session_id, session);
        if let Some(consumer) = self.consumers.get_mut(&consumer_id) {
            consumer.session_id = Some(session_id);
        }
        self.set_up_all(session_id);
        self.set_state(session_id, SessionState::Configured, now);
        self.await_trigger(session_id, now);
        if !deferred {
            self.start(session_id, now);
        }
        Ok(session_id)
    }

    /// Keeps when a session with guardrails has started.
    fn note_start(&mut self, name: &str, now: &ClockReadings) {
        let starts = &mut self.last_start_ns_by_name;
        if starts.len() >= limits::START_TIMES_MAX && !starts.contains_key(name) {
            let oldest = starts.iter().min_by_key(|(_, started_ns)| **started_ns);
            let oldest = oldest.map(|(name, _)| name.clone()).unwrap_or_default();
            starts.remove(&oldest);
        }
        starts.insert(name.to_owned(), now.boottime_ns);
    }

    fn apply_lockdown(&mut self, operation: protos::trace_config::LockdownModeOperation) {
        use protos::trace_config::LockdownModeOperation as Operation;
        match operation {
            Operation::LockdownSet => self.locked_down = true,
            Operation::LockdownClear => self.locked_down = false,
            Operation::LockdownUnchanged => {}
        }
    }

    fn trace_uuid(&mut self, message: &protos::TraceConfig) -> (i64, i64) {
        match (message.trace_uuid_msb(), message.trace_uuid_lsb()) {
            (0, 0) => (self.random.i64(..), self.random.i64(..)),
            given => given,
        }
    }

    /// All buffers or none.
    fn make_buffers(
        &mut self,
        session_id: SessionId,
        message: &protos::TraceConfig,
    ) -> Result<Vec<BufferId>, EnableError> {
        let mut made = Vec::with_capacity(message.buffers.len());
        let page_bytes = self.largest_page_bytes(message);
        for (index, buffer) in message.buffers.iter().enumerate() {
            let buffer = self.new_buffer(session_id, buffer, index, page_bytes);
            match buffer.and_then(|buffer| self.buffers.insert(buffer).ok_or(EnableError::NoBufferIds)) {
                Ok(buffer_id) => made.push(buffer_id),
                Err(error) => {
                    self.remove_buffers(&made);
                    return Err(error);
                }
            }
        }
        Ok(made)
    }

    /// A buffer as the config wants it, `index` of its list.
    pub(super) fn new_buffer(
        &self,
        session_id: SessionId,
        buffer: &protos::trace_config::BufferConfig,
        index: usize,
        page_bytes: usize,
    ) -> Result<Buffer, EnableError> {
        use protos::trace_config::buffer_config::FillPolicy as Wanted;
        let size_kb = buffer.size_kb();
        if !(1..=limits::BUFFER_SIZE_KB_MAX).contains(&size_kb) {
            return Err(EnableError::BufferSize { index, size_kb });
        }
        let config = BufferConfig {
            size_bytes: size_kb as usize * 1024,
            policy: match buffer.fill_policy() {
                Wanted::Discard => FillPolicy::Discard,
                Wanted::RingBuffer | Wanted::Unspecified => FillPolicy::RingBuffer,
            },
            huge_pages: self.options.huge_pages,
        };
        let num_shards = self.options.shards.for_buffer(config.size_bytes);
        let workers = self.options.workers.clone();
        let buffer = Buffer::create(session_id, config, num_shards, page_bytes, workers)
            .map_err(|error| EnableError::NoMemory { index, size_kb, reason: error.to_string() })?;
        if self.has_slow_pages {
            buffer.trace.use_plain_pages();
        }
        Ok(buffer)
    }

    /// The largest page of shared memory in use, as far as it is known: whoever comes later may
    /// have larger ones, which costs room in the buffer and nothing else.
    pub(super) fn largest_page_bytes(&self, message: &protos::TraceConfig) -> usize {
        let wished = message.producers.iter().map(|wish| wish.page_size_kb() as usize * 1024);
        let in_use = self.producers.values().map(Producer::page_size_bytes);
        let negotiated = wished.chain(in_use).map(|bytes| SmbSize::negotiate(bytes, 0).page_size_bytes());
        negotiated.max().unwrap_or(SmbSize::DEFAULT.page_size_bytes())
    }

    fn warn_about_buffers(&mut self, session_id: SessionId, buffer_ids: &[BufferId]) {
        for (index, buffer_id) in buffer_ids.iter().enumerate() {
            let Some(report) = self.buffers.get(*buffer_id).map(|buffer| buffer.trace.report()) else {
                continue;
            };
            if self.options.huge_pages == HugePages::Explicit && report.pages != HugePages::Explicit {
                self.warn(Warning::NoHugePages { session_id, index });
            }
            if let (Shards::Wanted(_), Some(reason)) = (self.options.shards, report.reduced) {
                let (wanted, num_shards) = (report.num_shards_wanted, report.layout.num_shards);
                self.warn(Warning::FewerShards { session_id, index, wanted, num_shards, reason });
            }
        }
    }

    pub(super) fn remove_buffers(&mut self, buffer_ids: &[BufferId]) {
        buffer_ids.iter().for_each(|buffer_id| self.direct.remove_buffer(*buffer_id));
        let removed: Vec<Buffer> = buffer_ids.iter().filter_map(|id| self.buffers.remove(*id)).collect();
        self.discard(removed);
    }

    /// What can be left out without making the trace wrong.
    fn warn_about_ignored(&mut self, session_id: SessionId, message: &protos::TraceConfig) {
        let mut ignored = |field, instead| self.warn(Warning::ConfigIgnored { session_id, field, instead });
        match Codec::of(message) {
            None if Codec::is_wanted(message) => ignored("compression", "the trace is not compressed"),
            Some(_) if !message.write_into_file() => {
                ignored("compression without write_into_file", "what is read is not compressed");
            }
            _ => {}
        }
        if Codec::of(message).is_some_and(|codec| codec.ignores_level(message)) {
            ignored("compression.zstd.level", "the fastest level is used");
        }
        if TriggerRules::are_idle_in(message) {
            ignored("trigger_config", "its triggers do nothing without a trigger_mode");
        }
        let protovm = |source: &protos::trace_config::DataSource| {
            source.config.as_ref().is_some_and(|config| config.protovm_config.is_some())
        };
        if message.data_sources.iter().any(protovm) {
            ignored("protovm_config", "overwritten packets are lost and reported as such");
        }
    }
}
