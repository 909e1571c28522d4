//! Requests and replies of both ports from any bytes: no panic, and the messages in which configs
//! and descriptors stay bytes hold what the structs of the schema do.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message;
use watershed_wire::ipc::messages::{
    DataSourceMessage, EnableTracingRequest, GetAsyncCommandResponse, QueryServiceStateResponse,
    TraceConfigMessage,
};
use watershed_wire::ipc::split_service_state;
use watershed_wire::protos;

/// What decodes with the schema decodes with bytes, and encodes to the same again.
fn check<Known: Message + Default, Raw: Message + Default>(bytes: &[u8]) -> Option<Raw> {
    let known = Known::decode(bytes).ok();
    let raw = Raw::decode(bytes).ok();
    if let Some(known) = known {
        let raw = raw.as_ref().expect("what has more in it decodes");
        let again = Known::decode(&raw.encode_to_vec()[..]).expect("its fields are those that came");
        // Not by equality: a config may hold a number that is none.
        assert_eq!(again.encode_to_vec(), known.encode_to_vec());
    }
    raw
}

fuzz_target!(|bytes: &[u8]| {
    check::<protos::EnableTracingRequest, EnableTracingRequest>(bytes);
    check::<protos::ChangeTraceConfigRequest, TraceConfigMessage>(bytes);
    check::<protos::AttachResponse, TraceConfigMessage>(bytes);
    check::<protos::RegisterDataSourceRequest, DataSourceMessage>(bytes);
    check::<protos::UpdateDataSourceRequest, DataSourceMessage>(bytes);
    check::<protos::GetAsyncCommandResponse, GetAsyncCommandResponse>(bytes);
    let state = check::<protos::QueryServiceStateResponse, QueryServiceStateResponse>(bytes);
    if let Some(state) = state.and_then(|response| response.service_state) {
        let split = split_service_state(state.clone());
        let joined: Vec<u8> = split.replies.iter().flat_map(Message::encode_to_vec).collect();
        let joined = QueryServiceStateResponse::decode(&joined[..]).expect("they are messages");
        assert_eq!(joined.service_state, Some(state));
        assert_eq!(split.entries_left_out, 0, "an input is smaller than a reply");
    }
    let _ = protos::InitializeConnectionRequest::decode(bytes);
    let _ = protos::CommitDataRequest::decode(bytes);
    let _ = protos::ActivateTriggersRequest::decode(bytes);
    let _ = protos::CloneSessionRequest::decode(bytes);
    let _ = protos::ReadBuffersResponse::decode(bytes);
    let _ = protos::ObserveEventsResponse::decode(bytes);
    let _ = protos::GetTraceStatsResponse::decode(bytes);
});
