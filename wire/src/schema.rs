//! The schema at run time: descriptors of every message, for names and for reflection.

use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, MessageDescriptor};
pub use watershed_protos::FILE_DESCRIPTOR_SET;

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("`wire/generate` compiled this very set")
});

/// Every message, enum and service of the schema; decoded at the first call.
pub fn descriptor_pool() -> &'static DescriptorPool {
    &POOL
}

/// The descriptor of a message of package `perfetto.protos`, for example `"TraceConfig"` or
/// `"TracePacket.ProtoVms"`.
///
/// `None` if the schema has no such message.
pub fn message(name: &str) -> Option<MessageDescriptor> {
    POOL.get_message_by_name(&format!("perfetto.protos.{name}"))
}
