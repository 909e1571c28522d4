//! The way from a producer to the service in the same process: a queue.

use std::sync::mpsc::Sender;

use watershed_service::ProducerId;
use watershed_wire::protos::CommitDataRequest;

use super::shell::Request;
use crate::endpoint::{Done, Endpoint};

/// A call of the producer port.
pub(super) enum Call {
    Register(Vec<u8>),
    Update(Vec<u8>),
    Unregister(String),
    RegisterWriter { writer_id: u16, target_buffer: u16 },
    UnregisterWriter { writer_id: u16 },
    Commit(CommitDataRequest, Option<Done>),
    Started { instance_id: u64 },
    Stopped { instance_id: u64 },
    Sync(Done),
}

pub(super) struct QueueEndpoint {
    pub(super) producer_id: ProducerId,
    pub(super) requests: Sender<Request>,
}

impl QueueEndpoint {
    fn call(&self, call: Call) {
        // An error means that the service has ended: calls are ignored then.
        let _ = self.requests.send(Request::Producer(self.producer_id, call));
    }
}

impl Endpoint for QueueEndpoint {
    fn register_data_source(&self, descriptor: &[u8]) {
        self.call(Call::Register(descriptor.to_vec()));
    }

    fn update_data_source(&self, descriptor: &[u8]) {
        self.call(Call::Update(descriptor.to_vec()));
    }

    fn unregister_data_source(&self, name: &str) {
        self.call(Call::Unregister(name.to_owned()));
    }

    fn register_trace_writer(&self, writer_id: u16, target_buffer: u16) {
        self.call(Call::RegisterWriter { writer_id, target_buffer });
    }

    fn unregister_trace_writer(&self, writer_id: u16) {
        self.call(Call::UnregisterWriter { writer_id });
    }

    fn commit_data(&self, request: CommitDataRequest, done: Option<Done>) {
        self.call(Call::Commit(request, done));
    }

    fn data_source_started(&self, instance_id: u64) {
        self.call(Call::Started { instance_id });
    }

    fn data_source_stopped(&self, instance_id: u64) {
        self.call(Call::Stopped { instance_id });
    }

    fn activate_triggers(&self, _names: &[String]) {
        // The service refuses configs with triggers, so no session waits for one.
    }

    fn sync(&self, done: Done) {
        self.call(Call::Sync(done));
    }
}
