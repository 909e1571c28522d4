//! Messages to bytes and back, compiled once.

use prost::DecodeError;

use crate::protos;

/// A message of the schema to bytes.
///
/// `prost::Message` offers the same for any buffer, and so the compiler makes the code of a
/// message, and of all that may lie in it, again in each crate that calls it. These functions are
/// compiled here, and nowhere else. Tests may use `prost::Message`, which every message implements.
pub trait Encode {
    /// The message as bytes.
    fn encode_to_vec(&self) -> Vec<u8>;

    /// Appends the message's bytes.
    fn append_to(&self, out: &mut Vec<u8>);

    /// The size of the message's bytes.
    fn encoded_len(&self) -> usize;
}

/// A message of the schema from bytes; see [`Encode`].
pub trait Decode: Default {
    /// The message in `bytes`, without the fields that its type does not have.
    ///
    /// # Errors
    /// If the bytes are no message, or a field has another type than in the schema.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;
}

/// Implements [`Encode`] for types that implement `prost::Message`.
#[macro_export]
macro_rules! impl_encode {
    ($($message:ty),+ $(,)?) => {$(
        impl $crate::Encode for $message {
            #[inline(never)]
            fn encode_to_vec(&self) -> Vec<u8> {
                ::prost::Message::encode_to_vec(self)
            }

            #[inline(never)]
            fn append_to(&self, out: &mut Vec<u8>) {
                ::prost::Message::encode_raw(self, out);
            }

            #[inline(never)]
            fn encoded_len(&self) -> usize {
                ::prost::Message::encoded_len(self)
            }
        }
    )+};
}

/// Implements [`Decode`] for types that implement `prost::Message`.
#[macro_export]
macro_rules! impl_decode {
    ($($message:ty),+ $(,)?) => {$(
        impl $crate::Decode for $message {
            #[inline(never)]
            fn decode(bytes: &[u8]) -> Result<Self, $crate::DecodeError> {
                ::prost::Message::decode(bytes)
            }
        }
    )+};
}

// Only what a program of ours writes or reads: each entry has its price in the cold build.
impl_encode! {
    protos::trace_config::TriggerConfig,
    protos::ActivateTriggersRequest,
    protos::AttachRequest,
    protos::ChangeTraceConfigResponse,
    protos::ClockSnapshot,
    protos::CloneSessionRequest,
    protos::CloneSessionResponse,
    protos::CommitDataRequest,
    protos::ConcurrentSessionEvent,
    protos::DataSourceConfig,
    protos::DataSourceDescriptor,
    protos::DetachRequest,
    protos::DetachResponse,
    protos::DisableTracingRequest,
    protos::DisableTracingResponse,
    protos::EnableTracingResponse,
    protos::FlushRequest,
    protos::FlushResponse,
    protos::FreeBuffersRequest,
    protos::FreeBuffersResponse,
    protos::GetAsyncCommandRequest,
    protos::GetTraceStatsRequest,
    protos::GetTraceStatsResponse,
    protos::InitializeConnectionRequest,
    protos::InitializeConnectionResponse,
    protos::NotifyDataSourceStartedRequest,
    protos::NotifyDataSourceStoppedRequest,
    protos::ObserveEventsRequest,
    protos::ObserveEventsResponse,
    protos::QueryCapabilitiesRequest,
    protos::QueryCapabilitiesResponse,
    protos::QueryServiceStateRequest,
    protos::ReadBuffersRequest,
    protos::ReadBuffersResponse,
    protos::RegisterTraceWriterRequest,
    protos::SaveTraceForBugreportResponse,
    protos::StartTracingRequest,
    protos::StartTracingResponse,
    protos::SyncRequest,
    protos::SystemInfo,
    protos::TraceConfig,
    protos::TracePacket,
    protos::TraceProvenance,
    protos::TraceStats,
    protos::TraceUuid,
    protos::TracingServiceEvent,
    protos::Trigger,
    protos::UnregisterDataSourceRequest,
    protos::UnregisterTraceWriterRequest,
    protos::commit_data_request::ChunkToPatch,
    protos::commit_data_request::ChunksToMove,
    protos::ipc_frame::InvokeMethod,
    protos::ipc_frame::InvokeMethodReply,
}

impl_decode! {
    protos::ActivateTriggersRequest,
    protos::AttachRequest,
    protos::ChangeTraceConfigResponse,
    protos::ClockSnapshot,
    protos::CloneSessionRequest,
    protos::CloneSessionResponse,
    protos::CommitDataRequest,
    protos::DataSourceConfig,
    protos::DataSourceDescriptor,
    protos::DetachRequest,
    protos::DetachResponse,
    protos::DisableTracingRequest,
    protos::DisableTracingResponse,
    protos::EnableTracingResponse,
    protos::FlushRequest,
    protos::FlushResponse,
    protos::FreeBuffersRequest,
    protos::FreeBuffersResponse,
    protos::FtraceEventBundle,
    protos::FtraceStats,
    protos::GetAsyncCommandRequest,
    protos::GetTraceStatsRequest,
    protos::GetTraceStatsResponse,
    protos::InitializeConnectionRequest,
    protos::InitializeConnectionResponse,
    protos::NotifyDataSourceStartedRequest,
    protos::NotifyDataSourceStoppedRequest,
    protos::ObserveEventsRequest,
    protos::ObserveEventsResponse,
    protos::ProcessTree,
    protos::QueryCapabilitiesRequest,
    protos::QueryCapabilitiesResponse,
    protos::QueryServiceStateRequest,
    protos::ReadBuffersRequest,
    protos::ReadBuffersResponse,
    protos::RegisterTraceWriterRequest,
    protos::SaveTraceForBugreportResponse,
    protos::StartTracingRequest,
    protos::StartTracingResponse,
    protos::SyncRequest,
    protos::SystemInfo,
    protos::TraceConfig,
    protos::TracePacketDefaults,
    protos::TraceProvenance,
    protos::TraceStats,
    protos::TraceUuid,
    protos::TracingServiceEvent,
    protos::TrackDescriptor,
    protos::TrackEvent,
    protos::UnregisterDataSourceRequest,
    protos::UnregisterTraceWriterRequest,
}
