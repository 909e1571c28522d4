//! The service's state in replies that fit a frame.

use proptest::prelude::*;
use prost::Message as _;
use watershed_wire::framing::FRAME_SIZE_BYTES_MAX;
use watershed_wire::ipc::messages::{QueryServiceStateResponse, ServiceDataSource, TracingServiceState};
use watershed_wire::ipc::{
    SERVICE_STATE_ENTRY_SIZE_BYTES_MAX, SERVICE_STATE_SIZE_BYTES_LIMIT, SplitServiceState,
    split_service_state,
};
use watershed_wire::protos::tracing_service_state::{Producer, TracingSession};

fn head() -> TracingServiceState {
    TracingServiceState {
        num_sessions: Some(3),
        supports_tracing_sessions: Some(true),
        tracing_service_version: Some("watershed".to_owned()),
        ..Default::default()
    }
}

fn state_of(reply: &QueryServiceStateResponse) -> &TracingServiceState {
    reply.service_state.as_ref().unwrap()
}

/// A data source that takes so many bytes of a state, above 20,000.
fn data_source(entry_bytes: usize) -> ServiceDataSource {
    // Key and size of the entry and of its descriptor take 4 bytes each, the producer 2.
    let source = ServiceDataSource::new(vec![1; entry_bytes - 10], 5);
    assert_eq!(source.encoded_len() + 4, entry_bytes);
    source
}

/// What a client makes of the replies.
fn together(split: &SplitServiceState) -> TracingServiceState {
    let bytes: Vec<_> = split.replies.iter().flat_map(|reply| reply.encode_to_vec()).collect();
    QueryServiceStateResponse::decode(&bytes[..]).unwrap().service_state.unwrap()
}

#[test]
fn a_small_state_is_one_reply() {
    assert_eq!(SERVICE_STATE_SIZE_BYTES_LIMIT, 131_072 - 128);
    let state = TracingServiceState {
        producers: vec![Producer { id: Some(1), ..Default::default() }],
        data_sources: vec![ServiceDataSource::new(vec![1, 2], 1)],
        tracing_sessions: vec![TracingSession { id: Some(4), ..Default::default() }],
        ..head()
    };
    for state in [state, head(), TracingServiceState::default()] {
        let whole = [QueryServiceStateResponse { service_state: Some(state.clone()) }];
        let split = split_service_state(state);
        assert_eq!(split, SplitServiceState { replies: whole.to_vec(), entries_left_out: 0 });
    }
}

#[test]
fn a_data_source_at_the_limit_begins_a_reply() {
    let first = data_source(100_000);
    let room = SERVICE_STATE_SIZE_BYTES_LIMIT - head().encoded_len() - 100_000;
    for (second, replies) in [(room - 1, 1), (room, 2), (room + 1, 2)] {
        let state = TracingServiceState { data_sources: vec![first.clone(), data_source(second)], ..head() };
        let split = split_service_state(state.clone());
        assert_eq!(split.replies.len(), replies, "{second} bytes where there is room for {room}");
        assert_eq!(split.entries_left_out, 0);
        assert_eq!(together(&split), state);
        let largest = split.replies.iter().map(|reply| state_of(reply).encoded_len()).max().unwrap();
        assert!(largest < SERVICE_STATE_SIZE_BYTES_LIMIT);
        assert!(replies == 2 || largest == SERVICE_STATE_SIZE_BYTES_LIMIT - 1);
    }
}

#[test]
fn an_entry_that_fits_nowhere_is_left_out() {
    let largest = SERVICE_STATE_ENTRY_SIZE_BYTES_MAX;
    let sizes = [largest, largest + 1, 1 << 20, 30_000];
    let state = TracingServiceState { data_sources: sizes.map(data_source).to_vec(), ..head() };
    let split = split_service_state(state);
    assert_eq!(split.entries_left_out, 2);
    let kept: Vec<_> = together(&split).data_sources;
    assert_eq!(kept, [data_source(largest), data_source(30_000)]);
}

#[test]
fn a_large_entry_is_a_reply_of_its_own() {
    let largest = SERVICE_STATE_ENTRY_SIZE_BYTES_MAX;
    let sizes = [largest, largest, SERVICE_STATE_SIZE_BYTES_LIMIT, 30_000];
    let data_sources = sizes.map(data_source).to_vec();
    for (head, replies) in [(head(), 5), (TracingServiceState::default(), 4)] {
        let state = TracingServiceState { data_sources: data_sources.clone(), ..head };
        let split = split_service_state(state.clone());
        assert_eq!((split.replies.len(), split.entries_left_out), (replies, 0));
        assert_eq!(together(&split), state);
    }
}

#[test]
fn producers_and_sessions_are_cut_too() {
    let producer = |id| Producer { id: Some(id), name: Some("p".repeat(100)), ..Default::default() };
    let session =
        |id| TracingSession { id: Some(id), state: Some("STARTED".to_owned()), ..Default::default() };
    let state = TracingServiceState {
        producers: (0..5000).map(producer).collect(),
        tracing_sessions: (0..20_000).map(session).collect(),
        data_sources: (0..4000).map(|id| ServiceDataSource::new(vec![1; 60], id)).collect(),
        ..head()
    };
    let split = split_service_state(state.clone());
    assert!(split.replies.len() > 5, "{}", split.replies.len());
    assert!(split.replies.iter().all(|reply| reply.encoded_len() < FRAME_SIZE_BYTES_MAX - 64));
    assert_eq!(state_of(&split.replies[0]).num_sessions, Some(3));
    assert_eq!(state_of(&split.replies[1]).num_sessions, None, "said once");
    assert_eq!(together(&split), state);
}

proptest! {
    #[test]
    fn the_parts_are_the_whole(sizes in proptest::collection::vec(1_usize..70_000, 0..20)) {
        let sources = (0..).zip(&sizes).map(|(id, size)| ServiceDataSource::new(vec![7; *size], id));
        let state = TracingServiceState { data_sources: sources.collect(), ..head() };
        let split = split_service_state(state.clone());
        prop_assert!(split.replies.iter().all(|reply| state_of(reply).encoded_len() < SERVICE_STATE_SIZE_BYTES_LIMIT));
        prop_assert_eq!(together(&split), state);
    }
}
