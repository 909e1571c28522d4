//! Messages whose configs and descriptors stay bytes, next to the structs of the schema.

use prost::Message;
use watershed_wire::ipc::messages::{
    ActedOnDescriptor, Command, DataSourceMessage, EnableTracingRequest, GetAsyncCommandResponse, Instance,
    QueryServiceStateResponse, ServiceDataSource, TraceConfigMessage, TracingServiceState,
};
use watershed_wire::protos;
use watershed_wire::protos::get_async_command_response::Cmd;
use watershed_wire::protos::get_async_command_response::{
    ClearIncrementalState, Flush, SetupDataSource, SetupTracing, StartDataSource, StopDataSource,
};
use watershed_wire::protos::tracing_service_state::{DataSource, Producer, TracingSession};

/// Field 9999 of a message, length-delimited.
const UNKNOWN: &[u8] = &[0xfa, 0xf0, 0x04, 3, 0xde, 0xad, 0x7f];

fn with_unknown(message: &impl Message) -> Vec<u8> {
    [UNKNOWN, &message.encode_to_vec(), UNKNOWN].concat()
}

fn trace_config() -> protos::TraceConfig {
    protos::TraceConfig { duration_ms: Some(100), ..Default::default() }
}

fn descriptor() -> protos::DataSourceDescriptor {
    protos::DataSourceDescriptor { name: Some("a.b".to_owned()), id: Some(7), ..Default::default() }
}

fn data_source_config() -> protos::DataSourceConfig {
    protos::DataSourceConfig { name: Some("a.b".to_owned()), ..Default::default() }
}

/// Encodes one, decodes as the other.
fn recoded<T: Message + Default>(message: &impl Message) -> T {
    T::decode(&message.encode_to_vec()[..]).unwrap()
}

#[test]
fn requests_keep_what_the_schema_does_not_have() {
    let config = with_unknown(&trace_config());
    let enable = EnableTracingRequest::new(config.clone());
    let known: protos::EnableTracingRequest = recoded(&enable);
    assert_eq!(known.trace_config, Some(trace_config()));
    assert!(!known.attach_notification_only());
    let known: protos::EnableTracingRequest = recoded(&EnableTracingRequest::of_attached());
    assert!(known.trace_config.is_none() && known.attach_notification_only());
    let decoded: EnableTracingRequest = recoded(&enable);
    assert_eq!(decoded.trace_config(), Some(config.clone()));

    let change = TraceConfigMessage::new(config.clone());
    let known: protos::ChangeTraceConfigRequest = recoded(&change);
    assert_eq!(known.trace_config, Some(trace_config()));
    let known: protos::AttachResponse = recoded(&change);
    assert_eq!(known.trace_config, Some(trace_config()));
    assert_eq!(recoded::<TraceConfigMessage>(&change).trace_config(), Some(config));

    let bytes = with_unknown(&descriptor());
    let source = DataSourceMessage::new(bytes.clone());
    let known: protos::RegisterDataSourceRequest = recoded(&source);
    assert_eq!(known.data_source_descriptor, Some(descriptor()));
    let known: protos::UpdateDataSourceRequest = recoded(&source);
    assert_eq!(known.data_source_descriptor, Some(descriptor()));
    assert_eq!(recoded::<DataSourceMessage>(&source).data_source_descriptor(), Some(bytes));
}

#[test]
fn a_message_that_comes_in_parts_is_their_sum() {
    let (first, second) = (trace_config().encode_to_vec(), UNKNOWN.to_vec());
    let parts = [first.clone(), second.clone()].map(EnableTracingRequest::new);
    let bytes = parts.map(|part| part.encode_to_vec()).concat();
    let joined = EnableTracingRequest::decode(&bytes[..]).unwrap();
    assert_eq!(joined.trace_config(), Some([first, second].concat()));
}

#[test]
fn absent_and_empty_differ() {
    let absent = EnableTracingRequest::decode(&[2 << 3, 1][..]).unwrap();
    assert_eq!(absent.trace_config(), None);
    let empty: EnableTracingRequest = recoded(&EnableTracingRequest::new(Vec::new()));
    assert_eq!(empty.trace_config(), Some(Vec::new()));
    assert!(EnableTracingRequest::decode(&[1 << 3, 1][..]).is_err(), "a config that is an integer");
}

