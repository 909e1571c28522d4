//! Names for the things that the service numbers. Producers and writers are numbered by the
//! engine's types.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($of:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $of);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A tracing session. From 1, never used again.
    SessionId(u64)
}
id! {
    /// A connected consumer. From 1, never used again.
    ConsumerId(u64)
}
id! {
    /// A data source of one producer at work for one session. From 1, global, never used again.
    InstanceId(u64)
}
id! {
    /// A buffer of some live session, as producers see it in `target_buffer`: global, not the index
    /// in the config.
    BufferId(u16)
}
id! {
    /// A flush. From 1, increasing over all sessions: an acknowledgement of one is one of all
    /// earlier ones.
    FlushId(u64)
}
