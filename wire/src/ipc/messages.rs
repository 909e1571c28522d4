//! Requests and replies in which configs and descriptors stay bytes.
//!
//! The structs of [`protos`](crate::protos) drop fields that the schema does not have. Those here
//! are the same messages on the wire, but what is passed on is kept as it came: read it with
//! [`config`](crate::config) or [`raw`](crate::raw).
//!
//! A message that occurs more than once in a field is the sum of its occurrences; the accessors
//! join them. `None` is a field that is not there, which differs from an empty message.

use crate::Decode as _;
use crate::protos::get_async_command_response::{ClearIncrementalState, Flush, SetupTracing, StopDataSource};
use crate::protos::tracing_service_state::{Producer, TracingSession};

watershed_protos::impl_encode! {
    EnableTracingRequest,
    TraceConfigMessage,
    DataSourceMessage,
    GetAsyncCommandResponse,
    QueryServiceStateResponse,
}

watershed_protos::impl_decode! {
    EnableTracingRequest,
    TraceConfigMessage,
    DataSourceMessage,
    ActedOnDescriptor,
    GetAsyncCommandResponse,
    QueryServiceStateResponse,
}

/// The occurrences of one submessage field, one after the other.
fn joined(parts: &[Vec<u8>]) -> Option<Vec<u8>> {
    (!parts.is_empty()).then(|| parts.concat())
}

/// A consumer's request for a session.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EnableTracingRequest {
    #[prost(bytes = "vec", repeated, tag = "1")]
    trace_config: Vec<Vec<u8>>,
    /// Whether only the notice of the session's end is asked for.
    #[prost(bool, optional, tag = "2")]
    pub attach_notification_only: Option<bool>,
}

impl EnableTracingRequest {
    /// For a session with this config.
    pub fn new(trace_config: Vec<u8>) -> Self {
        EnableTracingRequest { trace_config: vec![trace_config], attach_notification_only: None }
    }

    /// For the notice of the end of the session that the connection is attached to.
    pub fn of_attached() -> Self {
        EnableTracingRequest { trace_config: Vec::new(), attach_notification_only: Some(true) }
    }

    /// The encoded `TraceConfig`.
    pub fn trace_config(&self) -> Option<Vec<u8>> {
        joined(&self.trace_config)
    }
}

/// A message whose only field is a config, as `ChangeTraceConfigRequest` and `AttachResponse` are.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TraceConfigMessage {
    #[prost(bytes = "vec", repeated, tag = "1")]
    trace_config: Vec<Vec<u8>>,
}

impl TraceConfigMessage {
    /// With this config.
    pub fn new(trace_config: Vec<u8>) -> Self {
        TraceConfigMessage { trace_config: vec![trace_config] }
    }

    /// The encoded `TraceConfig`.
    pub fn trace_config(&self) -> Option<Vec<u8>> {
        joined(&self.trace_config)
    }
}

/// A message whose only field is a descriptor, as `RegisterDataSourceRequest` and
/// `UpdateDataSourceRequest` are.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DataSourceMessage {
    #[prost(bytes = "vec", repeated, tag = "1")]
    data_source_descriptor: Vec<Vec<u8>>,
}

impl DataSourceMessage {
    /// With this descriptor.
    pub fn new(data_source_descriptor: Vec<u8>) -> Self {
        DataSourceMessage { data_source_descriptor: vec![data_source_descriptor] }
    }

    /// The encoded `DataSourceDescriptor`.
    pub fn data_source_descriptor(&self) -> Option<Vec<u8>> {
        joined(&self.data_source_descriptor)
    }
}

/// The fields of a `DataSourceDescriptor` that a service acts on. What is in the others is between
/// the producer and those who ask: they need not even decode.
#[derive(Clone, PartialEq, prost::Message)]
#[expect(missing_docs, reason = "the fields of the schema's message")]
pub struct ActedOnDescriptor {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(bool, optional, tag = "2")]
    pub will_notify_on_stop: Option<bool>,
    #[prost(bool, optional, tag = "3")]
    pub will_notify_on_start: Option<bool>,
    #[prost(bool, optional, tag = "4")]
    pub handles_incremental_state_clear: Option<bool>,
    #[prost(uint64, optional, tag = "7")]
    pub id: Option<u64>,
    #[prost(bool, optional, tag = "9")]
    pub no_flush: Option<bool>,
}

