//! The instances of a session: by number, which is the order in which they were made, and by
//! producer. How many have not started or not stopped is counted, not looked up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use watershed_engine::ProducerId;

use crate::ids::InstanceId;
use crate::limits::INSTANCES_PER_PRODUCER_MAX;
use crate::session::InstanceState;

/// A data source of one producer, at work for one session. The flags are those that its descriptor
/// had when the instance was made.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) id: InstanceId,
    pub(crate) producer_id: ProducerId,
    pub(crate) producer_name: Arc<str>,
    pub(crate) source_name: Arc<str>,
    pub(crate) state: InstanceState,
    /// Where it writes: an index into the session's buffers.
    pub(super) buffer_index: usize,
    pub(crate) config: Arc<[u8]>,
    pub(super) will_notify_on_start: bool,
    pub(super) will_notify_on_stop: bool,
    pub(super) handles_incremental_state_clear: bool,
    pub(super) no_flush: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Instances {
    by_id: BTreeMap<InstanceId, Instance>,
    /// Of producers that have one.
    by_producer: BTreeMap<ProducerId, OfProducer>,
    num_started: usize,
    num_stopped: usize,
}

#[derive(Debug, Default)]
struct OfProducer {
    ids: BTreeSet<InstanceId>,
    /// It has had as many as it may have, and the user was told.
    refused: bool,
}

impl Instances {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn get(&self, id: InstanceId) -> Option<&Instance> {
        self.by_id.get(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Instance> {
        self.by_id.values()
    }

    /// Who has one.
    pub(super) fn producers(&self) -> impl Iterator<Item = ProducerId> + '_ {
        self.by_producer.keys().copied()
    }

    /// For a loop that changes them.
    pub(super) fn ids(&self) -> Vec<InstanceId> {
        self.by_id.keys().copied().collect()
    }

    /// The same of one producer.
    pub(super) fn ids_of(&self, producer_id: ProducerId) -> Vec<InstanceId> {
        self.by_producer.get(&producer_id).into_iter().flat_map(|own| &own.ids).copied().collect()
    }

    pub(crate) fn all_started(&self) -> bool {
        self.num_started == self.len()
    }

    pub(super) fn all_stopped(&self) -> bool {
        self.num_stopped == self.len()
    }

    /// Whether the producer may have one more here.
    pub(super) fn has_room_for(&self, producer_id: ProducerId) -> bool {
        self.by_producer.get(&producer_id).is_none_or(|own| own.ids.len() < INSTANCES_PER_PRODUCER_MAX)
    }

    /// The producer has no room for one more. Whether that is new.
    pub(super) fn refuse(&mut self, producer_id: ProducerId) -> bool {
        let own = self.by_producer.get_mut(&producer_id);
        own.is_some_and(|own| !std::mem::replace(&mut own.refused, true))
    }

    /// Its number is larger than all others.
    pub(super) fn insert(&mut self, instance: Instance) {
        self.count(instance.state, 1);
        self.by_producer.entry(instance.producer_id).or_default().ids.insert(instance.id);
        self.by_id.insert(instance.id, instance);
    }

    /// False if it is in this state already, or is not there.
    pub(super) fn set_state(&mut self, id: InstanceId, state: InstanceState) -> bool {
        let Some(instance) = self.by_id.get_mut(&id).filter(|instance| instance.state != state) else {
            return false;
        };
        let before = std::mem::replace(&mut instance.state, state);
        self.count(before, -1);
        self.count(state, 1);
        true
    }

    pub(super) fn remove(&mut self, id: InstanceId) {
        let Some(instance) = self.by_id.remove(&id) else { return };
        self.count(instance.state, -1);
        if let Some(own) = self.by_producer.get_mut(&instance.producer_id) {
            own.ids.remove(&id);
            if own.ids.is_empty() {
                self.by_producer.remove(&instance.producer_id);
            }
        }
    }

    fn count(&mut self, state: InstanceState, by: isize) {
        let counted = match state {
            InstanceState::Started => &mut self.num_started,
            InstanceState::Stopped => &mut self.num_stopped,
            InstanceState::Configured | InstanceState::Starting | InstanceState::Stopping => return,
        };
        *counted = counted.wrapping_add_signed(by);
    }
}
