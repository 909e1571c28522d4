//! The way from a producer to the service in the same process: a queue, which also has what the
//! owners of sessions ask for.
//!
//! It has no limit of its own. Only this program's threads make it longer:
//!
//! | calls in the queue | who makes them | how many at most |
//! |---|---|---|
//! | chunks to move | the producer's thread, from what writers returned | the chunks of the shared memory: each is free for a writer again only after its commit was handled |
//! | patches | likewise | the sizes of nested messages that were open where a chunk ended, once each |
//! | commits without chunks | likewise, for writers that flush | one for each turn of the producer's thread |
//! | writers that begin and end | likewise | 32767 of each in one turn of it, as ids come back when it sends them |
//! | data source offered | the program | its calls of `register` |
//! | started, stopped | the producer's thread | one for each command of the service |
//! | calls with an answer (start of a session, statistics, read, flush and wait) | the program | one for each thread: it waits |
//! | start, flush, stop of a session | the program | no bound: nobody waits for them |
//! | end of a session | the program | one for each session |
//!
//! So while the service's thread writes to a slow file, a program that flushes a session or a
//! writer in a loop, or begins and ends writers in one, makes the queue longer with each. A limit
//! would have to make it wait, and the thread that waits could be one that the service's thread
//! itself waits for: in the program's sink, or in its handler of events, which both threads call.

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
