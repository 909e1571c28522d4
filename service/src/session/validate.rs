//! The checks that a config has to pass, in their order: the first failure wins. Source of the
//! order: spec, service 4.6.

use watershed_wire::protos;

use crate::clock::ClockReadings;
use crate::consumer::OutputFile;
use crate::error::EnableError;
use crate::limits;
use crate::service::Service;
use crate::session::{Session, SessionConfig, SessionState, trigger_rules};

type Checked = Result<(), EnableError>;

impl Service {
    /// Everything up to what needs resources. `config` comes out with its data sources resolved.
    pub(super) fn check_config(&self, config: &mut SessionConfig, uid: i32, now: &ClockReadings) -> Checked {
        check_duration(config.message())?;
        trigger_rules::check(config.message(), duration_ms_max(config.message()))?;
        check_supported(config.message())?;
        check_bugreport_filename(config.message().bugreport_filename())?;
        if config.message().enable_extra_guardrails() {
            check_guardrails(config.message())?;
        }
        check_buffers(config.message())?;
        check_lengths(config.message())?;
        config.resolve_sources()?;
        config.resolve_triggers()?;

        let message = config.message();
        self.check_exclusive(message.exclusive_prio())?;
        // An exclusive session ends all others, so none of them can be in its way.
        let others: Vec<&Session> =
            if message.exclusive_prio() > 0 { Vec::new() } else { self.sessions.values().collect() };
        check_unique_name(message, &others)?;
        check_semaphores(message, &others)?;
        if message.enable_extra_guardrails() {
            self.check_guardrail_interval(message, now)?;
        }
        check_session_limits(uid, &others)
    }

    fn check_exclusive(&self, requested: u32) -> Checked {
        let active = self
            .sessions
            .values()
            .filter(|session| session.is_active())
            .map(|session| session.config.message().exclusive_prio())
            .max()
            .unwrap_or(0);
        if active > 0 && active >= requested {
            return Err(EnableError::ExclusiveSessionActive { active, requested });
        }
        Ok(())
    }

    fn check_guardrail_interval(&self, message: &protos::TraceConfig, now: &ClockReadings) -> Checked {
        let name = message.unique_session_name();
        let too_soon = self.last_start_ns_by_name.get(name).is_some_and(|started_ns| {
            now.boottime_ns.saturating_sub(*started_ns) < limits::GUARDRAIL_SAME_NAME_INTERVAL_NS
        });
        if too_soon { Err(EnableError::GuardrailTooSoon { name: name.to_owned() }) } else { Ok(()) }
    }
}

fn duration_ms_max(message: &protos::TraceConfig) -> u32 {
    match message.enable_extra_guardrails() {
        true => limits::DURATION_MS_MAX_GUARDRAIL,
        false => limits::DURATION_MS_MAX,
    }
}

fn check_duration(message: &protos::TraceConfig) -> Checked {
    let (duration_ms, max_ms) = (message.duration_ms(), duration_ms_max(message));
    if duration_ms > max_ms { Err(EnableError::DurationTooLong { duration_ms, max_ms }) } else { Ok(()) }
}

/// Options without which the trace would not be what was asked for: a config with one of them is
/// refused.
fn check_supported(message: &protos::TraceConfig) -> Checked {
    let refuse = |field, hint| Err(EnableError::NotSupported { field, hint });
    if message.priority_boost.is_some() {
        return refuse("priority_boost", "");
    }
    Ok(())
}

fn check_bugreport_filename(name: &str) -> Checked {
    let allowed = |character: &char| character.is_ascii_alphanumeric() || "_.-".contains(*character);
    match name.chars().find(|character| !allowed(character)) {
        Some(character) => Err(EnableError::BugreportFilename { character }),
        None => Ok(()),
    }
}