/// One command of the service to a producer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetAsyncCommandResponse {
    /// `None` if the service is newer and has commands that the schema does not have.
    #[prost(oneof = "Command", tags = "1, 2, 3, 5, 6, 7")]
    pub cmd: Option<Command>,
}

impl From<Command> for GetAsyncCommandResponse {
    fn from(command: Command) -> Self {
        GetAsyncCommandResponse { cmd: Some(command) }
    }
}

/// What a producer is to do.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Command {
    /// Start an instance.
    #[prost(message, tag = "1")]
    StartDataSource(Instance),
    /// Stop it.
    #[prost(message, tag = "2")]
    StopDataSource(StopDataSource),
    /// The memory is ready; its file descriptor is attached unless the producer brought it.
    #[prost(message, tag = "3")]
    SetupTracing(SetupTracing),
    /// Commit what these instances have written.
    #[prost(message, tag = "5")]
    Flush(Flush),
    /// Prepare an instance.
    #[prost(message, tag = "6")]
    SetupDataSource(Instance),
    /// Start incremental state afresh.
    #[prost(message, tag = "7")]
    ClearIncrementalState(ClearIncrementalState),
}

/// An instance of a data source that is to be set up or started.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Instance {
    /// Its number.
    #[prost(uint64, optional, tag = "1")]
    pub new_instance_id: Option<u64>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    config: Vec<Vec<u8>>,
}

impl Instance {
    /// With this number and config.
    pub fn new(instance_id: u64, config: Vec<u8>) -> Self {
        Instance { new_instance_id: Some(instance_id), config: vec![config] }
    }

    /// The encoded `DataSourceConfig`.
    pub fn config(&self) -> Option<Vec<u8>> {
        joined(&self.config)
    }
}

/// One part of the service's state. The replies of the stream, one after the other, are the
/// encoding of the whole.
#[derive(Clone, PartialEq, prost::Message)]
pub struct QueryServiceStateResponse {
    /// The part.
    #[prost(message, optional, tag = "1")]
    pub service_state: Option<TracingServiceState>,
}

/// As `TracingServiceState` of [`protos`](crate::protos), which says what the fields mean.
#[derive(Clone, PartialEq, prost::Message)]
#[expect(missing_docs, reason = "the fields of the schema's message")]
pub struct TracingServiceState {
    #[prost(message, repeated, tag = "1")]
    pub producers: Vec<Producer>,
    #[prost(message, repeated, tag = "2")]
    pub data_sources: Vec<ServiceDataSource>,
    #[prost(int32, optional, tag = "3")]
    pub num_sessions: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    pub num_sessions_started: Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub tracing_service_version: Option<String>,
    #[prost(message, repeated, tag = "6")]
    pub tracing_sessions: Vec<TracingSession>,
    #[prost(bool, optional, tag = "7")]
    pub supports_tracing_sessions: Option<bool>,
}

/// A registered data source in the service's state.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ServiceDataSource {
    #[prost(bytes = "vec", repeated, tag = "1")]
    ds_descriptor: Vec<Vec<u8>>,
    /// Whose it is.
    #[prost(int32, optional, tag = "2")]
    pub producer_id: Option<i32>,
}

impl ServiceDataSource {
    /// With this descriptor.
    pub fn new(ds_descriptor: Vec<u8>, producer_id: i32) -> Self {
        ServiceDataSource { ds_descriptor: vec![ds_descriptor], producer_id: Some(producer_id) }
    }

    /// The encoded `DataSourceDescriptor`.
    pub fn ds_descriptor(&self) -> Option<Vec<u8>> {
        joined(&self.ds_descriptor)
    }

    /// The name in the descriptor, as the service reads it; empty if there is none.
    pub fn name(&self) -> String {
        let descriptor = self.ds_descriptor().unwrap_or_default();
        ActedOnDescriptor::decode(&descriptor[..]).unwrap_or_default().name.unwrap_or_default()
    }
}
