//! Triggers that the official producer sends, in their three modes; clones, and sessions that are
//! left behind. The library's consumer cannot clone, detach or attach: ours does that with what its
//! producer writes, and with its consumer's session.

use watershed_wire::protos::TraceConfig;
use watershed_wire::protos::trace_config::TriggerConfig;
use watershed_wire::protos::trace_config::trigger_config::{Trigger, TriggerMode};

use crate::consumer::Session;
use crate::service::Service;
use crate::trace::Trace;
use crate::{config, own, producer, wait_until};

const THREADS: u64 = 2;
const PACKETS: u32 = 500;
const TRIGGER: &str = "happened";

fn waiting_for_trigger(mode: TriggerMode, name: &str) -> TraceConfig {
    let trigger = Trigger { name: Some(TRIGGER.to_owned()), ..Default::default() };
    let triggers = TriggerConfig {
        trigger_mode: Some(mode.into()),
        triggers: vec![Trigger { stop_delay_ms: Some(500), ..trigger }],
        trigger_timeout_ms: Some(120_000),
        ..Default::default()
    };
    TraceConfig { trigger_config: Some(triggers), ..named(name) }
}

fn named(name: &str) -> TraceConfig {
    TraceConfig { unique_session_name: Some(name.to_owned()), ..config::ring(16 << 10) }
}

fn write() {
    producer::in_threads(THREADS, |thread| {
        (0..PACKETS).for_each(|number| producer::numbered(thread, number));
    });
}

/// The trace has what was written, and says which trigger it was.
fn check(trace: &Trace) {
    Trace::assert_complete(&trace.numbered, THREADS, PACKETS);
    trace.assert_lossless();
    assert_eq!(trace.triggers, [TRIGGER]);
}

/// A session of the official consumer ends by the trigger.
pub(crate) fn stop() {
    let service = Service::start();
    producer::start(0);
    let mut session = Session::record(&waiting_for_trigger(TriggerMode::StopTracing, "stops"));
    write();
    producer::trigger(TRIGGER);
    wait_until("the trigger has ended the session", || !producer::is_recorded());
    session.stop();
    check(&session.read());
    service.stop();
}

/// A session of the official consumer begins with the trigger, and ends after its delay.
pub(crate) fn start() {
    let service = Service::start();
    producer::start(0);
    let mut session = Session::prepare(&waiting_for_trigger(TriggerMode::StartTracing, "starts"));
    wait_until("it waits", || own::state_of("starts").as_deref() == Some("CONFIGURED"));
    assert!(!producer::is_recorded(), "nothing is recorded before");
    producer::trigger(TRIGGER);
    wait_until("this process is recorded", producer::is_recorded);
    write();
    wait_until("the session is over", || !producer::is_recorded());
    session.stop();
    check(&session.read());
    service.stop();
}

/// Our consumer is told of the official producer's trigger, and clones.
pub(crate) fn clone_at() {
    let service = Service::start();
    producer::start(0);
    let mut owner = own::Session::observe_clones(&waiting_for_trigger(TriggerMode::CloneSnapshot, "cloned"));
    wait_until("this process is recorded", producer::is_recorded);
    write();
    for _ in 0..2 {
        producer::trigger(TRIGGER);
        let hit = owner.next_hit();
        assert_eq!(hit.trigger_name(), TRIGGER);
        let trace = own::clone("cloned", Some(&hit));
        Trace::assert_complete(&trace.numbered, THREADS, PACKETS);
        trace.assert_lossless();
        assert_eq!(trace.cloned_for, [TRIGGER]);
    }
    drop(owner);
    wait_until("the session has ended", || !producer::is_recorded());
    service.stop();
}

/// A session of the official consumer is cloned by its name while it goes on; it has all of it
/// afterwards.
pub(crate) fn clone_by_name() {
    let service = Service::start();
    producer::start(0);
    let session = Session::record(&named("official"));
    write();
    for _ in 0..3 {
        let trace = own::clone("official", None);
        Trace::assert_complete(&trace.numbered, THREADS, PACKETS);
        trace.assert_lossless();
    }
    let trace = session.finish();
    Trace::assert_complete(&trace.numbered, THREADS, PACKETS);
    trace.assert_lossless();
    service.stop();
}

/// The official producer writes into a session that nobody holds.
pub(crate) fn detached() {
    let service = Service::start();
    producer::start(0);
    own::Session::start(&config::ring(16 << 10)).detach("key");
    wait_until("this process is recorded", producer::is_recorded);
    write();
    let trace = own::Session::attach("key").finish();
    Trace::assert_complete(&trace.numbered, THREADS, PACKETS);
    trace.assert_lossless();
    wait_until("the session has ended", || !producer::is_recorded());
    service.stop();
}
