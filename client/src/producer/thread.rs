//! The thread around a producer.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use watershed_wire::protos::DataSourceConfig;

use super::{Command, ProducerCore, ProducerEvent};
use crate::arbiter::{ArbiterOptions, ArbiterStats, Waker};
use crate::clock;
use crate::data_source::DataSourceFactory;
use crate::endpoint::Endpoint;
use crate::sync::Arc;

/// How a producer works.
#[derive(Clone, Debug, Default)]
pub struct ProducerOptions {
    /// The arbiter's options.
    pub arbiter: ArbiterOptions,
}

enum Message {
    Command(Command),
    Register(Box<dyn DataSourceFactory>),
    DescriptorChanged,
    Wake(Duration),
    Stats(Sender<ArbiterStats>),
    Check(Vec<DataSourceConfig>, Sender<Option<(String, String)>>),
    ShutDown,
}

/// Passes commands of the service to a producer, from any thread. Commands to a producer that has
/// ended are dropped.
#[derive(Clone, Debug)]
pub struct CommandSender {
    inbox: Sender<Message>,
}

impl CommandSender {
    /// Passes one command.
    pub fn send(&self, command: Command) {
        // An error means that the producer has ended.
        let _ = self.inbox.send(Message::Command(command));
    }
}

struct InboxWaker {
    inbox: Sender<Message>,
}

impl Waker for InboxWaker {
    fn wake(&self, delay: Duration) {
        // Without the producer's thread nobody commits any more.
        let _ = self.inbox.send(Message::Wake(delay));
    }
}

/// A producer with its thread, which sleeps while nothing is due. Dropping it ends the producer.
#[derive(Debug)]
pub struct Producer {
    inbox: Sender<Message>,
    thread: Option<JoinHandle<()>>,
}

impl Producer {
    /// Starts a producer that talks to `endpoint`. `on_event` is called on its thread.
    ///
    /// # Errors
    ///
    /// The system's, if it has no thread for it.
    pub fn spawn(
        endpoint: Arc<dyn Endpoint>,
        options: ProducerOptions,
        on_event: Box<dyn FnMut(ProducerEvent) + Send>,
    ) -> io::Result<Self> {
        let (inbox, messages) = mpsc::channel();
        let waker = Box::new(InboxWaker { inbox: inbox.clone() });
        let core = ProducerCore::new(endpoint, waker, options.arbiter, on_event);
        let thread = std::thread::Builder::new()
            .name("trace-producer".to_owned())
            .spawn(move || run(core, &messages))?;
        Ok(Self { inbox, thread: Some(thread) })
    }

    /// Offers a data source to the service.
    pub fn register(&self, mut factory: Box<dyn DataSourceFactory>) {
        let inbox = self.inbox.clone();
        factory.watch(Box::new(move || inbox.send(Message::DescriptorChanged).is_ok()));
        let _ = self.inbox.send(Message::Register(factory));
    }

    /// Where the service's commands go.
    #[must_use]
    pub fn commands(&self) -> CommandSender {
        CommandSender { inbox: self.inbox.clone() }
    }

    /// Asks the data sources whether they can honour configs that name them. Returns the first that
    /// cannot: its name and what it says. Sources that were registered before have been offered to
    /// the service afterwards.
    #[must_use]
    pub fn check(&self, configs: Vec<DataSourceConfig>) -> Option<(String, String)> {
        let (reply, checked) = mpsc::channel();
        let _ = self.inbox.send(Message::Check(configs, reply));
        checked.recv().ok().flatten()
    }

    /// What the arbiter did so far; zeros before the service has provided memory or after the
    /// producer's end.
    #[must_use]
    pub fn stats(&self) -> ArbiterStats {
        let (reply, stats) = mpsc::channel();
        let _ = self.inbox.send(Message::Stats(reply));
        stats.recv().unwrap_or_default()
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let _ = self.inbox.send(Message::ShutDown);
        if let Some(thread) = self.thread.take() {
            // A panic of a data source was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn run(mut core: ProducerCore, messages: &Receiver<Message>) {
    loop {
        let message = match core.poll_timeout() {
            None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due_ns) => messages.recv_timeout(clock::until(due_ns, clock::monotonic_ns())),
        };
        let now_ns = clock::monotonic_ns();
        match message {
            Ok(Message::Command(command)) => core.handle_command(command, now_ns),
            Ok(Message::Register(factory)) => core.register(factory),
            Ok(Message::DescriptorChanged) => core.handle_descriptor_changed(now_ns),
            Ok(Message::Wake(delay)) => core.handle_wake(delay, now_ns),
            Ok(Message::Stats(reply)) => {
                let _ = reply.send(core.arbiter().map(crate::Arbiter::stats).unwrap_or_default());
            }
            Ok(Message::Check(configs, reply)) => {
                let _ = reply.send(core.check(&configs));
            }
            Ok(Message::ShutDown) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        core.handle_timeout(now_ns);
    }
    core.shut_down();
}
