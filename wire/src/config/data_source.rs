//! One data source's part of a config, and what the service writes into it before a producer gets
//! it.

use prost::Message as _;

use super::{ConfigError, check_size, decode};
use crate::protos;
use crate::protos::data_source_config::SessionInitiator;
use crate::raw::Rewrite;

/// The config of one data source: exact bytes, and the fields that the schema has as a struct.
///
/// Invariant: `view` is what `bytes` decode to.
#[derive(Debug, Clone, PartialEq)]
pub struct DataSourceConfig {
    bytes: Vec<u8>,
    view: protos::DataSourceConfig,
}

/// The fields of a `DataSourceConfig` that are the service's to say (spec, service 4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceFields {
    /// Global id of the buffer, not its index in the config.
    pub target_buffer: u16,
    /// Duration of the session when the source is set up; 0 is "until stopped".
    pub trace_duration_ms: u32,
    /// From 1.
    pub tracing_session_id: u64,
    /// As in the session's config.
    pub enable_extra_guardrails: bool,
    /// How long the service waits for the source to stop.
    pub stop_timeout_ms: u32,
    /// Who asked for the session.
    pub session_initiator: SessionInitiator,
    /// Written only if true: an explicit `false` would change the encoding, by whose hash a startup
    /// session is found again.
    pub prefer_suspend_clock_for_duration: bool,
}

impl DataSourceConfig {
    /// Takes an encoded `DataSourceConfig` as it is.
    ///
    /// # Errors
    /// [`ConfigError::Binary`] if a field that the schema has cannot be read;
    /// [`ConfigError::TooLarge`].
    pub fn from_binary(bytes: Vec<u8>) -> Result<Self, ConfigError> {
        check_size(bytes.len())?;
        let view = decode::<protos::DataSourceConfig>(&bytes)?;
        Ok(DataSourceConfig { bytes, view })
    }

    /// The config as it was given; what a producer gets, after [`Self::stamped`].
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The fields that the schema has.
    pub fn view(&self) -> &protos::DataSourceConfig {
        &self.view
    }

    /// The data source's name, empty if there is none.
    pub fn name(&self) -> &str {
        self.view.name()
    }

    /// The config with the service's fields written; every other field is kept byte for byte and in
    /// its order.
    ///
    /// # Errors
    /// None for a config that was read by this type.
    pub fn stamped(&self, fields: &ServiceFields) -> Result<Self, ConfigError> {
        let mut rewrite = Rewrite::new()
            .set_varint(2, fields.target_buffer.into())
            .set_varint(3, fields.trace_duration_ms.into())
            .set_varint(4, fields.tracing_session_id)
            .set_varint(6, fields.enable_extra_guardrails.into())
            .set_varint(7, fields.stop_timeout_ms.into())
            // Values of this enum are not negative.
            .set_varint(8, fields.session_initiator as u64);
        if fields.prefer_suspend_clock_for_duration {
            rewrite = rewrite.set_varint(122, 1);
        }
        let bytes = rewrite.apply(&self.bytes).map_err(super::BinaryError::from)?;
        Self::from_binary(bytes)
    }
}

/// For configs that a program writes: the fields that the struct has are all there is.
impl From<protos::DataSourceConfig> for DataSourceConfig {
    fn from(view: protos::DataSourceConfig) -> Self {
        DataSourceConfig { bytes: view.encode_to_vec(), view }
    }
}
