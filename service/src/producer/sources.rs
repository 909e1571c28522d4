//! What producers offer: registered data sources.

use std::sync::Arc;

use watershed_engine::ProducerId;
use watershed_wire::Decode as _;
use watershed_wire::ipc::messages::ActedOnDescriptor;

use crate::clock::ClockReadings;
use crate::ids::InstanceId;
use crate::limits::DATA_SOURCE_NAME_BYTES_MAX;
use crate::output::Warning;
use crate::producer::registry::NotTaken;
use crate::service::Service;
use crate::session::InstanceState;

/// A registered data source: the descriptor as it came, with fields that the service does not know,
/// and what it needs of it.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) producer_id: ProducerId,
    pub(crate) descriptor: Descriptor,
    pub(crate) descriptor_bytes: Vec<u8>,
}

/// The part of a `DataSourceDescriptor` that the service acts on.
#[derive(Clone, Debug)]
pub(crate) struct Descriptor {
    pub(crate) name: Arc<str>,
    /// The producer's own number for the source, 0 if it has none.
    pub(super) id: u64,
    pub(crate) will_notify_on_start: bool,
    pub(crate) will_notify_on_stop: bool,
    pub(crate) handles_incremental_state_clear: bool,
    pub(crate) no_flush: bool,
}

impl Descriptor {
    /// `None` if the bytes are no descriptor, or one without a name or with too long a name.
    fn read(bytes: &[u8]) -> Option<Descriptor> {
        let message = ActedOnDescriptor::decode(bytes).ok()?;
        let descriptor = Descriptor {
            id: message.id(),
            will_notify_on_start: message.will_notify_on_start(),
            will_notify_on_stop: message.will_notify_on_stop(),
            handles_incremental_state_clear: message.handles_incremental_state_clear(),
            no_flush: message.no_flush(),
            name: message.name.unwrap_or_default().into(),
        };
        Some(descriptor).filter(|read| (1..=DATA_SOURCE_NAME_BYTES_MAX).contains(&read.name.len()))
    }
}

/// A registered data source, for those who ask what can be recorded.
#[derive(Clone, Copy, Debug)]
pub struct RegisteredDataSource<'a> {
    /// What a config asks for it by.
    pub name: &'a str,
    /// Whose it is.
    pub producer_id: ProducerId,
    /// Name of the producer.
    pub producer_name: &'a str,
    /// The binary `DataSourceDescriptor`, as it was registered.
    pub descriptor: &'a [u8],
}

impl Service {
    /// The registered data sources, in the order of registration.
    pub fn data_sources(&self) -> impl Iterator<Item = RegisteredDataSource<'_>> {
        self.sources.iter().map(|source| RegisteredDataSource {
            name: &source.descriptor.name,
            producer_id: source.producer_id,
            producer_name: self.producers.get(&source.producer_id).map_or("", |producer| &producer.name),
            descriptor: &source.descriptor_bytes,
        })
    }

    /// A producer offers a data source (`descriptor` is a binary `DataSourceDescriptor`). It joins
    /// the sessions that already ask for its name.
    ///
    /// Ignored: what is no descriptor, one without a name, a second one with the same non-zero id
    /// from the same producer, and with a warning what is beyond the limits of a producer. Several
    /// with one name are fine, and all of them are used.
    pub fn handle_register_data_source(
        &mut self,
        producer_id: ProducerId,
        descriptor: &[u8],
        now: &ClockReadings,
    ) {
        let Some(read) = Descriptor::read(descriptor) else { return };
        if !self.producers.contains_key(&producer_id) {
            return;
        }
        let key = match self.sources.insert(producer_id, read, descriptor) {
            Ok(key) => key,
            Err(NotTaken::Known) => return,
            Err(NotTaken::TooMany) => return self.warn_of_too_many(producer_id),
        };
        for session_id in self.session_ids() {
            self.offer_source(session_id, key, now);
        }
    }

    /// Once for each connection: a warning is kept until the shell takes it.
    fn warn_of_too_many(&mut self, producer_id: ProducerId) {
        let Some(producer) = self.producers.get_mut(&producer_id) else { return };
        if !std::mem::replace(&mut producer.warned_of_too_many, true) {
            let producer_name = producer.name.to_string();
            self.warn(Warning::TooManyDataSources { producer_name });
        }
    }

    /// A producer describes a data source anew: one with the same name and non-zero id, else the
    /// call is ignored. Instances that exist keep what they were made with.
    pub fn handle_update_data_source(&mut self, producer_id: ProducerId, descriptor: &[u8]) {
        let Some(read) = Descriptor::read(descriptor).filter(|read| read.id != 0) else { return };
        self.sources.update(producer_id, read, descriptor);
    }

    /// A producer withdraws one data source of this name. All its instances of that name are
    /// stopped and count as such at once.
    pub fn handle_unregister_data_source(
        &mut self,
        producer_id: ProducerId,
        name: &str,
        now: &ClockReadings,
    ) {
        let Some(key) = self.sources.first_of(producer_id, name) else { return };
        for session_id in self.session_ids() {
            self.remove_instances(session_id, producer_id, Some(name), now);
        }
        self.sources.remove(key);
    }

    /// The producer has gone, with all that it offered.
    pub(super) fn unregister_all(&mut self, producer_id: ProducerId, now: &ClockReadings) {
        for session_id in self.session_ids() {
            self.remove_instances(session_id, producer_id, None, now);
        }
        self.counters.looked_at += self.sources.remove_all_of(producer_id) as u64;
    }

    /// An instance that was to say when it has started says so. Ignored unless it is this
    /// producer's and was waited for.
    pub fn handle_data_source_started(
        &mut self,
        producer_id: ProducerId,
        instance_id: InstanceId,
        now: &ClockReadings,
    ) {
        self.acknowledge(producer_id, instance_id, InstanceState::Starting, InstanceState::Started, now);
    }

    /// An instance that was to say when it has stopped says so. Ignored unless it is this
    /// producer's and was waited for.
    pub fn handle_data_source_stopped(
        &mut self,
        producer_id: ProducerId,
        instance_id: InstanceId,
        now: &ClockReadings,
    ) {
        self.acknowledge(producer_id, instance_id, InstanceState::Stopping, InstanceState::Stopped, now);
    }
}
