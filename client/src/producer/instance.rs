//! One instance of a data source, as the producer keeps it.

use watershed_wire::Encode as _;
use watershed_wire::protos::{DataSourceConfig, DataSourceDescriptor};

use crate::arbiter::Arbiter;
use crate::data_source::{Context, DataSource, DataSourceFactory, InstanceInfo, Stop};
use crate::sync::Ordering;

/// A data source as it was offered.
pub(super) struct Offered {
    pub(super) name: String,
    pub(super) answers: Answers,
    pub(super) factory: Box<dyn DataSourceFactory>,
    /// As the service has it.
    pub(super) descriptor: Vec<u8>,
    id: u64,
}

/// Ids of data sources that have none of their own, by which their descriptors can be replaced.
const FIRST_ID: u64 = 1 << 32;

impl Offered {
    /// A source that is the producer's `index`th.
    pub(super) fn new(factory: Box<dyn DataSourceFactory>, index: u64) -> Self {
        let name = factory.descriptor().name.unwrap_or_default();
        let (answers, descriptor) = (Answers { start: false, stop: false }, Vec::new());
        let mut offered = Offered { name, answers, factory, descriptor, id: FIRST_ID + index };
        offered.describe();
        offered
    }

    /// Asks for the descriptor. True: it is another one than before.
    pub(super) fn describe(&mut self) -> bool {
        let mut descriptor = self.factory.descriptor();
        descriptor.id.get_or_insert(self.id);
        self.answers = Answers::new(&descriptor);
        let descriptor = descriptor.encode_to_vec();
        std::mem::replace(&mut self.descriptor, descriptor) != self.descriptor
    }
}

/// What the service waits for, by the descriptor that it has. Perfetto's complains about answers
/// that it does not wait for.
#[derive(Clone, Copy)]
pub(super) struct Answers {
    pub(super) start: bool,
    pub(super) stop: bool,
}

impl Answers {
    pub(super) fn new(descriptor: &DataSourceDescriptor) -> Self {
        Answers { start: descriptor.will_notify_on_start(), stop: descriptor.will_notify_on_stop() }
    }
}

/// Commands that do not fit the state of an instance are ignored: the service is trusted but may be
/// late.
pub(super) struct Instance {
    pub(super) info: InstanceInfo,
    /// `None`: it could not be made. The service still gets an answer, or it would wait.
    pub(super) source: Option<Box<dyn DataSource>>,
    pub(super) answers: Answers,
    pub(super) started: bool,
    pub(super) stopping: bool,
    /// It goes on with a flush in its polls.
    pub(super) flushing: bool,
    pub(super) poll_at_ns: Option<u64>,
}

impl Instance {
    pub(super) fn new(info: InstanceInfo, source: Option<Box<dyn DataSource>>, answers: Answers) -> Self {
        Self { info, source, answers, started: false, stopping: false, flushing: false, poll_at_ns: None }
    }

    /// Its time has come, or somebody asked for a poll since the last look.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        // Acquire: see `PollRequest::raise`.
        let is_wanted = self.info.poll_wanted.swap(false, Ordering::Acquire) && self.started;
        is_wanted || self.poll_at_ns.is_some_and(|at| at <= now_ns)
    }

    pub(super) fn start(&mut self, arbiter: &Arbiter, now_ns: u64) {
        self.started = true;
        if let Some(source) = &mut self.source {
            let wake = source.start(&mut Context::new(&self.info, arbiter, now_ns));
            self.poll_at_ns = wake.due_ns(None, now_ns);
        }
    }

    /// Polls it. True: it has stopped.
    pub(super) fn poll(&mut self, arbiter: &Arbiter, now_ns: u64) -> bool {
        let before = self.poll_at_ns.take();
        let Some(source) = &mut self.source else { return false };
        let mut cx = Context::new(&self.info, arbiter, now_ns);
        let wake = source.poll(&mut cx);
        self.flushing &= !cx.flushed;
        if cx.stopped && self.stopping {
            return true;
        }
        // `Keep` of a moment that has passed would poll without end.
        self.poll_at_ns = wake.due_ns(before.filter(|&at| at > now_ns), now_ns);
        false
    }

    /// Flushes it, or begins to.
    pub(super) fn flush(&mut self, arbiter: &Arbiter, now_ns: u64) {
        if let Some(source) = self.source.as_mut().filter(|_| self.started) {
            let mut cx = Context::new(&self.info, arbiter, now_ns);
            source.flush(&mut cx);
            self.flushing = cx.flush_later;
            if self.flushing {
                self.poll_at_ns = Some(now_ns);
            }
        }
    }

    /// Begins to stop it. True: it has stopped.
    pub(super) fn stop(&mut self, arbiter: &Arbiter, now_ns: u64) -> bool {
        self.stopping = true;
        let mut cx = Context::new(&self.info, arbiter, now_ns);
        let stop = match &mut self.source {
            Some(source) if self.started => source.stop(&mut cx),
            _ => Stop::Done,
        };
        match stop {
            Stop::Later(wake) if !cx.stopped => {
                self.poll_at_ns = wake.due_ns(self.poll_at_ns, now_ns);
                false
            }
            _ => true,
        }
    }

    /// The name of its data source.
    pub(super) fn name(&self) -> &str {
        DataSourceConfig::name(&self.info.config)
    }
}
