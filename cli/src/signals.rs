//! Ctrl-C and its relatives: the first ends the recording in order, the second stops at once.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Instant;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;

/// A signal that reached this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    pub(crate) number: i32,
    /// A terminal sent it (Ctrl-C, a hang-up), to every process in its foreground, and not a
    /// process to this one.
    pub(crate) from_terminal: bool,
    pub(crate) at: Instant,
}

/// Calls `on_signal` with the first signal, from a thread of its own. The second ends
/// the process with 128 plus its number, whatever the process is doing.
///
/// SIGHUP is left alone when it is ignored already, as under `nohup`. SIGXFSZ is taken so that a
/// file that reaches the limit on its size makes a write fail and does not kill the process.
pub(crate) fn watch(on_signal: impl FnOnce(Received) + Send + 'static) -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    let mut numbers = vec![SIGINT, SIGTERM];
    if !is_ignored(SIGHUP) {
        numbers.push(SIGHUP);
    }
    let mut signals = SignalsInfo::<WithOrigin>::new(numbers)?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut on_signal = Some(on_signal);
        for origin in signals.forever() {
            let (number, from_terminal) = (origin.signal, matches!(origin.cause, Cause::Kernel));
            match on_signal.take() {
                Some(on_signal) => on_signal(Received { number, from_terminal, at: Instant::now() }),
                None => signal_hook::low_level::exit(128 + number),
            }
        }
    })?;
    Ok(())
}

/// Calls `on_signal` at each SIGUSR1, from a thread of its own.
pub(crate) fn watch_status(mut on_signal: impl FnMut() + Send + 'static) -> io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGUSR1])?;
    thread::Builder::new()
        .name("status".into())
        .spawn(move || signals.forever().for_each(|_| on_signal()))?;
    Ok(())
}

/// Whether this process was started with the signal ignored.
fn is_ignored(number: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask =
        status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.unwrap_or(0) >> (number - 1) & 1 == 1
}
