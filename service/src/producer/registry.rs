//! All registered data sources, by what they are asked for: order, name, producer.
//!
//! Whatever a producer does, only its own sources are looked at; whatever a session asks for, only
//! those of that name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use watershed_engine::ProducerId;

use crate::limits::{DATA_SOURCES_PER_PRODUCER_MAX, DESCRIPTOR_BYTES_PER_PRODUCER_MAX};
use crate::producer::{Descriptor, Source};

/// A registration. They grow with time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourceKey(u64);

#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// In the order of registration, which is the order of matching.
    by_key: BTreeMap<SourceKey, Source>,
    by_name: BTreeMap<Arc<str>, BTreeSet<SourceKey>>,
    /// Of producers that have one.
    by_producer: BTreeMap<ProducerId, OfProducer>,
    last_key: u64,
}

/// What one producer has registered.
#[derive(Debug, Default)]
struct OfProducer {
    by_name: BTreeMap<Arc<str>, BTreeSet<SourceKey>>,
    /// Those that have a number of the producer's own.
    by_id: BTreeMap<u64, SourceKey>,
    count: usize,
    descriptor_bytes: usize,
}

/// Why a registration is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// The producer has one with this number.
    Known,
    /// The producer has as many, or as many bytes of descriptors, as it may have.
    TooMany,
}

impl OfProducer {
    fn has_room_for(&self, descriptor_bytes: usize) -> bool {
        self.descriptor_bytes + descriptor_bytes <= DESCRIPTOR_BYTES_PER_PRODUCER_MAX
    }
}

impl Sources {
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// In all tables: 0 when there is no source.
    pub(crate) fn num_rows(&self) -> usize {
        self.by_key.len() + self.by_name.len() + self.by_producer.len()
    }

    pub(crate) fn get(&self, key: SourceKey) -> Option<&Source> {
        self.by_key.get(&key)
    }

    /// All of them, in the order of registration.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Source> {
        self.by_key.values()
    }

    /// Those of this name, in the order of registration.
    pub(crate) fn of_name(&self, name: &str) -> Vec<SourceKey> {
        self.by_name.get(name).into_iter().flatten().copied().collect()
    }

    pub(crate) fn insert(
        &mut self,
        producer_id: ProducerId,
        descriptor: Descriptor,
        bytes: &[u8],
    ) -> Result<SourceKey, NotTaken> {
        let own = self.by_producer.entry(producer_id).or_default();
        if own.by_id.contains_key(&descriptor.id) {
            return Err(NotTaken::Known);
        }
        if own.count >= DATA_SOURCES_PER_PRODUCER_MAX || !own.has_room_for(bytes.len()) {
            return Err(NotTaken::TooMany);
        }
        self.last_key += 1;
        let key = SourceKey(self.last_key);
        own.count += 1;
        own.descriptor_bytes += bytes.len();
        own.by_name.entry(Arc::clone(&descriptor.name)).or_default().insert(key);
        if descriptor.id != 0 {
            own.by_id.insert(descriptor.id, key);
        }
        self.by_name.entry(Arc::clone(&descriptor.name)).or_default().insert(key);
        self.by_key.insert(key, Source { producer_id, descriptor, descriptor_bytes: bytes.to_vec() });
        Ok(key)
    }

    /// Another descriptor for the source of the same number and name. Ignored if there is none, or
    /// no room.
    pub(crate) fn update(&mut self, producer_id: ProducerId, descriptor: Descriptor, bytes: &[u8]) {
        let Some(own) = self.by_producer.get_mut(&producer_id) else { return };
        let key = own.by_id.get(&descriptor.id);
        let Some(source) = key.and_then(|key| self.by_key.get_mut(key)) else { return };
        own.descriptor_bytes -= source.descriptor_bytes.len();
        if source.descriptor.name == descriptor.name && own.has_room_for(bytes.len()) {
            source.descriptor = descriptor;
            source.descriptor_bytes = bytes.to_vec();
        }
        own.descriptor_bytes += source.descriptor_bytes.len();
    }

    /// The first that the producer registered with this name.
    pub(crate) fn first_of(&self, producer_id: ProducerId, name: &str) -> Option<SourceKey> {
        self.by_producer.get(&producer_id)?.by_name.get(name)?.first().copied()
    }

    pub(crate) fn remove(&mut self, key: SourceKey) {
        let Some(Source { producer_id, descriptor, descriptor_bytes }) = self.by_key.remove(&key) else {
            return;
        };
        remove_from(&mut self.by_name, &descriptor.name, key);
        let Some(own) = self.by_producer.get_mut(&producer_id) else { return };
        remove_from(&mut own.by_name, &descriptor.name, key);
        own.by_id.remove(&descriptor.id);
        own.count -= 1;
        own.descriptor_bytes -= descriptor_bytes.len();
        if own.count == 0 {
            self.by_producer.remove(&producer_id);
        }
    }

    /// Removes all that the producer has registered. Returns how many these were.
    pub(crate) fn remove_all_of(&mut self, producer_id: ProducerId) -> usize {
        let own = self.by_producer.get(&producer_id).map(|own| &own.by_name);
        let keys: Vec<SourceKey> = own.into_iter().flat_map(BTreeMap::values).flatten().copied().collect();
        keys.iter().for_each(|key| self.remove(*key));
        self.by_producer.remove(&producer_id);
        keys.len()
    }
}

fn remove_from(names: &mut BTreeMap<Arc<str>, BTreeSet<SourceKey>>, name: &str, key: SourceKey) {
    if let Some(keys) = names.get_mut(name) {
        keys.remove(&key);
        if keys.is_empty() {
            names.remove(name);
        }
    }
}
