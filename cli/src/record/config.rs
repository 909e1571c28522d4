//! What to record, as the arguments say: the config of the user, or ours.

use std::time::Duration;

use watershed_probes::{Roots, ftrace_access};
use watershed_wire::config::TraceConfig;
use watershed_wire::protos;
use watershed_wire::protos::trace_config::trigger_config::TriggerMode;
use watershed_wire::protos::trace_config::{BufferConfig, DataSource, TriggerConfig, buffer_config};
use watershed_wire::raw::{Fields, Rewrite};

use super::perfetto::Note;
use super::{Args, events};
use crate::config::{default_data_sources, ftrace, process_stats, read, system_info};
use crate::exit::Failure;

/// Buffer without `-b` and without a config.
const BUFFER_KB: u32 = 64 << 10;
/// Time without `-t`, without a config and without a command.
const TIME: Duration = Duration::from_secs(10);
/// Field `TraceConfig.duration_ms`.
const DURATION_MS: u32 = 3;
/// Field `TraceConfig.notes`.
const NOTES: u32 = 46;

/// The config as the arguments say.
pub(super) fn load(args: &Args) -> Result<TraceConfig, Failure> {
    with_notes(from_args(args)?, &args.perfetto.notes)
}

fn from_args(args: &Args) -> Result<TraceConfig, Failure> {
    match &args.config {
        None => default_config(args),
        Some(path) => {
            let config = read(path)?;
            match args.time {
                None => Ok(config),
                Some(time) => config
                    .rewritten(&Rewrite::new().set_varint(DURATION_MS, time.as_millis() as u64))
                    .map_err(|error| Failure::usage(format_args!("{}: {error}", path.display()))),
            }
        }
    }
}

/// The config with notes behind its own.
fn with_notes(config: TraceConfig, added: &[Note]) -> Result<TraceConfig, Failure> {
    if added.is_empty() {
        return Ok(config);
    }
    let own = Fields::new(config.bytes()).map_while(Result::ok).filter(|field| field.number == NOTES);
    let own = own.filter_map(|field| field.value.bytes());
    let notes = own.chain(added.iter().map(|note| note.0.as_slice()));
    config
        .rewritten(&Rewrite::new().set_each(NOTES, notes))
        .map_err(|error| Failure::usage(format_args!("config: {error}")))
}

fn default_config(args: &Args) -> Result<TraceConfig, Failure> {
    let time = args.time.or(args.command.is_empty().then_some(TIME));
    Ok(TraceConfig::from(protos::TraceConfig {
        buffers: vec![BufferConfig {
            size_kb: Some(args.buffer_kb.unwrap_or(BUFFER_KB)),
            fill_policy: Some(buffer_config::FillPolicy::RingBuffer as i32),
            ..Default::default()
        }],
        data_sources: default_sources(args)?,
        // At most a week, by the argument's range.
        duration_ms: time.map(|time| time.as_millis() as u32),
        write_into_file: args.perfetto.file_size_kb.map(|_| true),
        max_file_size_bytes: args.perfetto.file_size_kb.map(|kb| kb << 10),
        ..Default::default()
    }))
}

/// Events that were asked for must be there.
fn default_sources(args: &Args) -> Result<Vec<DataSource>, Failure> {
    if args.events.is_empty() {
        return Ok(default_data_sources());
    }
    let roots = Roots::default();
    let names = events::resolve(&args.events, &args.command, &roots, ftrace_access(&roots))?;
    Ok(vec![ftrace(names), process_stats(), system_info()])
}

/// A name with its nearest relative among those that are known, if it has one.
fn quoted(name: &str, known: &[String]) -> String {
    const ALIKE: f64 = 0.8;
    let scored = known.iter().map(|known| (strsim::jaro_winkler(name, known), known));
    match scored.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((score, nearest)) if score >= ALIKE => format!("\"{name}\" (did you mean \"{nearest}\"?)"),
        _ => format!("\"{name}\""),
    }
}

/// Names that the config asks for and that are not known, each once; and whether one is known.
pub(super) fn unknown<'a>(config: &'a TraceConfig, known: &[String]) -> (Vec<&'a str>, bool) {
    let mut unknown: Vec<&str> = Vec::new();
    let mut found = false;
    for data_source in &config.view().data_sources {
        let name = data_source.config.as_ref().map_or("", |c| c.name());
        if known.iter().any(|k| k == name) {
            found = true;
        } else if !unknown.contains(&name) {
            unknown.push(name);
        }
    }
    (unknown, found)
}

fn no_data_sources(known: &[String]) -> Failure {
    Failure::usage(format_args!("the config has no data_sources; known are: {}", known.join(", ")))
}

