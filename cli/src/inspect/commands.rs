//! Commands that were recorded: slices of `record`'s own.

use serde::Serialize;
use watershed_wire::Decode as _;
use watershed_wire::protos::TrackEvent;
use watershed_wire::protos::debug_annotation::{NameField, Value};
use watershed_wire::protos::track_event::Type;
use watershed_wire::raw::Fields;

use crate::command_slice::{CATEGORY, COMMAND_LINE, EXIT_CODE, PID, SIGNAL};

/// `record` marks one a session; a hostile trace has many.
const COMMANDS_MAX: usize = 64;
const LINE_SIZE_BYTES_MAX: usize = 4096;
/// Field `TrackEvent.categories`.
const CATEGORIES: u32 = 22;

/// A command and its end, as far as the trace has both.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Command {
    pub(super) command_line: String,
    pub(super) pid: Option<i64>,
    pub(super) begin_ns: u64,
    pub(super) end_ns: Option<u64>,
    pub(super) exit_code: Option<i64>,
    /// What killed it.
    pub(super) signal: Option<i64>,
    #[serde(skip)]
    track_uuid: u64,
}

#[derive(Debug, Default)]
pub(super) struct Commands(Vec<Command>);

impl Commands {
    /// Takes an encoded `TrackEvent` of a packet with that time; of most only the categories are
    /// looked at.
    pub(super) fn take(&mut self, event: &[u8], at_ns: u64) {
        let categories = Fields::new(event).map_while(Result::ok).filter(|field| field.number == CATEGORIES);
        if categories.filter_map(|field| field.value.bytes()).any(|name| name == CATEGORY.as_bytes())
            && let Ok(event) = TrackEvent::decode(event)
        {
            match event.r#type() {
                Type::SliceBegin if self.0.len() < COMMANDS_MAX => self.0.push(begun(&event, at_ns)),
                Type::SliceEnd => self.end(&event, at_ns),
                _ => {}
            }
        }
    }

    fn end(&mut self, event: &TrackEvent, at_ns: u64) {
        let is_it =
            |command: &&mut Command| command.track_uuid == event.track_uuid() && command.end_ns.is_none();
        if let Some(command) = self.0.iter_mut().find(is_it) {
            command.end_ns = Some(at_ns);
            command.exit_code = integer(event, EXIT_CODE);
            command.signal = integer(event, SIGNAL);
        }
    }

    pub(super) fn list(&self) -> &[Command] {
        &self.0
    }
}

fn begun(event: &TrackEvent, at_ns: u64) -> Command {
    let line = match value(event, COMMAND_LINE) {
        Some(Value::StringValue(line)) => line,
        _ => "",
    };
    Command {
        command_line: line[..line.floor_char_boundary(LINE_SIZE_BYTES_MAX)].to_owned(),
        pid: integer(event, PID),
        begin_ns: at_ns,
        end_ns: None,
        exit_code: None,
        signal: None,
        track_uuid: event.track_uuid(),
    }
}

fn value<'a>(event: &'a TrackEvent, name: &str) -> Option<&'a Value> {
    let mut annotations = event.debug_annotations.iter();
    let is_it = |field: &NameField| matches!(field, NameField::Name(known) if known == name);
    annotations.find(|about| about.name_field.as_ref().is_some_and(is_it))?.value.as_ref()
}

fn integer(event: &TrackEvent, name: &str) -> Option<i64> {
    match value(event, name)? {
        Value::IntValue(value) => Some(*value),
        _ => None,
    }
}
