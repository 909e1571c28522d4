//! Messages that are written field by field.

use super::fragment::Core;
use super::varint::put;

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;
const FIXED32: u64 = 5;

/// A message that is being written: a packet, or a message inside of one. It ends when it is
/// dropped.
///
/// Fields are written in the order of the calls, of any size: what does not fit a chunk continues
/// in the next. Field numbers must be in 1..=536870911; that and the type of a field are the
/// caller's, nothing is checked against a schema.
#[derive(Debug)]
pub struct MessageWriter<'w> {
    core: Option<&'w mut Core>,
    /// 0 for the packet.
    depth: usize,
}

impl<'w> MessageWriter<'w> {
    pub(super) fn packet(core: Option<&'w mut Core>) -> Self {
        Self { core, depth: 0 }
    }

    /// A tag and a number.
    fn tag_and(&mut self, field: u32, wire_type: u64, value: u64) {
        if let Some(core) = &mut self.core {
            core.append_field(|bytes| {
                let tag = put(bytes, u64::from(field) << 3 | wire_type);
                tag + put(&mut bytes[tag..], value)
            });
        }
    }

    /// A tag and bytes of fixed length.
    fn tag_and_bytes<const N: usize>(&mut self, field: u32, wire_type: u64, value: [u8; N]) {
        if let Some(core) = &mut self.core {
            core.append_field(|bytes| {
                let tag = put(bytes, u64::from(field) << 3 | wire_type);
                bytes[tag..tag + N].copy_from_slice(&value);
                tag + N
            });
        }
    }

    /// A field of type uint64, uint32, int64 or int32 (cast to u64), enum.
    pub fn varint(&mut self, field: u32, value: u64) -> &mut Self {
        self.tag_and(field, VARINT, value);
        self
    }

    /// A field of type sint64 or sint32.
    pub fn sint(&mut self, field: u32, value: i64) -> &mut Self {
        self.varint(field, (value << 1 ^ value >> 63) as u64)
    }

    /// A field of type bool.
    pub fn bool(&mut self, field: u32, value: bool) -> &mut Self {
        self.varint(field, value.into())
    }

    /// A field of type fixed32 or sfixed32.
    pub fn fixed32(&mut self, field: u32, value: u32) -> &mut Self {
        self.tag_and_bytes(field, FIXED32, value.to_le_bytes());
        self
    }

    /// A field of type fixed64 or sfixed64.
    pub fn fixed64(&mut self, field: u32, value: u64) -> &mut Self {
        self.tag_and_bytes(field, FIXED64, value.to_le_bytes());
        self
    }

    /// A field of type float.
    pub fn float(&mut self, field: u32, value: f32) -> &mut Self {
        self.fixed32(field, value.to_bits())
    }

    /// A field of type double.
    pub fn double(&mut self, field: u32, value: f64) -> &mut Self {
        self.fixed64(field, value.to_bits())
    }

    /// A field of type bytes, or a serialized message.
    pub fn bytes(&mut self, field: u32, value: &[u8]) -> &mut Self {
        self.tag_and(field, LENGTH_DELIMITED, value.len() as u64);
        self.raw(value)
    }

    /// A field of type string.
    pub fn string(&mut self, field: u32, value: &str) -> &mut Self {
        self.bytes(field, value.as_bytes())
    }

    /// Serialized fields, as they are.
    pub fn raw(&mut self, fields: &[u8]) -> &mut Self {
        if let Some(core) = &mut self.core {
            core.append(fields);
        }
        self
    }

    /// Starts a message inside this one; it ends when the returned value is dropped.
    pub fn nested(&mut self, field: u32) -> MessageWriter<'_> {
        let depth = self.depth + 1;
        let mut core = self.core.as_deref_mut();
        if let Some(core) = &mut core {
            // Only a leaked writer of an inner message leaves one open here.
            core.close_messages(depth - 1);
            core.append_field(|bytes| put(bytes, u64::from(field) << 3 | LENGTH_DELIMITED));
            core.open_message();
        }
        MessageWriter { core, depth }
    }
}

impl Drop for MessageWriter<'_> {
    fn drop(&mut self) {
        let Some(core) = &mut self.core else { return };
        match self.depth {
            0 => core.finish_packet(),
            depth => core.close_messages(depth - 1),
        }
    }
}