#[test]
fn commands_are_those_of_the_schema() {
    let bytes = with_unknown(&data_source_config());
    let config = Some(data_source_config());
    let (stop, flush) = (
        StopDataSource { instance_id: Some(9) },
        Flush { data_source_ids: vec![1, 2], request_id: Some(3), flags: Some(4) },
    );
    let memory = SetupTracing { shared_buffer_page_size_kb: Some(4), shm_key_windows: None };
    let clear = ClearIncrementalState { data_source_ids: vec![5] };
    let instance = || Instance::new(7, bytes.clone());
    let commands = [
        (
            Command::StartDataSource(instance()),
            Cmd::StartDataSource(StartDataSource { new_instance_id: Some(7), config: config.clone() }),
        ),
        (
            Command::SetupDataSource(instance()),
            Cmd::SetupDataSource(SetupDataSource { new_instance_id: Some(7), config }),
        ),
        (Command::StopDataSource(stop), Cmd::StopDataSource(stop)),
        (Command::Flush(flush.clone()), Cmd::Flush(flush)),
        (Command::SetupTracing(memory.clone()), Cmd::SetupTracing(memory)),
        (Command::ClearIncrementalState(clear.clone()), Cmd::ClearIncrementalState(clear)),
    ];
    for (command, cmd) in commands {
        let response = GetAsyncCommandResponse::from(command);
        let known: protos::GetAsyncCommandResponse = recoded(&response);
        assert_eq!(known.cmd, Some(cmd));
        let decoded: GetAsyncCommandResponse = recoded(&response);
        if let Some(Command::StartDataSource(instance) | Command::SetupDataSource(instance)) = &decoded.cmd {
            assert_eq!(instance.config(), Some(bytes.clone()));
        }
        assert_eq!(decoded, response);
    }
    let unknown: GetAsyncCommandResponse = GetAsyncCommandResponse::decode(UNKNOWN).unwrap();
    assert_eq!(unknown.cmd, None);
}

#[test]
fn the_state_of_the_service_is_that_of_the_schema() {
    let bytes = with_unknown(&descriptor());
    let producers = vec![Producer { id: Some(1), ..Default::default() }];
    let tracing_sessions = vec![TracingSession { id: Some(2), ..Default::default() }];
    let state = TracingServiceState {
        producers: producers.clone(),
        data_sources: vec![ServiceDataSource::new(bytes.clone(), 3)],
        num_sessions: Some(4),
        num_sessions_started: Some(5),
        tracing_service_version: Some("v".to_owned()),
        tracing_sessions: tracing_sessions.clone(),
        supports_tracing_sessions: Some(true),
    };
    let response = QueryServiceStateResponse { service_state: Some(state) };
    let known: protos::QueryServiceStateResponse = recoded(&response);
    let expected = protos::TracingServiceState {
        producers,
        data_sources: vec![DataSource { ds_descriptor: Some(descriptor()), producer_id: Some(3) }],
        num_sessions: Some(4),
        num_sessions_started: Some(5),
        tracing_service_version: Some("v".to_owned()),
        tracing_sessions,
        supports_tracing_sessions: Some(true),
    };
    assert_eq!(known.service_state, Some(expected));
    let decoded: QueryServiceStateResponse = recoded(&response);
    assert_eq!(decoded.service_state.unwrap().data_sources[0].ds_descriptor(), Some(bytes));
}

#[test]
fn a_data_source_has_a_name_whatever_else_is_in_its_descriptor() {
    // Field 6 is a message, and this is none.
    let odd = [&descriptor().encode_to_vec()[..], &[6 << 3 | 2, 1, 0xff]].concat();
    assert!(protos::DataSourceDescriptor::decode(&odd[..]).is_err());
    assert_eq!(ServiceDataSource::new(odd, 1).name(), "a.b");
    assert_eq!(ServiceDataSource::new(vec![1 << 3 | 2, 9], 1).name(), "", "no descriptor");
}

#[test]
fn what_a_service_acts_on_is_in_the_schema() {
    let descriptor = protos::DataSourceDescriptor {
        will_notify_on_stop: Some(true),
        will_notify_on_start: Some(false),
        handles_incremental_state_clear: Some(true),
        no_flush: Some(false),
        ..descriptor()
    };
    let expected = ActedOnDescriptor {
        name: descriptor.name.clone(),
        will_notify_on_stop: Some(true),
        will_notify_on_start: Some(false),
        handles_incremental_state_clear: Some(true),
        id: descriptor.id,
        no_flush: Some(false),
    };
    assert_eq!(recoded::<ActedOnDescriptor>(&descriptor), expected);
}
