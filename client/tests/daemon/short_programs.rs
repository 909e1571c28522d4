//! Programs that end as soon as they have said something.

use std::process::Command;

use watershed_client::instant;
use watershed_client::track_event::{self, Category};

use crate::{Running, track_events};

static SHORT: Category = Category::new("short");

/// What a started process does. As a test of its own it does nothing.
#[test]
fn program() {
    if std::env::var_os("WATERSHED_TEST_PROGRAM").is_some() {
        let _tracing = watershed_client::init().unwrap();
        instant!(SHORT, "all that it does");
    }
}

#[test]
fn a_short_program_is_in_the_session() {
    const PROGRAMS: usize = 20;
    let daemon = Running::start(tempfile::tempdir().unwrap());
    let session = daemon.session_of(track_event::NAME);
    for _ in 0..PROGRAMS {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "short_programs::program"])
            .env("WATERSHED_TEST_PROGRAM", "1")
            .env("PERFETTO_PRODUCER_SOCK_NAME", daemon.folder.path().join("producer"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let trace = track_events::finish(session);
    let num_short = trace.events.iter().filter(|event| event.category == "short").count();
    assert_eq!(num_short, PROGRAMS);
}
