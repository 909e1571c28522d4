//! Configs: read from Perfetto's text format or from binary, kept byte for byte, passed on in
//! parts.
//!
//! ```text
//!   text ───parse──┐                           ┌── view(): fields of the schema, as structs
//!                  ├──>  bytes (kept as is)  ──┼── bytes(): echoed into the trace
//!   binary ────────┘                           ├── to_text(): for people
//!                                              └── data_sources(): bytes of each DataSourceConfig,
//!                                                  with the service's fields, all else unchanged
//! ```
//!
//! A config may hold fields that this program does not know, because a producer is newer than the
//! service. They must reach the producer and the trace unchanged, so the bytes are what counts and
//! the structs are only a view of them.
//!
//! The text format can name only what the schema has. A field that it lacks is an error that says
//! so; the same config in binary form passes through unchanged.

mod data_source;
mod echo;
mod error;
mod text;

use std::collections::BTreeMap;

use prost::Message as _;
use prost_reflect::{DynamicMessage, MessageDescriptor};

pub use self::data_source::{DataSourceConfig, ServiceFields};
pub use self::error::{BinaryError, ConfigError, Position, TextError};
use crate::protos;
use crate::raw::{Fields, Rewrite};
use crate::schema;

/// Largest config that is read: 16 MiB. Configs are kilobytes; the limit keeps a wrong file (a
/// trace, say) from being read whole.
pub const CONFIG_SIZE_BYTES_MAX: usize = 16 << 20;

/// Field `TraceConfig.data_sources`.
const DATA_SOURCES: u32 = 2;
/// Field `TraceConfig.DataSource.config`.
const CONFIG: u32 = 1;

/// A whole config: exact bytes, and the fields that the schema has as structs.
///
/// Invariant: `view` is what `bytes` decode to.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceConfig {
    bytes: Vec<u8>,
    view: protos::TraceConfig,
}

impl TraceConfig {
    /// Reads a config of either form. A config with a control character other than white space is
    /// binary, any other is text.
    ///
    /// Every binary config with a data source, or with any field below 4 that is not `buffers`, has
    /// such a character (the field's key).
    ///
    /// # Errors
    /// See [`Self::from_text`] and [`Self::from_binary`]; [`ConfigError::TooLarge`] above
    /// [`CONFIG_SIZE_BYTES_MAX`].
    pub fn parse(input: &[u8]) -> Result<Self, ConfigError> {
        if is_text(input) {
            let text = std::str::from_utf8(input).map_err(|error| {
                let valid = &input[..error.valid_up_to()];
                let valid = std::str::from_utf8(valid).unwrap_or_default();
                TextError::not_utf8(Position::end_of(valid))
            })?;
            Self::from_text(text)
        } else {
            Self::from_binary(input.to_vec())
        }
    }

    /// Reads Perfetto's text format (the text format of protocol buffers); a byte order mark at the
    /// beginning is passed over.
    ///
    /// # Errors
    /// [`ConfigError::Text`] with line, column and what was expected there.
    pub fn from_text(text: &str) -> Result<Self, ConfigError> {
        check_size(text.len())?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let message = text::parse(descriptor(), text)?;
        Self::from_binary(message.encode_to_vec())
    }

    /// Takes an encoded `TraceConfig` as it is.
    ///
    /// # Errors
    /// [`ConfigError::Binary`] if a field that the schema has cannot be read, with the offset of
    /// the outermost field that holds it.
    pub fn from_binary(bytes: Vec<u8>) -> Result<Self, ConfigError> {
        check_size(bytes.len())?;
        let view = decode::<protos::TraceConfig>(&bytes)?;
        let config = TraceConfig { bytes, view };
        // `data_sources` cannot fail later.
        config.data_sources()?;
        Ok(config)
    }

    /// The config as it was given, or as the text encodes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The fields that the schema has.
    pub fn view(&self) -> &protos::TraceConfig {
        &self.view
    }

    /// The text form, fields of the schema by name and unknown ones by number, one field a line.
    ///
    /// A text with only named fields reads back to an equal config; lines of unknown fields (`9999:
    /// ...`) are for people.
    pub fn to_text(&self) -> String {
        DynamicMessage::decode(descriptor(), self.bytes.as_slice())
            .map(|message| echo::to_text(&message))
            // What decodes into structs decodes into a dynamic message of the same schema.
            .unwrap_or_default()
    }

