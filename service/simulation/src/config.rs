//! Configs of sessions, of every kind that the service takes, and some that it refuses.

use watershed_wire::protos::trace_config::buffer_config::FillPolicy;
use watershed_wire::protos::trace_config::trigger_config::{Trigger, TriggerMode};
use watershed_wire::protos::trace_config::{
    BufferConfig, BuiltinDataSource, CompressionType, DataSource, FFlushMode, IncrementalStateConfig,
    TriggerConfig,
};
use watershed_wire::protos::{DataSourceConfig, TraceConfig};

use crate::check::filter;
use crate::choices::Choices;

/// Data sources of producers, and those that configs ask for.
pub(crate) const SOURCES: [&str; 3] = ["a", "b", "c"];
/// Producers have one of these names.
pub(crate) const NAMES: [&str; 4] = ["n0", "n1", "n2", "n3"];
pub(crate) const TRIGGERS: [&str; 3] = ["t0", "t1", "t2"];

/// More than all that is written in a run.
const ROOMY_KB: u32 = 32 * 1024;

pub(crate) fn draw(choices: &mut Choices, small_buffers: bool) -> TraceConfig {
    let num_buffers = choices.between(1, 3) as u32;
    let transfers = choices.one_in(8);
    let buffers = (0..num_buffers).map(|_| BufferConfig {
        size_kb: Some(if small_buffers { choices.between(8, 64) as u32 } else { ROOMY_KB }),
        fill_policy: choices.one_in(4).then_some(FillPolicy::Discard.into()),
        transfer_on_clone: transfers.then_some(true),
        clear_before_clone: choices.one_in(16).then_some(true),
        ..Default::default()
    });
    let mut config = TraceConfig { buffers: buffers.collect(), ..Default::default() };
    config.data_sources = (0..choices.between(1, 4)).map(|_| source(choices, num_buffers)).collect();
    config.flush_period_ms = choices.one_in(3).then(|| choices.between(50, 3000) as u32);
    config.flush_timeout_ms = choices.one_in(3).then(|| choices.between(1, 2000) as u32);
    config.data_source_stop_timeout_ms = choices.one_in(2).then(|| choices.between(1, 3000) as u32);
    config.deferred_start = choices.one_in(8).then_some(true);
    config.trace_filter = choices.one_in(4).then(filter::program);
    config.bugreport_score = choices.one_in(3).then_some(1);
    config.unique_session_name = choices.one_in(6).then(|| choices.of(&["one", "two"]).to_owned());
    config.exclusive_prio = choices.one_in(80).then_some(1);
    config.prefer_suspend_clock_for_duration = choices.one_in(4).then_some(true);
    let clear_period_ms = Some(choices.between(100, 3000) as u32);
    config.incremental_state_config = choices.one_in(4).then_some(IncrementalStateConfig { clear_period_ms });
    config.builtin_data_sources = choices.one_in(3).then(|| BuiltinDataSource {
        enable_concurrent_session_events: Some(true),
        disable_trace_config: choices.one_in(2).then_some(true),
        disable_clock_snapshotting: choices.one_in(2).then_some(true),
        snapshot_interval_ms: choices.one_in(2).then(|| choices.between(50, 2000) as u32),
        ..Default::default()
    });
    if choices.one_in(4) {
        into_file(&mut config, choices);
    }
    match choices.one_in(4) {
        true => config.trigger_config = Some(triggers(choices)),
        false => config.duration_ms = choices.one_in(3).then(|| choices.between(1, 6000) as u32),
    }
    config
}

fn source(choices: &mut Choices, num_buffers: u32) -> DataSource {
    // Now and then one that there is not.
    let num_buffers = num_buffers + u32::from(choices.one_in(60));
    let config = DataSourceConfig {
        name: Some(choices.of(&SOURCES).to_owned()),
        target_buffer: Some(choices.small(num_buffers)),
        ..Default::default()
    };
    DataSource { config: Some(config), producer_name_filter: names(choices), ..Default::default() }
}

/// Which producers take part: all, if there are none.
pub(crate) fn names(choices: &mut Choices) -> Vec<String> {
    match choices.one_in(4) {
        true => (0..choices.between(1, 3)).map(|_| choices.of(&NAMES).to_owned()).collect(),
        false => Vec::new(),
    }
}

fn into_file(config: &mut TraceConfig, choices: &mut Choices) {
    config.write_into_file = Some(true);
    config.file_write_period_ms = Some(choices.between(1, 6000) as u32);
    config.max_file_size_bytes = choices.one_in(4).then(|| choices.between(1000, 50_000));
    config.compression_type = choices.one_in(3).then_some(CompressionType::Deflate.into());
    config.fflush_post_write = choices.one_in(2).then_some(FFlushMode::FflushEnabled.into());
}

fn triggers(choices: &mut Choices) -> TriggerConfig {
    let mode = choices.of(&[TriggerMode::StartTracing, TriggerMode::StopTracing, TriggerMode::CloneSnapshot]);
    let of_name = |name: &&str| Trigger {
        name: Some((*name).to_owned()),
        producer_name_regex: choices.one_in(4).then(|| choices.of(&NAMES).to_owned()),
        stop_delay_ms: Some(choices.below(3000) as u32),
        max_per_24_h: choices.one_in(2).then(|| choices.between(1, 3) as u32),
        skip_probability: choices.one_in(8).then_some(1.0),
    };
    let triggers = TRIGGERS.iter().map(of_name).collect();
    TriggerConfig {
        trigger_mode: Some(mode.into()),
        triggers,
        trigger_timeout_ms: Some(choices.between(1000, 40_000) as u32),
        ..Default::default()
    }
}
