//! Processes that a scenario starts in order to kill them.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::consumer::Session;
use crate::{config, producer, wait_until};

/// How many threads of [`produce`] write.
pub(crate) const THREADS: u64 = 4;
const PACKETS_PER_FLUSH: u32 = 25;
/// So that a ring of 64 MB keeps what is written until the process is killed.
const PAUSE: Duration = Duration::from_millis(5);

/// Starts this program again in a role, with a pipe for what it tells.
pub(crate) fn spawn(role: &str) -> Child {
    let program = std::env::current_exe().expect("Linux");
    Command::new(program).arg(role).stdout(Stdio::piped()).spawn().expect("it starts")
}

/// Writes until it is killed. Tells `THREAD NUMBER` once the service has that packet.
pub(crate) fn produce() {
    producer::start(0);
    wait_until("a session records", producer::is_recorded);
    producer::in_threads(THREADS, |thread| {
        for number in 0.. {
            producer::numbered(thread, number);
            if number % PACKETS_PER_FLUSH == 0 {
                producer::flush(move || {
                    // One write for one line: the threads' lines do not mix.
                    let line = format!("{thread} {number}\n");
                    std::io::stdout().write_all(line.as_bytes()).expect("the scenario reads");
                });
                std::thread::sleep(PAUSE);
            }
        }
    });
}

/// Holds a session until it is killed. Tells when it runs.
pub(crate) fn consume() {
    producer::connect(0);
    let session = Session::start(&config::ring(4096));
    println!("started");
    loop {
        std::thread::park();
        // The session is kept until the process ends.
        let _ = &session;
    }
}