    /// The config of each entry of `data_sources`, in their order, with its exact bytes; an entry
    /// without one has an empty one.
    ///
    /// # Errors
    /// None for a config that was read by this type; the check is done again on the parts.
    pub fn data_sources(&self) -> Result<Vec<DataSourceConfig>, ConfigError> {
        let mut data_sources = Vec::with_capacity(self.view.data_sources.len());
        for entry in submessages(&self.bytes, DATA_SOURCES) {
            // A submessage that is there more than once is the sum of its occurrences.
            let mut bytes = Vec::new();
            for part in submessages(entry?, CONFIG) {
                bytes.extend_from_slice(part?);
            }
            data_sources.push(DataSourceConfig::from_binary(bytes)?);
        }
        Ok(data_sources)
    }

    /// The config with some of its outermost fields changed and all others kept byte for byte.
    ///
    /// # Errors
    /// If a changed field does not have the type that the schema wants.
    pub fn rewritten(&self, rewrite: &Rewrite) -> Result<Self, ConfigError> {
        let bytes = rewrite.apply(&self.bytes).map_err(BinaryError::from)?;
        Self::from_binary(bytes)
    }

    /// The config with the producer filters that `other` has for data sources of the same names,
    /// everything else kept byte for byte. Of several entries of one name in `other` the first
    /// counts; an entry whose name it does not have is left alone.
    ///
    /// # Errors
    /// None for configs that were read by this type.
    pub fn with_filters_of(&self, other: &TraceConfig) -> Result<Self, ConfigError> {
        const PRODUCER_NAME_FILTER: u32 = 2;
        const PRODUCER_NAME_REGEX_FILTER: u32 = 3;
        let mut filters_by_name = BTreeMap::new();
        for entry in &other.view.data_sources {
            filters_by_name.entry(name_of(entry)).or_insert_with(|| {
                Rewrite::new()
                    .set_each(PRODUCER_NAME_FILTER, entry.producer_name_filter.iter().map(String::as_bytes))
                    .set_each(
                        PRODUCER_NAME_REGEX_FILTER,
                        entry.producer_name_regex_filter.iter().map(String::as_bytes),
                    )
            });
        }
        let mut entries = Vec::new();
        for (bytes, entry) in submessages(&self.bytes, DATA_SOURCES).zip(&self.view.data_sources) {
            let bytes = bytes?;
            entries.push(match filters_by_name.get(name_of(entry)) {
                Some(filters) => filters.apply(bytes).map_err(BinaryError::from)?,
                None => bytes.to_vec(),
            });
        }
        self.rewritten(&Rewrite::new().set_each(DATA_SOURCES, entries.iter().map(Vec::as_slice)))
    }
}

/// Empty if it has none.
fn name_of(entry: &protos::trace_config::DataSource) -> &str {
    entry.config.as_ref().map_or("", |config| config.name())
}

/// For configs that a program writes: the fields that the structs have are all there is.
impl From<protos::TraceConfig> for TraceConfig {
    fn from(view: protos::TraceConfig) -> Self {
        TraceConfig { bytes: view.encode_to_vec(), view }
    }
}

fn descriptor() -> MessageDescriptor {
    schema::message("TraceConfig").expect("the schema has this message; a test decodes one")
}

fn check_size(size_bytes: usize) -> Result<(), ConfigError> {
    match size_bytes > CONFIG_SIZE_BYTES_MAX {
        true => Err(ConfigError::TooLarge { size_bytes }),
        false => Ok(()),
    }
}

fn is_text(input: &[u8]) -> bool {
    !input.iter().any(|byte| byte.is_ascii_control() && !matches!(byte, b'\t' | b'\n' | b'\r' | b'\x0c'))
}

/// Decodes a message; where that fails, finds the outermost field that is at fault.
fn decode<M: prost::Message + Default>(bytes: &[u8]) -> Result<M, BinaryError> {
    let message = M::decode(bytes).map_err(|error| {
        let offset_bytes = Fields::new(bytes)
            .find_map(|field| match field {
                Ok(field) => M::decode(field.bytes).is_err().then_some(field.offset_bytes),
                Err(malformed) => Some(malformed.offset_bytes),
            })
            .unwrap_or_default();
        BinaryError::new(offset_bytes, error.to_string())
    })?;
    // `prost` lets groups pass as unknown fields; they are not part of the format and cannot be
    // rewritten.
    match Fields::new(bytes).find_map(Result::err) {
        Some(malformed) => Err(malformed.into()),
        None => Ok(message),
    }
}

fn submessages(bytes: &[u8], number: u32) -> impl Iterator<Item = Result<&[u8], BinaryError>> {
    Fields::new(bytes).filter_map(move |field| match field {
        Ok(field) if field.number == number => field.value.bytes().map(Ok),
        Ok(_) => None,
        Err(malformed) => Some(Err(malformed.into())),
    })
}
