//! The command that is recorded, as a slice of the trace: a data source of `record` itself.
//!
//! ```text
//!   process of the command (pid, arguments)
//!     track "command"   |---- make -j8 ------------------------|   exit_code or signal
//! ```
//!
//! The session's config asks for the source, so a session of another service has it too, from the
//! producer that `record` is then. Other sessions of that service may ask for it as well: each
//! instance has a writer of its own.

use std::collections::HashMap;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use watershed_client::clock::boottime_ns;
use watershed_client::data_source::{Context, DataSource, DataSourceFactory, Stop, Wake};
use watershed_client::writer::TraceWriter;
use watershed_wire::Encode as _;
use watershed_wire::config::{ConfigError, TraceConfig};
use watershed_wire::protos;
use watershed_wire::protos::debug_annotation::{NameField, Value};
use watershed_wire::protos::trace_packet::{Data, SequenceFlags};
use watershed_wire::protos::track_descriptor::StaticOrDynamicName;
use watershed_wire::protos::track_event::{self, Type};
use watershed_wire::protos::{
    DataSourceConfig, DataSourceDescriptor, DebugAnnotation, ProcessDescriptor, TracePacket, TrackDescriptor,
    TrackEvent,
};
use watershed_wire::raw::{Fields, Rewrite};

use crate::command_slice::{CATEGORY, COMMAND_LINE, EXIT_CODE, PID, SIGNAL};

/// The data source's name.
const NAME: &str = "watershed.command";
/// Field `TraceConfig.data_sources`.
const DATA_SOURCES: u32 = 2;

/// Arguments are as long as the system lets them be; a name is what a viewer has room for.
const COMMAND_LINE_SIZE_BYTES_MAX: usize = 32 << 10;
const NAME_SIZE_BYTES_MAX: usize = 200;

/// Marks one command. Clones mark the same one.
#[derive(Clone, Default)]
pub(super) struct Mark(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Of each instance of the data source that is started, by its id.
    writers: HashMap<u64, TraceWriter>,
    /// All there is to say so far: an instance that starts later has it too.
    packets: Vec<TracePacket>,
    /// Once the command has begun; what it is, for begin and end.
    track_uuid: u64,
    about: Vec<DebugAnnotation>,
}

impl Mark {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// What offers the data source.
    pub(super) fn factory(&self) -> Box<dyn DataSourceFactory> {
        Box::new(Factory(self.clone()))
    }

    /// The config without the data source, which one that was taken from a trace has: it names a
    /// producer that is gone.
    pub(super) fn removed_from(config: &TraceConfig) -> Result<TraceConfig, ConfigError> {
        let is_ours = |source: &protos::trace_config::DataSource| {
            source.config.as_ref().is_some_and(|config| config.name() == NAME)
        };
        let sources = &config.view().data_sources;
        if !sources.iter().any(is_ours) {
            return Ok(config.clone());
        }
        let fields = Fields::new(config.bytes()).flatten().filter(|field| field.number == DATA_SOURCES);
        let entries = fields.filter_map(|field| field.value.bytes()).zip(sources);
        let others = entries.filter(|(_, source)| !is_ours(source)).map(|(bytes, _)| bytes);
        config.rewritten(&Rewrite::new().set_each(DATA_SOURCES, others))
    }

    /// The config with the data source; of `producer` alone, if there are others.
    pub(super) fn added_to(config: &TraceConfig, producer: Option<&str>) -> Result<TraceConfig, ConfigError> {
        let source = protos::trace_config::DataSource {
            config: Some(DataSourceConfig { name: Some(NAME.to_owned()), ..Default::default() }),
            producer_name_filter: producer.map(str::to_owned).into_iter().collect(),
            ..Default::default()
        };
        // Messages one behind the other are one message with the fields of both.
        let mut bytes = config.bytes().to_vec();
        protos::TraceConfig { data_sources: vec![source], ..Default::default() }.append_to(&mut bytes);
        TraceConfig::from_binary(bytes)
    }

    /// The command is process `pid`, which was there at `at_ns` of [`boottime_ns`]: a reader takes
    /// what is said before `task_newtask` for another process, which had the number before.
    pub(super) fn begin(&self, command: &[OsString], pid: u32, at_ns: u64) {
        let mut state = self.state();
        let mut hasher = DefaultHasher::new();
        (NAME, pid, at_ns).hash(&mut hasher);
        let process_uuid = hasher.finish();
        state.track_uuid = process_uuid.wrapping_add(1);
        let arguments: Vec<String> = command.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
        let line = cut(arguments.join(" "), COMMAND_LINE_SIZE_BYTES_MAX);
        let process = TrackDescriptor {
            uuid: Some(process_uuid),
            process: Some(ProcessDescriptor {
                pid: Some(pid.cast_signed()),
                // Perfetto's trace processor takes no name from `cmdline`.
                process_name: arguments.first().cloned().map(|name| cut(name, NAME_SIZE_BYTES_MAX)),
                cmdline: within(arguments, COMMAND_LINE_SIZE_BYTES_MAX),
                ..Default::default()
            }),
            ..Default::default()
        };
        let track = TrackDescriptor {
            uuid: Some(state.track_uuid),
            parent_uuid: Some(process_uuid),
            static_or_dynamic_name: Some(StaticOrDynamicName::Name("command".to_owned())),
            ..Default::default()
        };
        let mut first = packet(at_ns, Data::TrackDescriptor(process));
        first.sequence_flags = Some(SequenceFlags::SeqIncrementalStateCleared as u32);
        state.write(first);
        state.write(packet(at_ns, Data::TrackDescriptor(track)));
        state.about = vec![
            annotation(COMMAND_LINE, Value::StringValue(line.clone())),
            annotation(PID, Value::IntValue(pid.into())),
        ];
        let name = cut(line, NAME_SIZE_BYTES_MAX);
        state.write_event(Type::SliceBegin, Some(name), at_ns, None);
    }