fn check_guardrails(message: &protos::TraceConfig) -> Checked {
    if message.deferred_start() {
        return Err(EnableError::GuardrailDeferredStart);
    }
    let sizes = || message.buffers.iter().map(protos::trace_config::BufferConfig::size_kb);
    if let Some((index, size_kb)) = sizes().enumerate().find(|(_, size_kb)| size_kb % 4 != 0) {
        return Err(EnableError::GuardrailBufferSize { index, size_kb });
    }
    let overridden =
        message.guardrail_overrides.as_ref().map_or(0, |guardrail| guardrail.max_tracing_buffer_size_kb());
    let max_kb = limits::GUARDRAIL_BUFFERS_KB_MAX.max(u64::from(overridden));
    let total_kb = sizes().map(u64::from).sum();
    if total_kb > max_kb {
        return Err(EnableError::GuardrailBufferTotal { total_kb, max_kb });
    }
    Ok(())
}

fn check_buffers(message: &protos::TraceConfig) -> Checked {
    let count = message.buffers.len();
    if count > limits::BUFFERS_PER_SESSION_MAX {
        return Err(EnableError::TooManyBuffers { count });
    }
    let named = |name: &str| message.buffers.iter().filter(|buffer| buffer.name() == name).count();
    let names = message.buffers.iter().map(protos::trace_config::BufferConfig::name);
    match names.filter(|name| !name.is_empty()).find(|name| named(name) > 1) {
        Some(name) => Err(EnableError::DuplicateBufferName { name: name.to_owned() }),
        None => Ok(()),
    }
}

/// Lists that are looked through more often than once.
fn check_lengths(message: &protos::TraceConfig) -> Checked {
    let lists = [
        ("data_sources", message.data_sources.len(), limits::DATA_SOURCES_PER_CONFIG_MAX),
        ("producers", message.producers.len(), limits::PRODUCER_WISHES_MAX),
        ("session_semaphores", message.session_semaphores.len(), limits::SEMAPHORES_PER_CONFIG_MAX),
    ];
    match lists.into_iter().find(|(_, count, max)| count > max) {
        Some((field, count, max)) => Err(EnableError::ListTooLong { field, count, max }),
        None => Ok(()),
    }
}

fn check_unique_name(message: &protos::TraceConfig, others: &[&Session]) -> Checked {
    let name = message.unique_session_name();
    let taken = others.iter().any(|other| {
        other.state != SessionState::Cloned && other.config.message().unique_session_name() == name
    });
    if !name.is_empty() && taken {
        return Err(EnableError::DuplicateSessionName { name: name.to_owned() });
    }
    Ok(())
}

fn check_semaphores(message: &protos::TraceConfig, others: &[&Session]) -> Checked {
    for semaphore in &message.session_semaphores {
        let held = others.iter().filter(|other| other.is_active()).filter_map(|other| {
            other.config.message().session_semaphores.iter().find(|held| held.name() == semaphore.name())
        });
        let (count, max) = held.fold((0, semaphore.max_other_session_count()), |(count, max), held| {
            (count + 1, max.min(held.max_other_session_count()))
        });
        if count > max {
            return Err(EnableError::SemaphoreTaken { name: semaphore.name().to_owned(), count, max });
        }
    }
    Ok(())
}

fn check_session_limits(uid: i32, others: &[&Session]) -> Checked {
    let originals = others.iter().filter(|other| other.state != SessionState::Cloned);
    let uids: Vec<i32> = originals.map(|other| other.consumer_uid).collect();
    if uids.iter().filter(|other| **other == uid).count() >= limits::SESSIONS_PER_UID_MAX {
        return Err(EnableError::TooManySessionsOfUid { uid });
    }
    if uids.len() >= limits::SESSIONS_MAX {
        return Err(EnableError::TooManySessions);
    }
    Ok(())
}

/// Takes or makes the file of a session that writes into one. Returns whether there is one.
pub(super) fn open_file(message: &protos::TraceConfig, file: OutputFile<'_>) -> Result<bool, EnableError> {
    if !message.write_into_file() {
        return Ok(false);
    }
    let path = message.output_path();
    match file {
        OutputFile::Provided if path.is_empty() => Ok(true),
        OutputFile::Provided => Err(EnableError::TwoFiles),
        OutputFile::Create(create) if !path.is_empty() => match create(path) {
            Ok(()) => Ok(true),
            Err(reason) => Err(EnableError::FileNotCreated { path: path.to_owned(), reason }),
        },
        OutputFile::Create(_) | OutputFile::None => Err(EnableError::NoFile),
    }
}