/// As [`check_data_sources`], for a service in another process: what nobody offers there now, a
/// producer that connects later may offer. `of_machine` is what `watershed probes` has.
pub(super) fn check_offered(
    config: &TraceConfig,
    offered: &[String],
    of_machine: &[String],
) -> Result<Vec<String>, Failure> {
    if config.view().data_sources.is_empty() {
        return Err(no_data_sources(offered));
    }
    let list = |names: &[&str]| names.iter().map(|name| quoted(name, offered)).collect::<Vec<_>>().join(", ");
    let (missing, _) = unknown(config, offered);
    let (probes, others): (Vec<&str>, Vec<&str>) =
        missing.into_iter().partition(|name| of_machine.iter().any(|of| of == name));
    let mut warnings = Vec::new();
    if !probes.is_empty() {
        let names = list(&probes);
        warnings.push(format!("nobody offers {names} to this service; `watershed probes` would"));
    }
    if !others.is_empty() {
        let known = if offered.is_empty() { "none".to_owned() } else { offered.join(", ") };
        warnings.push(format!("nobody offers {} to this service yet; known are: {known}", list(&others)));
    }
    Ok(warnings)
}

/// Refuses configs that wait for triggers, for a service that nobody can reach.
pub(super) fn check_triggers(config: &TraceConfig) -> Result<(), Failure> {
    let triggers = config.view().trigger_config.as_ref();
    match triggers.map_or(TriggerMode::Unspecified, TriggerConfig::trigger_mode) {
        TriggerMode::Unspecified => Ok(()),
        _ => Err(nobody_triggers()),
    }
}

pub(super) fn nobody_triggers() -> Failure {
    Failure::usage(
        "the config has a trigger_config, and nobody can send triggers to the service within this \
         process: record with --daemon while `watershed daemon` runs",
    )
}

/// Whether each trigger of the config makes a trace of its own.
pub(super) fn makes_clones(config: &TraceConfig) -> bool {
    config.view().trigger_config.as_ref().is_some_and(|triggers| match triggers.trigger_mode() {
        TriggerMode::CloneSnapshot => true,
        TriggerMode::StopTracing => triggers.use_clone_snapshot_if_available(),
        TriggerMode::StartTracing | TriggerMode::Unspecified => false,
    })
}

/// How long the session lasts at most, if it has an end of its own.
pub(super) fn time_ms(config: &TraceConfig) -> u64 {
    let of_triggers = config.view().trigger_config.as_ref().map(TriggerConfig::trigger_timeout_ms);
    let is_bounded = of_triggers.filter(|_| makes_clones(config));
    is_bounded.unwrap_or_else(|| config.view().duration_ms()).into()
}

/// Compares what the config asks for with what there is. Returns lines to warn with.
pub(super) fn check_data_sources(config: &TraceConfig, known: &[String]) -> Result<Vec<String>, Failure> {
    let (unknown, found) = unknown(config, known);
    let list = known.join(", ");
    let quoted = unknown.iter().map(|name| quoted(name, known)).collect::<Vec<_>>().join(", ");
    match (found, unknown.is_empty()) {
        (_, true) if !config.view().data_sources.is_empty() => Ok(Vec::new()),
        (true, _) => Ok(vec![format!("no data source {quoted} here; known are: {list}")]),
        (false, true) => Err(no_data_sources(known)),
        (false, false) => Err(Failure::usage(format_args!(
            "no data source of the config is known here: {quoted}; known are: {list}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking_for(names: &[&str]) -> TraceConfig {
        let mut config = protos::TraceConfig::default();
        for name in names {
            let source = protos::DataSourceConfig { name: Some((*name).to_owned()), ..Default::default() };
            config.data_sources.push(DataSource { config: Some(source), ..Default::default() });
        }
        TraceConfig::from(config)
    }

    #[test]
    fn known_and_unknown_data_sources() {
        let known = ["a".to_owned(), "b".to_owned()];
        assert_eq!(check_data_sources(&asking_for(&["a", "b", "a"]), &known).unwrap(), [] as [&str; 0]);
        assert_eq!(
            check_data_sources(&asking_for(&["x", "a", "x", "y"]), &known).unwrap(),
            ["no data source \"x\", \"y\" here; known are: a, b"]
        );
        let probes = ["p".to_owned(), "q".to_owned()];
        assert_eq!(
            check_offered(&asking_for(&["q", "x", "a", "p", "q"]), &known, &probes).unwrap(),
            [
                "nobody offers \"q\", \"p\" to this service; `watershed probes` would",
                "nobody offers \"x\" to this service yet; known are: a, b"
            ]
        );
        assert_eq!(check_offered(&asking_for(&["a"]), &known, &probes).unwrap(), [] as [&str; 0]);
        assert!(check_offered(&asking_for(&[]), &known, &probes).is_err());
        assert!(check_data_sources(&asking_for(&["x"]), &known).is_err());
        assert!(check_data_sources(&asking_for(&[]), &known).is_err());
    }
}
