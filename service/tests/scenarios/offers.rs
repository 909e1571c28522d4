//! Data sources of a config that nobody offers, as statistics name them.

use watershed_service::{CloneRequest, CloneSource, ConsumerId};
use watershed_wire::protos::TraceConfig;

use crate::support::World;
use crate::support::config::{one_source, source};

fn not_offered(world: &mut World, consumer: ConsumerId) -> Vec<String> {
    world.service.trace_stats(consumer).expect("it has a session").data_sources_not_offered
}

#[test]
fn who_was_offered_by_nobody_is_named_until_somebody_offers_it() {
    let mut world = World::new();
    let (first, second) = (world.connect("first"), world.connect("second"));
    world.register(first, "src");
    let mut of_second = source("src", 0);
    of_second.producer_name_filter = vec!["second".to_owned()];
    let wanted = ["src", "late", "never", "never"].map(|name| source(name, 0));
    let data_sources = [&wanted[..], &[of_second]].concat();
    let (consumer, session) = world.enable(&TraceConfig { data_sources, ..one_source("") });
    assert_eq!(not_offered(&mut world, consumer), ["late", "never", "src"], "each once");
    world.register(second, "src").register(first, "late");
    assert_eq!(not_offered(&mut world, consumer), ["never"]);
    // It was there.
    world.disconnect(first);
    assert_eq!(not_offered(&mut world, consumer), ["never"]);
    let of = CloneSource::Session(session);
    let request = CloneRequest {
        source: of,
        for_bugreport: false,
        skip_filter: false,
        trigger: None,
        into_file: false,
    };
    let cloning = world.consumer();
    let now = world.now;
    world.service.handle_clone_session(cloning, request, false, &now).expect("allowed");
    world.acknowledge_flush(second).run_due();
    let of_clone = world.read(cloning).stats().expect("statistics").data_sources_not_offered.clone();
    assert_eq!(of_clone, ["never"]);
    world.disable(consumer);
    let trace = world.read(consumer);
    assert_eq!(trace.stats().expect("statistics").data_sources_not_offered, ["never"]);
}
