//! Tracing before there is a session, into memory of the producer's own.
//!
//! ```text
//!   trace_startup(config)          instance runs, writes for a reservation
//!      |                              |
//!      | SetupDataSource with the     | nobody has come for it in time
//!      | same config                  |
//!      v                              v
//!   the session has it: no second     it is stopped; what it wrote goes into no buffer,
//!   instance, and at StartDataSource  so that the service frees its chunks
//!   its buffer is bound
//! ```

use std::time::Duration;

use thiserror::Error;
use watershed_wire::raw::Fields;

use super::instance::Instance;
use crate::arbiter::Arbiter;

/// Why a producer does not trace at startup.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartupError {
    /// Only a producer with `RemoteOptions::own_memory` can, as long as the service takes the
    /// memory.
    #[error("the producer has no memory of its own")]
    NoMemory,
    /// No data source of that name is registered.
    #[error("no data source {0:?} is registered")]
    NoSuchDataSource(String),
    /// The data source cannot do what the config asks for.
    #[error("data source {name:?}: {reason}")]
    SetupFailed {
        /// Its name.
        name: String,
        /// What it says.
        reason: String,
    },
    /// The producer has ended.
    #[error("the producer has ended")]
    Ended,
}

/// An instance that no session has taken over yet.
pub(super) struct Startup {
    key: Vec<u8>,
    end_ns: u64,
    /// With a reservation.
    instance: Instance,
}

/// All of them, in the order of their start.
#[derive(Default)]
pub(super) struct Startups(Vec<Startup>);

impl Startups {
    /// Starts an instance that waits for a session at most so long.
    pub(super) fn start(
        &mut self,
        mut instance: Instance,
        adopt_within: Duration,
        arbiter: &Arbiter,
        now_ns: u64,
    ) {
        instance.start(arbiter, now_ns);
        let within_ns = u64::try_from(adopt_within.as_nanos()).unwrap_or(u64::MAX);
        let (key, end_ns) = (config_key(&instance.info.config_bytes), now_ns.saturating_add(within_ns));
        self.0.push(Startup { key, end_ns, instance });
    }

    /// The instance that was started with this config, for the session that asks for it.
    pub(super) fn adopt(&mut self, config_bytes: &[u8]) -> Option<Instance> {
        if self.0.is_empty() {
            return None;
        }
        let key = config_key(config_bytes);
        let index = self.0.iter().position(|startup| startup.key == key)?;
        Some(self.0.remove(index).instance)
    }

    pub(super) fn poll_timeout(&self) -> Option<u64> {
        self.0.iter().flat_map(|startup| [Some(startup.end_ns), startup.instance.poll_at_ns]).flatten().min()
    }

    /// Polls those that are due, and ends those for which nobody came. Gives their names.
    pub(super) fn handle_timeout(&mut self, arbiter: &Arbiter, now_ns: u64) -> Vec<String> {
        for Startup { instance, .. } in &mut self.0 {
            if instance.is_due(now_ns) {
                instance.poll(arbiter, now_ns);
            }
        }
        let over = self.0.extract_if(.., |startup| startup.end_ns <= now_ns);
        over.map(|Startup { mut instance, .. }| {
            // One that needs more time to stop has had its time.
            instance.stop(arbiter, now_ns);
            let (name, reservation) = (instance.name().to_owned(), instance.info.reservation);
            drop(instance);
            reservation.into_iter().for_each(|reservation| arbiter.bind_reservation(reservation, None));
            name
        })
        .collect()
    }

    /// All end without being asked. Gives their names.
    pub(super) fn clear(&mut self) -> Vec<String> {
        self.0.drain(..).map(|startup| startup.instance.name().to_owned()).collect()
    }
}

/// Fields of a `DataSourceConfig` that a service writes, and that name the buffer: `target_buffer`,
/// `trace_duration_ms`, `tracing_session_id`, `enable_extra_guardrails`, `stop_timeout_ms`,
/// `session_initiator`, `prefer_suspend_clock_for_duration`. Source: spec, service 4 and 7.5.
const OF_THE_SERVICE: [u32; 7] = [2, 3, 4, 6, 7, 8, 122];

/// What two configs have in common that ask for the same: their other fields, by number.
fn config_key(config_bytes: &[u8]) -> Vec<u8> {
    let fields = Fields::new(config_bytes).map_while(Result::ok);
    let mut fields: Vec<_> = fields.filter(|field| !OF_THE_SERVICE.contains(&field.number)).collect();
    fields.sort_by_key(|field| field.number);
    fields.iter().flat_map(|field| field.bytes).copied().collect()
}

#[cfg(test)]
mod tests {
    use watershed_wire::Encode as _;
    use watershed_wire::protos::DataSourceConfig;

    use super::*;

    #[test]
    fn what_the_service_writes_does_not_matter() {
        let asked = DataSourceConfig { name: Some("a".to_owned()), ..Default::default() };
        let sent = DataSourceConfig {
            target_buffer: Some(9),
            trace_duration_ms: Some(5),
            tracing_session_id: Some(3),
            stop_timeout_ms: Some(1),
            ..asked.clone()
        };
        let other = DataSourceConfig { name: Some("b".to_owned()), ..Default::default() };
        let key = |config: &DataSourceConfig| config_key(&config.encode_to_vec());
        assert_eq!(key(&asked), key(&sent));
        assert_ne!(key(&asked), key(&other));
        // Fields that this crate does not know count, wherever they stand.
        let unknown = [0xa8, 0x46, 7];
        let with = |config: &DataSourceConfig| config_key(&[&unknown[..], &config.encode_to_vec()].concat());
        assert_eq!(with(&asked), with(&sent));
        assert_ne!(with(&asked), key(&sent));
    }
}
