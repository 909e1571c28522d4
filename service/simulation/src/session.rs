//! What the simulation knows about a session.

use std::collections::BTreeMap;

use watershed_service::SessionId;
use watershed_wire::protos::TraceConfig;
use watershed_wire::protos::trace_config::trigger_config::TriggerMode;

use crate::check::ledger::Ledger;
use crate::check::reader::{Identity, Known, Reader};

#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) uid: i32,
    pub(crate) config: TraceConfig,
    pub(crate) is_filtered: bool,
    /// A clone without the filter may have what was filtered for the original's file, or for one
    /// of its consumers that had gone.
    may_be_filtered: bool,
    pub(crate) is_roomy: bool,
    /// Buffers were emptied or handed to a clone, or a file could not be written.
    pub(crate) has_holes: bool,
    pub(crate) ledger: Ledger,
    pub(crate) reader: Reader,
    /// Clones were made, which take the session's triggers with them.
    pub(crate) was_cloned: bool,
    pub(crate) is_clone: bool,
    /// Where it goes into a file: what had been read when that began. Clones have what is there.
    pub(crate) before_file: Option<Reader>,
    /// Of which the original's later packets must not come again.
    pub(crate) num_triggers_taken: u64,
    pub(crate) num_hits_told: u64,
    pub(crate) key: Option<String>,
    pub(crate) was_detached: bool,
    /// Something was read for a consumer that did not have it any more.
    pub(crate) was_handed_back: bool,
    pub(crate) ends_told: u64,
    pub(crate) ends_wanted: u64,
}

impl Session {
    pub(crate) fn new(uid: i32, config: TraceConfig, is_roomy: bool) -> Session {
        Session {
            uid,
            is_filtered: config.trace_filter.is_some(),
            may_be_filtered: false,
            before_file: config.write_into_file().then(Reader::default),
            config,
            is_roomy,
            has_holes: false,
            ledger: Ledger::default(),
            reader: Reader::default(),
            was_cloned: false,
            is_clone: false,
            num_triggers_taken: 0,
            num_hits_told: 0,
            key: None,
            was_detached: false,
            was_handed_back: false,
            ends_told: 0,
            ends_wanted: 1,
        }
    }

    pub(crate) fn trigger_mode(&self) -> Option<TriggerMode> {
        self.config.trigger_config.as_ref().map(|triggers| triggers.trigger_mode())
    }

    /// Whether a read gives what was committed.
    pub(crate) fn is_readable(&self) -> bool {
        match self.trigger_mode() {
            _ if self.is_clone => true,
            None => true,
            Some(TriggerMode::CloneSnapshot) => false,
            Some(_) => self.num_triggers_taken > 0,
        }
    }

    pub(crate) fn transfers(&self) -> bool {
        self.config.buffers.iter().any(|buffer| buffer.transfer_on_clone())
    }

    pub(crate) fn clears(&self) -> bool {
        self.config.buffers.iter().any(|buffer| buffer.clear_before_clone())
    }

    /// The producers of this name may take part.
    pub(crate) fn takes(&self, source: &str, producer_name: &str) -> bool {
        self.config.data_sources.iter().any(|entry| {
            let filter = &entry.producer_name_filter;
            entry.config.as_ref().is_some_and(|config| config.name() == source)
                && (filter.is_empty() || filter.iter().any(|name| name == producer_name))
        })
    }

    pub(crate) fn take(&mut self, bytes: &[u8], identities: &BTreeMap<u32, Identity>) {
        let Session { ledger, reader, is_filtered, may_be_filtered, is_roomy, has_holes, .. } = self;
        let known = Known {
            identities,
            ledger,
            is_filtered: *is_filtered,
            may_be_filtered: *may_be_filtered,
            is_roomy: *is_roomy,
            has_holes: *has_holes,
        };
        reader.take(bytes, &known);
    }

    /// Everything that can be read was: how many packets are missing at the end.
    pub(crate) fn drained(&self, identities: &BTreeMap<u32, Identity>) -> u64 {
        self.reader.drained(&Known {
            identities,
            ledger: &self.ledger,
            is_filtered: self.is_filtered,
            may_be_filtered: self.may_be_filtered,
            is_roomy: self.is_roomy,
            has_holes: self.has_holes,
        })
    }

    /// The session of a clone of this one, which begins where this one is read up to.
    pub(crate) fn cloned(&mut self, uid: i32, skips_filter: bool) -> Session {
        self.was_cloned = true;
        self.has_holes |= self.transfers() || self.clears();
        Session {
            uid,
            is_filtered: self.is_filtered && !skips_filter,
            may_be_filtered: self.may_be_filtered
                || self.is_filtered && (self.before_file.is_some() || self.was_handed_back),
            is_clone: true,
            before_file: None,
            key: None,
            ends_wanted: 0,
            ends_told: 0,
            ..self.clone()
        }
    }
}

/// Which sessions there are.
pub(crate) type Sessions = BTreeMap<SessionId, Session>;