    /// The command has ended just now.
    pub(super) fn end(&self, status: ExitStatus) {
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => annotation(EXIT_CODE, Value::IntValue(code.into())),
            (None, number) => annotation(SIGNAL, Value::IntValue(number.unwrap_or_default().into())),
        };
        let mut state = self.state();
        state.write_event(Type::SliceEnd, None, boottime_ns(), Some(how));
        state.flush();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn write_event(&mut self, kind: Type, name: Option<String>, at_ns: u64, how: Option<DebugAnnotation>) {
        let event = TrackEvent {
            r#type: Some(kind as i32),
            track_uuid: Some(self.track_uuid),
            categories: vec![CATEGORY.to_owned()],
            name_field: name.map(track_event::NameField::Name),
            debug_annotations: self.about.iter().cloned().chain(how).collect(),
            ..Default::default()
        };
        self.write(packet(at_ns, Data::TrackEvent(event)));
    }

    fn write(&mut self, packet: TracePacket) {
        for writer in self.writers.values_mut() {
            writer.write_message(&packet);
        }
        self.packets.push(packet);
    }

    fn flush(&mut self) {
        self.writers.values_mut().for_each(TraceWriter::flush);
    }
}

fn packet(at_ns: u64, data: Data) -> TracePacket {
    TracePacket { timestamp: Some(at_ns), data: Some(data), ..Default::default() }
}

fn annotation(name: &str, value: Value) -> DebugAnnotation {
    DebugAnnotation {
        name_field: Some(NameField::Name(name.to_owned())),
        value: Some(value),
        ..Default::default()
    }
}

fn cut(mut text: String, size_bytes_max: usize) -> String {
    text.truncate(text.floor_char_boundary(size_bytes_max));
    text
}

/// The first arguments, as many as have that size together.
fn within(arguments: Vec<String>, size_bytes_max: usize) -> Vec<String> {
    let mut left = size_bytes_max;
    let fits = |argument: &String| {
        let fits = argument.len() <= left;
        left = left.saturating_sub(argument.len());
        fits
    };
    arguments.into_iter().take_while(fits).collect()
}

struct Factory(Mark);

impl DataSourceFactory for Factory {
    fn descriptor(&self) -> DataSourceDescriptor {
        DataSourceDescriptor {
            name: Some(NAME.to_owned()),
            will_notify_on_start: Some(true),
            will_notify_on_stop: Some(true),
            ..Default::default()
        }
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        Ok(Box::new(Instance { mark: self.0.clone(), writer: Some(cx.create_writer()) }))
    }
}

struct Instance {
    mark: Mark,
    /// Until it is started.
    writer: Option<TraceWriter>,
}

impl DataSource for Instance {
    fn start(&mut self, cx: &mut Context<'_>) -> Wake {
        if let Some(mut writer) = self.writer.take() {
            let mut state = self.mark.state();
            state.packets.iter().for_each(|packet| writer.write_message(packet));
            state.writers.insert(cx.instance_id(), writer);
        }
        Wake::Never
    }

    fn flush(&mut self, cx: &mut Context<'_>) {
        if let Some(writer) = self.mark.state().writers.get_mut(&cx.instance_id()) {
            writer.flush();
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>) -> Stop {
        // Hands over what it has.
        self.mark.state().writers.remove(&cx.instance_id());
        Stop::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_has_one_source_more() {
        let text = "buffers { size_kb: 64 } data_sources { config { name: \"a\" } } duration_ms: 7";
        let config = TraceConfig::from_text(text).unwrap();
        let with = Mark::added_to(&config, Some("me")).unwrap();
        assert!(with.bytes().starts_with(config.bytes()));
        let [before, added] = &with.view().data_sources[..] else { panic!("{}", with.to_text()) };
        assert_eq!(*before, config.view().data_sources[0]);
        assert_eq!(
            (added.config.as_ref().unwrap().name(), &added.producer_name_filter[..]),
            (NAME, &["me".to_owned()][..])
        );
        assert_eq!(Mark::removed_from(&config).unwrap().bytes(), config.bytes());
        let without = Mark::removed_from(&with).unwrap();
        assert_eq!(without.view(), config.view());
    }

    #[test]
    fn long_commands_are_cut() {
        assert_eq!(cut("äöü".to_owned(), 3), "ä");
        let arguments = ["ls", "-l", "x"].map(str::to_owned).to_vec();
        assert_eq!(within(arguments.clone(), 4), ["ls", "-l"]);
        assert_eq!(within(arguments, 3), ["ls"]);
    }
}
