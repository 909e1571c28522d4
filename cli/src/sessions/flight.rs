//! `watershed flightrecorder`: a ring that runs for ever, and a clone of it each time that
//! something happens.
//!
//! ```text
//!   session of this command, in the service ── trigger ──> event ──┐
//!   SIGUSR1 ───────────────────────────────────────────────────────┴─> clone on a connection of its
//!   `watershed clone --name NAME -o F`: by the service alone             own ──> DIR, oldest removed
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use watershed_client::consumer::{CloneOf, Consumer, Notice, Wait, WakeHandle};
use watershed_service::limits;
use watershed_wire::config::TraceConfig;
use watershed_wire::protos;
use watershed_wire::protos::observable_events::{CloneTriggerHit, Type};
use watershed_wire::protos::trace_config::trigger_config::{Trigger, TriggerMode};
use watershed_wire::protos::trace_config::{BufferConfig, TriggerConfig, buffer_config};
use watershed_wire::raw::Rewrite;

use super::clone::clone_into;
use super::{REFUSAL_TIMEOUT, Service, say, say_written};
use crate::config;
use crate::exit::{Exit, Failure};
use crate::units;

/// Buffer without `-b` and without a config.
const BUFFER_KB: u32 = 256 << 10;
/// Fields of `TraceConfig`.
const TRIGGER_CONFIG: u32 = 17;
const UNIQUE_SESSION_NAME: u32 = 22;
const PREFIX: &str = "flight-";
const SUFFIX: &str = ".pftrace";
const TRIGGER_NAME_CHARS_MAX: usize = 64;

/// Arguments of `watershed flightrecorder`.
#[derive(Debug, clap::Args)]
#[command(after_help = MORE)]
pub(crate) struct Args {
    /// Size of the ring buffer: 64MB, 1.5GB; from 64KB to 4GB less 1KB [default: 256MB]
    #[arg(short, long = "buffer", value_name = "SIZE", value_parser = units::parse_size_kb)]
    #[arg(conflicts_with = "config")]
    buffer_kb: Option<u32>,

    /// What to record instead of memory, CPU and process statistics: a config in Perfetto's text or
    /// binary format, from standard input if it is `-`
    #[arg(short, long, value_name = "CONFIG")]
    config: Option<PathBuf>,

    /// Write a trace when somebody sends this trigger, to be given several times; in place of those
    /// of the config
    #[arg(long = "on-trigger", value_name = "NAME")]
    triggers: Vec<String>,

    /// How many traces stay in the folder: the oldest are removed
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    keep: u32,

    /// The unique_session_name, for `watershed clone --name`
    #[arg(long, value_name = "NAME", default_value = "flightrecorder")]
    name: String,

    /// The folder for traces, which is this command's alone: flight-<time>-<why>.pftrace
    #[arg(short = 'o', long = "out", value_name = "DIR")]
    folder: PathBuf,

    #[command(flatten)]
    service: Service,
}

const MORE: &str = "Needs a tracing service (`watershed daemon`) with data sources (`watershed probes`). \
Writes a trace at each trigger and at SIGUSR1, and ends at SIGINT or SIGTERM, or with code 1 when the \
service ends. A session with triggers is renewed every 7 days, its ring begins empty then.

Examples:
  watershed flightrecorder -o /var/lib/traces --on-trigger oops   a trace at each `watershed trigger oops`
  watershed flightrecorder -b 1GB -o traces --keep 3              a trace at each SIGUSR1
  watershed clone --name flightrecorder -o now.pftrace            one more, by hand";

/// Records until a signal comes.
pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let recorder = FlightRecorder { args, config: config(args)? };
    recorder.prepare_folder()?;
    let mut consumer = args.service.connect()?;
    let signals = Wanted::watch(consumer.wake_handle())?;
    consumer.observe_events(&[Type::CloneTriggerHit]).map_err(Failure::failed)?;
    recorder.begin(&mut consumer)?;
    say(format_args!("recording; `kill -USR1 {}` writes a trace", std::process::id()));
    loop {
        if signals.end.load(Ordering::Relaxed) {
            return Ok(Exit::Done);
        }
        if signals.save.swap(false, Ordering::Relaxed) {
            recorder.save("signal", None);
        }
        match consumer.next_notice().map_err(Failure::failed)? {
            Notice::Events(events) => {
                if let Some(hit) = events.clone_trigger_hit {
                    recorder.save(hit.trigger_name(), Some(&hit));
                }
            }
            Notice::Woken => {}
            // Its time is over, or somebody has stopped it.
            Notice::Ended { error: None } => {
                consumer.free().map_err(Failure::failed)?;
                recorder.begin(&mut consumer)?;
                say(format_args!("the session has ended, another one records"));
            }
            Notice::Ended { error: Some(error) } => {
                return Err(Failure::failed(format_args!("the session has failed: {error}")));
            }
        }
    }
}

/// What signals ask for.
struct Wanted {
    save: Arc<AtomicBool>,
    end: Arc<AtomicBool>,
}

impl Wanted {
    fn watch(wake: WakeHandle) -> Result<Wanted, Failure> {
        let wanted = Wanted { save: Arc::default(), end: Arc::default() };
        let (save, end) = (Arc::clone(&wanted.save), Arc::clone(&wanted.end));
        let cannot =
            |error: std::io::Error| Failure::failed(format_args!("cannot wait for signals: {error}"));
        let mut signals = Signals::new([SIGUSR1, SIGINT, SIGTERM]).map_err(cannot)?;
        let watch = move || {
            for number in signals.forever() {
                // Relaxed: the wake-up orders them.
                let flag = if number == SIGUSR1 { &save } else { &end };
                flag.store(true, Ordering::Relaxed);
                wake.wake();
            }
        };
        thread::Builder::new().name("signals".into()).spawn(watch).map_err(cannot)?;
        Ok(wanted)
    }
}

