//! Perfetto's IPC above frames: calls, replies and streams of one connection, without a socket.
//!
//! ```text
//!   server                                              client
//!   HostConnection<M, A>                                ClientConnection<M, A>
//!
//!     socket -> spare/received                            invoke(method, args)
//!                 |                                         | queued until bound
//!              poll() -- Invocation -> caller               v
//!                 | bind, unknown ids and kinds          OutFrames<A> -> socket
//!                 v                        reply,
//!              OutFrames<A> -> socket  <-- reject        socket -> spare/received
//!                                          of the                    |
//!                                          caller                 poll() -> Event
//! ```
//!
//! `M` is the port ([`ProducerMethod`] or [`ConsumerMethod`]), `A` what the shell sends beside the
//! bytes: a file descriptor, which goes with the first byte of its frame.
//!
//! The server has no state beside its two buffers: a call is taken whether or not the client has
//! bound the port. The client's states, and those of one request:
//!
//! ```text
//!               bind reply, success                   invoke
//!   Binding ------------------------> Bound    - - - - - - - -> pending
//!      |                                                          |  ^ |
//!      | bind reply without success,                     has_more |  | | last reply,
//!      | or a request error                                       +--+ | reject or error
//!      v                                                               v
//!   Failed: calls are refused                                       forgotten
//! ```
//!
//! | type | what it answers |
//! |---|---|
//! | [`Method`] | names and ids of a port's methods |
//! | [`HostConnection`], [`ClientConnection`] | the two ends |
//! | [`OutFrames`] | what is to be sent next, and with which attachment |
//! | [`messages`] | requests and replies in which configs and descriptors stay bytes |
//! | [`read_buffers_replies`], [`split_service_state`] | large replies in pieces that fit a frame |
//!
//! Bytes of the peer never cause a panic. A frame that announces too much ends the connection;
//! everything else that is wrong is answered or counted.

mod client;
mod envelope;
mod host;
pub mod messages;
mod methods;
mod out;
mod read_buffers;
mod service_state;

pub use self::client::{
    CALLS_QUEUED_MAX, ClientConnection, Event, Failure, InvokeError, REQUESTS_PENDING_MAX,
};
pub use self::host::{HostConnection, Invocation, ReplyTo, SERVICE_ID};
pub use self::methods::{ConsumerMethod, Method, ProducerMethod};
pub use self::out::OutFrames;
pub use self::read_buffers::{
    READ_BUFFERS_REPLY_SIZE_BYTES_MAX, ReadBuffersReply, SLICE_SIZE_BYTES_MAX, read_buffers_replies,
};
pub use self::service_state::{
    SERVICE_STATE_ENTRY_SIZE_BYTES_MAX, SERVICE_STATE_SIZE_BYTES_LIMIT, SplitServiceState,
    split_service_state,
};
