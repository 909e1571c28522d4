//! The connection from a producer to the service.

use watershed_service::DirectCommitter;
use watershed_wire::protos::CommitDataRequest;

/// Called once when the service has processed a request and everything before it.
pub type Done = Box<dyn FnOnce() + Send>;

/// What a producer tells the service: one method for each call of the producer port. The service
/// may live in the same process or behind a socket; producers cannot tell.
///
/// Calls that are made one after the other arrive in that order. Any thread may call; the arbiter
/// makes sure that commits leave in the order of their making. A call must not wait for the service
/// to act, and must not call back into the producer. After the service is gone calls are ignored,
/// and `done` functions are dropped.
pub trait Endpoint: Send + Sync {
    /// Offers a data source. `descriptor` is a serialized `DataSourceDescriptor`.
    fn register_data_source(&self, descriptor: &[u8]);
    /// Replaces the descriptor of a registered source with the same name and a non-zero id.
    fn update_data_source(&self, descriptor: &[u8]);
    /// Withdraws a data source.
    fn unregister_data_source(&self, name: &str);
    /// Says into which buffer a writer writes, so that its unfinished chunks may be scraped.
    fn register_trace_writer(&self, writer_id: u16, target_buffer: u16);
    /// Says that a writer has ended; all its chunks were committed before.
    fn unregister_trace_writer(&self, writer_id: u16);
    /// Hands over chunks and patches.
    fn commit_data(&self, request: CommitDataRequest, done: Option<Done>);
    /// Answers the start of an instance.
    fn data_source_started(&self, instance_id: u64);
    /// Answers the stop of an instance; all its data was committed before.
    fn data_source_stopped(&self, instance_id: u64);
    /// Fires triggers.
    fn activate_triggers(&self, names: &[String]);
    /// Calls `done` when everything before has been processed.
    fn sync(&self, done: Done);
    /// Whether a batch that is due is to be committed now. Otherwise the producer tries again a
    /// little later; what it has to answer or to end is committed all the same.
    fn has_room(&self) -> bool {
        true
    }
    /// Whether writers commit themselves, by [`Endpoint::direct_committer`].
    fn is_direct(&self) -> bool {
        false
    }
    /// For a writer whose thread is to commit its chunks itself, because the service is in this
    /// process. `None`: they go through [`Endpoint::commit_data`].
    fn direct_committer(&self, _writer_id: u16, _target_buffer: u16) -> Option<DirectCommitter> {
        None
    }
    /// Sends what a full socket has not taken yet. The producer's thread, which sends it otherwise,
    /// calls this where a writer makes it wait for the service.
    fn send_waiting(&self) {}
}
