//! `watershed query`: what a tracing service knows.

use std::io::{self, Write};

use serde::Serialize;
use watershed_shell::address::Address;
use watershed_wire::Encode as _;
use watershed_wire::ipc::messages::{QueryServiceStateResponse, TracingServiceState};
use watershed_wire::raw::Fields;

use crate::connect::{connect, socket};
use crate::exit::{Exit, Failure, printed};
use crate::text::{printable, table};

/// Arguments of `watershed query`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the service listens for consumers: a path, or @NAME for an abstract socket [default:
    /// $PERFETTO_CONSUMER_SOCK_NAME, or the place where Perfetto's programs look]
    #[arg(long, value_name = "C", value_parser = Address::parse)]
    socket: Option<Address>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Leave producers and data sources out
    #[arg(long)]
    sessions_only: bool,
}

impl Args {
    /// All that the service on this socket knows.
    pub(crate) fn of(socket: Option<Address>, json: bool) -> Args {
        Args { socket, json, sessions_only: false }
    }
}

/// The state as a `TracingServiceState` of Perfetto's schema, in bytes.
pub(crate) fn write_raw(socket: Option<&Address>) -> Result<Exit, Failure> {
    let state = connect(&crate::connect::socket(socket)?)?.query_state(false).map_err(Failure::failed)?;
    let reply = QueryServiceStateResponse { service_state: Some(state) }.encode_to_vec();
    // The reply has nothing else.
    let state = Fields::new(&reply).next().and_then(Result::ok).and_then(|field| field.value.bytes());
    let mut out = io::stdout().lock();
    printed(out.write_all(state.unwrap_or_default()).and_then(|()| out.flush()))?;
    Ok(Exit::Done)
}

/// The state, in names that stay.
#[derive(Debug, Serialize)]
struct State {
    version: String,
    sessions_total: i32,
    sessions_started: i32,
    producers: Vec<Producer>,
    data_sources: Vec<DataSource>,
    sessions: Vec<Session>,
}

#[derive(Debug, Serialize)]
struct Producer {
    id: i32,
    pid: Option<i32>,
    uid: i32,
    name: String,
    sdk_version: String,
}

#[derive(Debug, Serialize)]
struct DataSource {
    name: String,
    producer_id: i32,
    producer_name: String,
}

#[derive(Debug, Serialize)]
struct Session {
    id: u64,
    consumer_uid: i32,
    state: String,
    buffer_size_kb: Vec<u32>,
    duration_ms: u32,
    data_sources: u32,
    unique_session_name: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let mut service = connect(&socket(args.socket.as_ref())?)?;
    let state = State::from(service.query_state(args.sessions_only).map_err(Failure::failed)?);
    let mut out = io::stdout().lock();
    printed(if args.json { write_json(&mut out, &state) } else { write_text(&mut out, &state, args) })?;
    Ok(Exit::Done)
}

impl From<TracingServiceState> for State {
    fn from(state: TracingServiceState) -> State {
        let name_of = |id: i32| {
            let producer = state.producers.iter().find(|producer| producer.id() == id);
            producer.map_or_else(String::new, |producer| producer.name().to_owned())
        };
        let data_sources = state.data_sources.iter().map(|source| {
            let producer_id = source.producer_id();
            DataSource { name: source.name(), producer_id, producer_name: name_of(producer_id) }
        });
        let producers = state.producers.iter().map(|producer| Producer {
            id: producer.id(),
            pid: producer.pid,
            uid: producer.uid(),
            name: producer.name().to_owned(),
            sdk_version: producer.sdk_version().to_owned(),
        });
        let sessions = state.tracing_sessions.iter().map(|session| Session {
            id: session.id(),
            consumer_uid: session.consumer_uid(),
            state: session.state().to_owned(),
            buffer_size_kb: session.buffer_size_kb.clone(),
            duration_ms: session.duration_ms(),
            data_sources: session.num_data_sources(),
            unique_session_name: session.unique_session_name.clone(),
        });
        State {
            version: state.tracing_service_version().to_owned(),
            sessions_total: state.num_sessions(),
            sessions_started: state.num_sessions_started(),
            producers: producers.collect(),
            data_sources: data_sources.collect(),
            sessions: sessions.collect(),
        }
    }
}

fn write_json(out: &mut impl Write, state: &State) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, state)?;
    writeln!(out)?;
    out.flush()
}

fn write_text(out: &mut impl Write, state: &State, args: &Args) -> io::Result<()> {
    let (total, started) = (state.sessions_total, state.sessions_started);
    writeln!(out, "{}, {total} sessions, {started} of them started", printable(&state.version))?;
    if !args.sessions_only {
        let mut producers = table(&["producer", "pid", "uid", "name", "sdk"], usize::MAX);
        for producer in &state.producers {
            let pid = producer.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
            let [id, uid] = [producer.id, producer.uid].map(|number| number.to_string());
            producers.add_row([id, pid, uid, printable(&producer.name), printable(&producer.sdk_version)]);
        }
        write_table(out, &producers)?;
        let mut sources = table(&["data source", "producer", "name"], usize::MAX);
        for source in &state.data_sources {
            let producer_id = source.producer_id.to_string();
            sources.add_row([printable(&source.name), producer_id, printable(&source.producer_name)]);
        }
        write_table(out, &sources)?;
    }
    let header = ["session", "uid", "state", "buffers (KiB)", "duration", "data sources", "name"];
    let mut sessions = table(&header, usize::MAX);
    for session in &state.sessions {
        let sizes: Vec<String> = session.buffer_size_kb.iter().map(u32::to_string).collect();
        let duration = match session.duration_ms {
            0 => "-".to_owned(),
            ms => format!("{} s", f64::from(ms) / 1000.0),
        };
        sessions.add_row([
            session.id.to_string(),
            session.consumer_uid.to_string(),
            printable(&session.state),
            sizes.join(", "),
            duration,
            session.data_sources.to_string(),
            printable(session.unique_session_name.as_deref().unwrap_or("-")),
        ]);
    }
    write_table(out, &sessions)?;
    out.flush()
}

/// A table that is not empty, below an empty line.
fn write_table(out: &mut impl Write, table: &comfy_table::Table) -> io::Result<()> {
    if table.row_count() == 0 {
        return Ok(());
    }
    writeln!(out)?;
    table.lines().try_for_each(|line| writeln!(out, "  {}", line.trim_end()))
}

#[cfg(test)]
mod tests {
    use watershed_wire::ipc::messages::ServiceDataSource;

    use super::*;

    #[test]
    fn a_data_source_has_its_name_whatever_else_is_in_its_descriptor() {
        // `src`, and a field 6 that is not the message that it should be.
        let descriptor = [10, 3, b's', b'r', b'c', 50, 1, 0xff];
        let data_sources = vec![ServiceDataSource::new(descriptor.to_vec(), 1)];
        let state = TracingServiceState { data_sources, ..Default::default() };
        assert_eq!(crate::connect::data_source_names(&state), ["src"]);
        assert_eq!(State::from(state).data_sources[0].name, "src");
    }
}