struct FlightRecorder<'a> {
    args: &'a Args,
    config: TraceConfig,
}

impl FlightRecorder<'_> {
    /// Makes the folder, and removes what a recorder that was killed has left unfinished.
    fn prepare_folder(&self) -> Result<(), Failure> {
        let folder = &self.args.folder;
        fs::create_dir_all(folder)
            .map_err(|error| Failure::failed(format_args!("cannot create {}: {error}", folder.display())))?;
        self.files(".partial").iter().for_each(|path| drop(fs::remove_file(path)));
        Ok(())
    }

    /// Starts the session.
    fn begin(&self, consumer: &mut Consumer) -> Result<(), Failure> {
        consumer.enable_tracing(self.config.bytes(), None).map_err(Failure::failed)?;
        match consumer.wait_end(Some(REFUSAL_TIMEOUT)).map_err(Failure::failed)? {
            Wait::Ended { error } => {
                let why = error.unwrap_or_else(|| "it has ended at once".to_owned());
                Err(Failure::usage(format_args!("the session did not start: {why}")))
            }
            // Of signals there is a note.
            Wait::Woken | Wait::TimedOut => Ok(()),
        }
    }

    /// Writes a trace. What keeps one from being written is said, and the recorder goes on.
    fn save(&self, why: &str, trigger: Option<&CloneTriggerHit>) {
        let path = self.args.folder.join(file_name(why));
        let of = CloneOf::Name(self.args.name.clone());
        let cloned = self
            .args
            .service
            .connect()
            .and_then(|mut consumer: Consumer| clone_into(&mut consumer, &of, trigger, &path));
        match cloned {
            Ok(written) => {
                say_written(&path, written.size_bytes);
                self.remove_oldest();
            }
            Err(failure) => say(format_args!("warning: no trace for {why}: {failure}")),
        }
    }

    fn remove_oldest(&self) {
        let files = self.files(SUFFIX);
        let too_many = files.len().saturating_sub(self.args.keep as usize);
        for path in &files[..too_many] {
            if let Err(error) = fs::remove_file(path) {
                say(format_args!("warning: cannot remove {}: {error}", path.display()));
            }
        }
    }

    /// This command's files with this ending, the oldest first.
    fn files(&self, ending: &str) -> Vec<PathBuf> {
        let is_ours = |path: &PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            name.starts_with(PREFIX) && name.ends_with(ending)
        };
        let entries = fs::read_dir(&self.args.folder).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_ours).collect();
        files.sort();
        files
    }
}

/// Names sort by time.
fn file_name(why: &str) -> String {
    let keeps = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '_' };
    let why: String = why.chars().take(TRIGGER_NAME_CHARS_MAX).map(keeps).collect();
    let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S.%3fZ");
    format!("{PREFIX}{time}-{why}{SUFFIX}")
}

/// The config of the arguments, with name and triggers.
fn config(args: &Args) -> Result<TraceConfig, Failure> {
    let config = match &args.config {
        Some(path) => checked(config::read(path)?, path)?,
        None => TraceConfig::from(protos::TraceConfig {
            buffers: vec![BufferConfig {
                size_kb: Some(args.buffer_kb.unwrap_or(BUFFER_KB)),
                fill_policy: Some(buffer_config::FillPolicy::RingBuffer.into()),
                ..Default::default()
            }],
            data_sources: config::default_data_sources(),
            ..Default::default()
        }),
    };
    let name = [args.name.as_bytes()];
    let mut rewrite = Rewrite::new().set_each(UNIQUE_SESSION_NAME, name);
    if !args.triggers.is_empty() {
        let triggers = watershed_wire::Encode::encode_to_vec(&trigger_config(&args.triggers));
        rewrite = rewrite.set_each(TRIGGER_CONFIG, [&triggers[..]]);
    }
    config.rewritten(&rewrite).map_err(|error| Failure::usage(format_args!("config: {error}")))
}

/// Refuses configs of sessions that do not run for ever in memory.
fn checked(config: TraceConfig, path: &Path) -> Result<TraceConfig, Failure> {
    let view = config.view();
    let mode = view.trigger_config.as_ref().map(TriggerConfig::trigger_mode);
    let wrong = match mode {
        _ if view.write_into_file() => "write_into_file is for sessions that write all that they record",
        _ if view.duration_ms() > 0 => "duration_ms would end the recorder",
        Some(TriggerMode::StartTracing | TriggerMode::StopTracing) => {
            "the trigger_mode of a flight recorder is CLONE_SNAPSHOT"
        }
        _ => return Ok(config),
    };
    Err(Failure::usage(format_args!("config {}: {wrong}", path.display())))
}

fn trigger_config(names: &[String]) -> TriggerConfig {
    let trigger = |name: &String| Trigger { name: Some(name.clone()), ..Default::default() };
    TriggerConfig {
        trigger_mode: Some(TriggerMode::CloneSnapshot.into()),
        triggers: names.iter().map(trigger).collect(),
        trigger_timeout_ms: Some(limits::DURATION_MS_MAX),
        ..Default::default()
    }
}
