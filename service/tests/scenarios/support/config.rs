//! Configs, field by field.

use watershed_wire::protos;
use watershed_wire::protos::TraceConfig;
use watershed_wire::protos::trace_config::{BufferConfig, DataSource, buffer_config::FillPolicy};

pub fn buffer(size_kb: u32) -> BufferConfig {
    BufferConfig { size_kb: Some(size_kb), ..Default::default() }
}

pub fn discard(size_kb: u32) -> BufferConfig {
    BufferConfig { fill_policy: Some(FillPolicy::Discard.into()), ..buffer(size_kb) }
}

pub fn named(name: &str, size_kb: u32) -> BufferConfig {
    BufferConfig { name: Some(name.to_owned()), ..buffer(size_kb) }
}

/// A source that writes into the buffer with this index.
pub fn source(name: &str, target_buffer: u32) -> DataSource {
    let config = protos::DataSourceConfig {
        name: Some(name.to_owned()),
        target_buffer: Some(target_buffer),
        ..Default::default()
    };
    DataSource { config: Some(config), ..Default::default() }
}

/// One ring of 64 KiB with this source.
pub fn one_source(name: &str) -> TraceConfig {
    TraceConfig { buffers: vec![buffer(64)], data_sources: vec![source(name, 0)], ..Default::default() }
}

/// The same, into a file.
pub fn into_file(name: &str) -> TraceConfig {
    TraceConfig { write_into_file: Some(true), ..one_source(name) }
}
