//! More threads than the memory has chunks.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use watershed_client::in_process::{InProcess, InProcessOptions};
use watershed_client::instant;
use watershed_client::track_event::{self, Category};
use watershed_smb::SmbSize;

use crate::{config, on_thread, only, start_with, stop};

static IDLE: Category = Category::new("idle");

/// `WATERSHED_THREADS=4096` for more of them. With `WATERSHED_DROP=1` writers do not wait: then
/// nothing is lost only where the service has a processor.
const THREADS: usize = 1000;
/// Values of `buffer_exhausted_policy`.
const DROP: i32 = 1;
const STALL_THEN_DROP: i32 = 3;
const MEMORY_BYTES: usize = 512 << 10;
/// About 1 MB/s, for two seconds.
const EVENTS_PER_MS: u64 = 40;
const BUSY: Duration = Duration::from_secs(2);

/// Each thread writes one event and lives on. They do not keep the memory: one that writes much has
/// enough of it, and nothing is lost, what idle threads have written included.
#[test]
fn threads_that_idle_do_not_keep_the_memory() {
    let num_threads = std::env::var("WATERSHED_THREADS").map_or(THREADS, |threads| threads.parse().unwrap());
    let options = InProcessOptions { smb_size: SmbSize::negotiate(4096, MEMORY_BYTES), ..Default::default() };
    let backend = InProcess::new(options).unwrap();
    backend.register(track_event::data_source());
    let mut config = config(only(&["idle"]));
    let policy = if std::env::var_os("WATERSHED_DROP").is_some() { DROP } else { STALL_THEN_DROP };
    config.data_sources[0].config.as_mut().unwrap().buffer_exhausted_policy = Some(policy);
    let session = start_with(&backend, &config);
    let mut num_busy = 0;
    std::thread::scope(|scope| {
        let (mut ends, (tell, told)) = (Vec::new(), mpsc::channel());
        for number in 0..num_threads {
            let (end, is_over) = mpsc::channel::<()>();
            ends.push(end);
            let tell = tell.clone();
            let builder = std::thread::Builder::new().stack_size(64 << 10);
            builder
                .spawn_scoped(scope, move || {
                    instant!(IDLE, "once", number);
                    tell.send(()).unwrap();
                    let _ = is_over.recv();
                })
                .unwrap();
            // As fast as a program makes threads that do something.
            told.recv().unwrap();
        }
        on_thread("busy", || {
            let started = Instant::now();
            while started.elapsed() < BUSY {
                (0..EVENTS_PER_MS).for_each(|_| instant!(IDLE, "busy", number = num_busy, text = "0123456"));
                num_busy += EVENTS_PER_MS;
                let due = Duration::from_millis(num_busy / EVENTS_PER_MS);
                std::thread::sleep(due.saturating_sub(started.elapsed()));
            }
        });
        assert_eq!(backend.arbiter_stats().packets_dropped, 0);
    });
    let trace = stop(&session);
    let named = |name: &str| trace.events.iter().filter(|event| event.name == name).count();
    assert_eq!((named("once"), named("busy")), (num_threads, num_busy as usize));
    assert_eq!(trace.num_losses, 0);
}
