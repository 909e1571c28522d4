//! A session's config: the message to decide by, and the bytes to pass on. A struct would lose
//! fields that the schema does not know; the trace and the data sources get them all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use regex_lite::Regex;
use watershed_wire::config::{ConfigError, DataSourceConfig, ServiceFields, TraceConfig};
use watershed_wire::protos;
use watershed_wire::protos::data_source_config::SessionInitiator;
use watershed_wire::raw::Rewrite;

use crate::error::EnableError;
use crate::ids::{BufferId, SessionId};
use crate::limits;
use crate::session::trigger_rules::TriggerRules;

#[derive(Clone, Debug)]
pub(crate) struct SessionConfig {
    config: TraceConfig,
    pub(crate) entries: Vec<SourceEntry>,
    /// Which of them ask for a name.
    entries_by_name: BTreeMap<String, Vec<usize>>,
    /// `builtin_data_sources`, with nothing said in it if it is not there.
    builtin: protos::trace_config::BuiltinDataSource,
    pub(crate) triggers: TriggerRules,
}

/// One entry of `data_sources`.
#[derive(Clone, Debug)]
pub(crate) struct SourceEntry {
    pub(crate) name: String,
    /// Where it writes: an index into the session's buffers, which has been checked.
    pub(crate) buffer_index: usize,
    config: DataSourceConfig,
    /// What its instances get, made for the first.
    forwarded: Option<Arc<[u8]>>,
    producer_names: Vec<String>,
    producer_patterns: Vec<Regex>,
    machine_names: Vec<String>,
    /// A producer that the entry takes has offered it.
    is_offered: bool,
}

/// When a session is flushed without anybody asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushStrategy {
    Never,
    Periodic { period_ms: u32 },
    BeforeWrite,
}

impl SessionConfig {
    /// Reads a binary `TraceConfig`. Only its form is judged here.
    pub(super) fn read(bytes: &[u8]) -> Result<SessionConfig, EnableError> {
        let malformed = |error: ConfigError| EnableError::Malformed(error.to_string());
        let config = TraceConfig::from_binary(bytes.to_vec()).map_err(malformed)?;
        let builtin = config.view().builtin_data_sources.unwrap_or_default();
        Ok(SessionConfig {
            config,
            entries: Vec::new(),
            entries_by_name: BTreeMap::new(),
            builtin,
            triggers: TriggerRules::default(),
        })
    }

    /// The fields that the schema knows.
    pub(crate) fn message(&self) -> &protos::TraceConfig {
        self.config.view()
    }

