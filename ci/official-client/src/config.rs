//! Trace configs.

use prost::Message as _;
use watershed_wire::protos::trace_config::{BufferConfig, DataSource, ProducerConfig};
use watershed_wire::protos::{DataSourceConfig, TraceConfig, TrackEventConfig};

use crate::producer::{CATEGORY, NUMBERED};

/// Track events and numbered packets into one ring.
pub(crate) fn ring(size_kb: u32) -> TraceConfig {
    let source = |config| DataSource { config: Some(config), ..DataSource::default() };
    let track_event_config = TrackEventConfig {
        enabled_categories: vec![CATEGORY.to_owned()],
        disabled_categories: vec!["*".to_owned()],
        ..TrackEventConfig::default()
    };
    TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(size_kb), ..BufferConfig::default() }],
        data_sources: vec![
            source(DataSourceConfig { name: Some(NUMBERED.to_owned()), ..Default::default() }),
            source(DataSourceConfig {
                name: Some("track_event".to_owned()),
                track_event_config: Some(track_event_config),
                ..Default::default()
            }),
        ],
        ..TraceConfig::default()
    }
}

/// The size of the memory shared with this process.
pub(crate) fn with_shared_memory(mut config: TraceConfig, size_kb: u32) -> TraceConfig {
    let program = std::env::current_exe().expect("Linux");
    let command = std::fs::read_to_string("/proc/self/cmdline").expect("Linux");
    // The library's producer is named after the first word of the command line.
    let name = command.split('\0').next().map_or_else(|| program.display().to_string(), String::from);
    config.producers.push(ProducerConfig {
        producer_name: Some(name),
        shm_size_kb: Some(size_kb),
        page_size_kb: None,
    });
    config
}

pub(crate) fn encode(config: &TraceConfig) -> Vec<u8> {
    config.encode_to_vec()
}
