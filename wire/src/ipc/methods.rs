//! The methods of the two ports, with the ids and names that clients of Perfetto expect.

use std::fmt::Debug;

/// The methods of one port.
///
/// Clients find a method by its name in the reply to their bind request. Its id is its place in
/// the port's declaration, from 1, which clients with fixed ids rely on (spec, service 1.4).
pub trait Method: Copy + Debug + Eq + 'static {
    /// The port's name in a bind request.
    const SERVICE_NAME: &'static str;
    /// Every method; the one with id `n` is at `n - 1`.
    const ALL: &'static [Self];

    /// The method's name in the reply to a bind request.
    fn name(self) -> &'static str;

    /// From 1.
    fn id(self) -> u32;

    /// The method with this id, if there is one.
    fn from_id(id: u32) -> Option<Self> {
        let index = id.checked_sub(1)?;
        Self::ALL.get(usize::try_from(index).ok()?).copied()
    }
}

macro_rules! port {
    (
        $(#[$port_doc:meta])*
        $port:ident, $service_name:literal: $($(#[$doc:meta])* $method:ident = $id:literal,)*
    ) => {
        $(#[$port_doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum $port {
            $($(#[$doc])* $method = $id,)*
        }

        impl Method for $port {
            const SERVICE_NAME: &'static str = $service_name;
            const ALL: &'static [Self] = &[$($port::$method,)*];

            fn name(self) -> &'static str {
                match self {
                    $($port::$method => stringify!($method),)*
                }
            }

            fn id(self) -> u32 {
                self as u32
            }
        }
    };
}

port! {
    /// What a producer calls. The messages are `<method>Request` and `<method>Response` of
    /// [`protos`](crate::protos).
    ProducerMethod, "ProducerPort":
    /// The first call: who the producer is and what memory it wants.
    InitializeConnection = 1,
    /// Offers a data source.
    RegisterDataSource = 2,
    /// Takes it back.
    UnregisterDataSource = 3,
    /// Names chunks that are complete, patches, and the flush that is answered.
    CommitData = 4,
    /// A stream of commands from the service.
    GetAsyncCommand = 5,
    /// Says which buffer a writer writes to, for scraping.
    RegisterTraceWriter = 6,
    /// The writer is gone.
    UnregisterTraceWriter = 7,
    /// An instance has started.
    NotifyDataSourceStarted = 8,
    /// An instance has stopped.
    NotifyDataSourceStopped = 9,
    /// Triggers by name.
    ActivateTriggers = 10,
    /// Answered after everything that was sent before it.
    Sync = 11,
    /// Replaces the descriptor of a registered data source.
    UpdateDataSource = 12,
}

port! {
    /// What a consumer calls. The messages are `<method>Request` and `<method>Response` of
    /// [`protos`](crate::protos).
    ConsumerMethod, "ConsumerPort":
    /// Makes a session; answered when it has ended.
    EnableTracing = 1,
    /// Stops the session.
    DisableTracing = 2,
    /// A stream of the session's packets.
    ReadBuffers = 3,
    /// Gives the session's buffers back.
    FreeBuffers = 4,
    /// Has producers commit what they hold; answered when they have.
    Flush = 5,
    /// Starts a session that was made with a deferred start.
    StartTracing = 6,
    /// Changes what may be changed of the session's config.
    ChangeTraceConfig = 7,
    /// Lets the session live on without this connection, under a key.
    Detach = 8,
    /// Takes a detached session over.
    Attach = 9,
    /// Counters of the session.
    GetTraceStats = 10,
    /// A stream of events.
    ObserveEvents = 11,
    /// A stream of parts of the service's state.
    QueryServiceState = 12,
    /// What this service can do.
    QueryCapabilities = 13,
    /// Keeps the trace of the session that wants it most for a bug report.
    SaveTraceForBugreport = 14,
    /// Copies a session with all its data.
    CloneSession = 15,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<M: Method>(count: usize) {
        assert_eq!(M::ALL.len(), count);
        for (index, method) in M::ALL.iter().enumerate() {
            assert_eq!(method.id() as usize, index + 1, "{method:?}");
            assert_eq!(M::from_id(method.id()), Some(*method));
        }
        for id in [0, count as u32 + 1, u32::MAX] {
            assert_eq!(M::from_id(id), None, "{id}");
        }
    }

    #[test]
    fn ids_count_from_one_and_lead_back() {
        check::<ProducerMethod>(12);
        check::<ConsumerMethod>(15);
    }

    #[test]
    fn names_are_those_that_clients_look_for() {
        assert_eq!(ProducerMethod::SERVICE_NAME, "ProducerPort");
        assert_eq!(ConsumerMethod::SERVICE_NAME, "ConsumerPort");
        assert_eq!(ProducerMethod::GetAsyncCommand.name(), "GetAsyncCommand");
        assert_eq!(ConsumerMethod::CloneSession.name(), "CloneSession");
    }
}