    /// As it came.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.config.bytes()
    }

    /// Resolves the buffer and the filters of each data source.
    pub(super) fn resolve_sources(&mut self) -> Result<(), EnableError> {
        let configs =
            self.config.data_sources().map_err(|error| EnableError::Malformed(error.to_string()))?;
        let mut entries = Vec::with_capacity(configs.len());
        for (source, config) in self.message().data_sources.iter().zip(configs) {
            entries.push(SourceEntry {
                name: config.name().to_owned(),
                buffer_index: self.buffer_index(config.view())?,
                producer_names: source.producer_name_filter.clone(),
                producer_patterns: full_match_patterns(config.name(), &source.producer_name_regex_filter)?,
                machine_names: source.machine_name_filter.clone(),
                forwarded: None,
                is_offered: false,
                config,
            });
        }
        for (index, entry) in entries.iter().enumerate() {
            self.entries_by_name.entry(entry.name.clone()).or_default().push(index);
        }
        self.entries = entries;
        Ok(())
    }

    /// What the session does with triggers.
    pub(super) fn resolve_triggers(&mut self) -> Result<(), EnableError> {
        self.triggers = TriggerRules::of(self.message())?;
        Ok(())
    }

    /// The session takes this long from now on, as its trace and data sources that are set up later
    /// are told.
    pub(super) fn set_duration_ms(&mut self, duration_ms: u32) {
        const DURATION_MS: u32 = 3;
        let rewrite = Rewrite::new().set_varint(DURATION_MS, u64::from(duration_ms));
        // Refused only if the config is as large as configs get: then it is told with its old one.
        if let Ok(config) = self.config.rewritten(&rewrite) {
            self.config = config;
            self.entries.iter_mut().for_each(|entry| entry.forwarded = None);
        }
    }

    /// The producer filters are those of another config, see
    /// [`Service::handle_change_trace_config`](crate::Service::handle_change_trace_config).
    pub(super) fn change_filters(&mut self, other: &TraceConfig) -> Result<(), EnableError> {
        let malformed = |error: ConfigError| EnableError::Malformed(error.to_string());
        let config = self.config.with_filters_of(other).map_err(malformed)?;
        let sources = self.entries.iter().zip(&config.view().data_sources);
        let patterns: Result<Vec<_>, EnableError> = sources
            .map(|(entry, source)| full_match_patterns(&entry.name, &source.producer_name_regex_filter))
            .collect();
        for ((entry, source), patterns) in
            self.entries.iter_mut().zip(&config.view().data_sources).zip(patterns?)
        {
            entry.producer_names.clone_from(&source.producer_name_filter);
            entry.producer_patterns = patterns;
        }
        self.config = config;
        Ok(())
    }

    /// A producer that the entry takes has offered it.
    pub(super) fn note_offered(&mut self, entry_index: usize) {
        if let Some(entry) = self.entries.get_mut(entry_index) {
            entry.is_offered = true;
        }
    }

    /// Names of which an entry was offered by nobody so far, each once, in the order of the config.
    pub(crate) fn not_offered(&self) -> Vec<String> {
        let mut named = BTreeSet::new();
        let entries = self.entries.iter().filter(|entry| !entry.is_offered);
        let names = entries.map(|entry| &entry.name).filter(|name| named.insert(*name));
        names.cloned().collect()
    }

    /// Indices of the entries that ask for this name.
    pub(super) fn entries_of(&self, name: &str) -> Vec<usize> {
        self.entries_by_name.get(name).cloned().unwrap_or_default()
    }

    fn buffer_index(&self, config: &protos::DataSourceConfig) -> Result<usize, EnableError> {
        let data_source = || config.name().to_owned();
        let (buffers, target_buffer) = (&self.message().buffers, config.target_buffer());
        let name = config.target_buffer_name();
        if name.is_empty() {
            let in_range = usize::try_from(target_buffer).ok().filter(|index| *index < buffers.len());
            return in_range.ok_or_else(|| EnableError::NoSuchBuffer {
                data_source: data_source(),
                target_buffer,
                buffers: buffers.len(),
            });
        }
        let index_of_name = buffers.iter().position(|buffer| buffer.name() == name).ok_or_else(|| {
            EnableError::UnknownBufferName { data_source: data_source(), buffer: name.to_owned() }
        })?;
        if target_buffer > 0 && target_buffer as usize != index_of_name {
            return Err(EnableError::BufferNameAndIndexDisagree {
                data_source: data_source(),
                buffer: name.to_owned(),
                index_of_name,
                target_buffer,
            });
        }
        Ok(index_of_name)
    }

    pub(crate) fn builtin(&self) -> &protos::trace_config::BuiltinDataSource {
        &self.builtin
    }

    pub(crate) fn stop_timeout_ms(&self) -> u32 {
        non_zero_or(self.message().data_source_stop_timeout_ms(), limits::STOP_TIMEOUT_MS_DEFAULT)
    }

    pub(crate) fn flush_timeout_ms(&self) -> u32 {
        non_zero_or(self.message().flush_timeout_ms(), limits::FLUSH_TIMEOUT_MS_DEFAULT)
    }

    pub(crate) fn snapshot_interval_ms(&self) -> u32 {
        non_zero_or(self.builtin().snapshot_interval_ms(), limits::SNAPSHOT_INTERVAL_MS_DEFAULT)
    }

    pub(crate) fn file_write_period_ms(&self) -> u32 {
        non_zero_or(self.message().file_write_period_ms(), limits::FILE_WRITE_PERIOD_MS_DEFAULT)
            .max(limits::FILE_WRITE_PERIOD_MS_MIN)
    }

    pub(crate) fn flush_strategy(&self) -> FlushStrategy {
        use protos::trace_config::WriteFlushMode;
        let as_configured = match self.message().flush_period_ms() {
            0 => FlushStrategy::Never,
            period_ms => FlushStrategy::Periodic { period_ms },
        };
        if !self.message().write_into_file() {
            return as_configured;
        }
        match self.message().write_flush_mode() {
            WriteFlushMode::WriteFlushEnabled => FlushStrategy::BeforeWrite,
            WriteFlushMode::WriteFlushDisabled => as_configured,
            WriteFlushMode::WriteFlushAuto | WriteFlushMode::WriteFlushUnspecified
                if self.file_write_period_ms() <= limits::FILE_FLUSH_PERIOD_MS =>
            {
                FlushStrategy::Periodic { period_ms: limits::FILE_FLUSH_PERIOD_MS }
            }
            WriteFlushMode::WriteFlushAuto | WriteFlushMode::WriteFlushUnspecified => {
                FlushStrategy::BeforeWrite
            }
        }
    }

    /// What a data source gets of an entry: its bytes, with the fields that are the service's to
    /// write replaced. The same for all its instances. `None` if there is no such entry.
    pub(super) fn forwarded(
        &mut self,
        entry_index: usize,
        session_id: SessionId,
        target_buffer: BufferId,
    ) -> Option<Arc<[u8]>> {
        if let Some(forwarded) = &self.entries.get(entry_index)?.forwarded {
            return Some(Arc::clone(forwarded));
        }
        let message = self.message();
        let fields = ServiceFields {
            target_buffer: target_buffer.0,
            trace_duration_ms: message.duration_ms(),
            tracing_session_id: session_id.0,
            enable_extra_guardrails: message.enable_extra_guardrails(),
            stop_timeout_ms: self.stop_timeout_ms(),
            // Who asked for the session is known on Android only.
            session_initiator: SessionInitiator::Unspecified,
            prefer_suspend_clock_for_duration: message.prefer_suspend_clock_for_duration(),
        };
        let entry = self.entries.get_mut(entry_index)?;
        let forwarded = Arc::from(entry.config.stamped(&fields).ok()?.bytes());
        entry.forwarded = Some(Arc::clone(&forwarded));
        Some(forwarded)
    }
}

impl SourceEntry {
    pub(super) fn takes_producer(&self, name: &str) -> bool {
        if self.producer_names.is_empty() && self.producer_patterns.is_empty() {
            return true;
        }
        self.producer_names.iter().any(|wanted| wanted == name)
            || self.producer_patterns.iter().any(|pattern| pattern.is_match(name))
    }

    /// `machine_name` is `None` for this machine, which is also called "host".
    pub(super) fn takes_machine(&self, machine_name: Option<&str>, all_machines: bool) -> bool {
        if self.machine_names.is_empty() {
            return machine_name.is_none() || all_machines;
        }
        self.machine_names.iter().any(|wanted| wanted == machine_name.unwrap_or("host"))
    }
}

fn full_match_patterns(data_source: &str, patterns: &[String]) -> Result<Vec<Regex>, EnableError> {
    let compile = |pattern: &String| {
        Regex::new(&format!("^(?:{pattern})$")).map_err(|error| EnableError::BadPattern {
            data_source: data_source.to_owned(),
            pattern: pattern.clone(),
            reason: error.to_string(),
        })
    };
    patterns.iter().map(compile).collect()
}

fn non_zero_or(value: u32, default: u32) -> u32 {
    if value == 0 { default } else { value }
}
