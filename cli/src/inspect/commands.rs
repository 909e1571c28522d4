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

/// A command, its begin and its end, as far as the trace has them.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Command {
    pub(super) command_line: String,
    pub(super) pid: Option<i64>,
    /// Of the trace's primary clock.
    pub(super) begin_ns: Option<u64>,
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
    /// Takes an encoded `TrackEvent` of a packet with that time, if it is known; of most only the
    /// categories are looked at.
    pub(super) fn take(&mut self, event: &[u8], at_ns: Option<u64>) {
        let categories = Fields::new(event).map_while(Result::ok).filter(|field| field.number == CATEGORIES);
        if categories.filter_map(|field| field.value.bytes()).any(|name| name == CATEGORY.as_bytes())
            && let Ok(event) = TrackEvent::decode(event)
        {
            match event.r#type() {
                Type::SliceBegin => self.add(Command { begin_ns: at_ns, ..Command::of(&event) }),
                Type::SliceEnd => self.end(&event, at_ns),
                _ => {}
            }
        }
    }

    /// The begin may have been overwritten by a ring.
    fn end(&mut self, event: &TrackEvent, at_ns: Option<u64>) {
        let end = Command { end_ns: at_ns, ..Command::of(event) };
        let is_it = |command: &&mut Command| command.track_uuid == end.track_uuid && !command.has_end();
        match self.0.iter_mut().find(is_it) {
            Some(command) => {
                (command.end_ns, command.exit_code, command.signal) = (end.end_ns, end.exit_code, end.signal);
            }
            None => self.add(end),
        }
    }

    fn add(&mut self, command: Command) {
        if self.0.len() < COMMANDS_MAX {
            self.0.push(command);
        }
    }

    pub(super) fn list(&self) -> &[Command] {
        &self.0
    }
}

impl Command {
    /// What an event at one of its ends says.
    fn of(event: &TrackEvent) -> Self {
        let line = match value(event, COMMAND_LINE) {
            Some(Value::StringValue(line)) => line,
            _ => "",
        };
        Command {
            command_line: line[..line.floor_char_boundary(LINE_SIZE_BYTES_MAX)].to_owned(),
            pid: integer(event, PID),
            begin_ns: None,
            end_ns: None,
            exit_code: integer(event, EXIT_CODE),
            signal: integer(event, SIGNAL),
            track_uuid: event.track_uuid(),
        }
    }

    /// Whether its end is in the trace.
    pub(super) fn has_end(&self) -> bool {
        self.end_ns.is_some() || self.exit_code.is_some() || self.signal.is_some()
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
