//! The order of what a producer is told: memory once and first, of each instance set-up, start and
//! stop, and a flush only of what was set up and not stopped.

use std::collections::BTreeMap;
use std::sync::Arc;

use watershed_service::{FlushId, InstanceId, ProducerCommand};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    SetUp,
    Started,
    Stopped,
}

/// What one connection was told.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    has_memory: bool,
    steps: BTreeMap<InstanceId, (Step, Arc<[u8]>)>,
    last_flush: Option<FlushId>,
    last_acknowledged: Option<FlushId>,
}

impl Commands {
    /// Of a producer whose chunks come by message, which gets no memory.
    pub(crate) fn new(is_emulated: bool) -> Commands {
        Commands { has_memory: is_emulated, ..Commands::default() }
    }

    pub(crate) fn check(&mut self, command: &ProducerCommand) {
        match command {
            ProducerCommand::SetupTracing { .. } => {
                assert!(!std::mem::replace(&mut self.has_memory, true), "memory is set up once");
            }
            ProducerCommand::SetupDataSource { instance_id, config } => {
                assert!(self.has_memory, "memory comes first");
                let known = self.steps.insert(*instance_id, (Step::SetUp, Arc::clone(config)));
                assert!(known.is_none(), "{instance_id:?} is set up twice");
            }
            ProducerCommand::StartDataSource { instance_id, config } => {
                let (step, set_up_with) = self.steps.get_mut(instance_id).expect("set up before started");
                assert_eq!((&*step, &*set_up_with), (&Step::SetUp, config), "start of {instance_id:?}");
                *step = Step::Started;
            }
            ProducerCommand::StopDataSource { instance_id } => {
                let (step, _) = self.steps.get_mut(instance_id).expect("set up before stopped");
                assert_ne!(
                    std::mem::replace(step, Step::Stopped),
                    Step::Stopped,
                    "{instance_id:?} stopped twice"
                );
            }
            ProducerCommand::Flush { request_id, instance_ids, .. } => {
                assert!(self.last_flush < Some(*request_id), "numbers of flushes grow");
                self.last_flush = Some(*request_id);
                self.check_live(instance_ids);
            }
            ProducerCommand::ClearIncrementalState { instance_ids } => self.check_live(instance_ids),
        }
    }

    /// The producer says that it has flushed.
    pub(crate) fn acknowledge(&mut self, flush_id: FlushId) {
        self.last_acknowledged = self.last_acknowledged.max(Some(flush_id));
    }

    /// Whether it was asked for a flush that it has not acknowledged.
    pub(crate) fn awaits_flush(&self) -> bool {
        self.last_acknowledged < self.last_flush
    }

    fn check_live(&self, instance_ids: &[InstanceId]) {
        for id in instance_ids {
            let step = self.steps.get(id).map(|(step, _)| *step);
            assert!(matches!(step, Some(Step::SetUp | Step::Started)), "{id:?} is {step:?}");
        }
    }

    /// Instances that were set up and never stopped.
    pub(crate) fn num_live(&self) -> usize {
        self.steps.values().filter(|(step, _)| *step != Step::Stopped).count()
    }
}
