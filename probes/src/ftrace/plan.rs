//! How records of one event become messages: worked out once from the kernel's format and the trace
//! format's schema, then followed for each record.
//!
//! ```text
//!   format file:  next_pid  offset 56  size 4  pid_t  --+
//!   schema:       next_pid  number 6   int32          --+--> Step { key 0x30, Signed 4 at 56 }
//! ```
//!
//! An event that the schema has becomes its typed message; a field that only one of both has is
//! left out. All others become a generic message: described by a descriptor beside it, or with
//! all names in clear.

use prost_reflect::Kind;
use watershed_wire::schema;

use super::format::{EventFormat, Field, FieldKind};
use super::proto::{length_key, put_bytes, put_number, put_varint, varint_key};
use super::read;

/// Groups whose events the schema has by name; an event of the same name that somebody defined in
/// another group is another event. A line for each file of the schema.
const TYPED_GROUPS: [&[&str]; 7] = [
    &["sched", "task", "signal", "oom", "raw_syscalls", "binder"],
    &["irq", "irq_vectors", "ipi", "timer", "workqueue", "cpuhp"],
    &["power", "clk", "rpm", "thermal"],
    &["kmem", "vmscan", "cma"],
    &["block", "ufs", "i2c", "smbus"],
    &["net", "skb", "tcp", "sock"],
    &["dma_fence", "drm", "gpu_scheduler", "gpu_mem", "virtio_gpu"],
];
/// `FtraceEvent.generic`.
const LEGACY_GENERIC: u32 = 327;
/// First number of events that describe themselves.
pub(super) const GENERIC_FIRST: u32 = 65_536;
/// Last of them.
const GENERIC_LAST: u32 = 131_071;
/// The trace processor takes no more fields of an event that describes itself.
const GENERIC_FIELDS_MAX: usize = 31;

/// Addresses that were met, and texts by address: what a record alone does not say.
pub(super) trait Lookup {
    /// The number under which the trace names an address of the kernel's code.
    fn symbol_number(&mut self, address: u64) -> u64;
    /// The number under which the trace names an object of the kernel.
    fn object_number(&self, address: u64) -> u64;
    /// A constant text of the kernel.
    fn text_at(&self, address: u64) -> &[u8];
}

/// One field: where it is, and as what it is written.
#[derive(Debug)]
struct Step {
    /// Number and wire type.
    key: u32,
    offset: usize,
    size: usize,
    kind: FieldKind,
    /// The field has 32 bits, which may be too few.
    is_narrow: bool,
    /// With all names in clear only: the field's name, as it is written.
    name: Option<Vec<u8>>,
}

/// How to write an event.
#[derive(Debug)]
pub(super) struct Plan {
    /// Field of `FtraceEvent`.
    pub(super) number: u32,
    /// Shorter records are invalid.
    pub(super) size_min: usize,
    /// Fields that hold thread ids.
    pub(super) pids: Vec<usize>,
    /// An encoded `FtraceEventBundle.GenericEventDescriptor`, for the bundles that have the event.
    pub(super) descriptor: Option<Vec<u8>>,
    /// What the message begins with, whatever the record is.
    prefix: Vec<u8>,
    steps: Vec<Step>,
}

/// How events are written that the schema does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generic {
    /// With names in clear in each event.
    Legacy,
    /// Under this number, with a descriptor in each bundle.
    Described(u32),
}

/// Whether the schema has a message for this event.
pub(super) fn is_typed(group: &str, name: &str) -> bool {
    let in_group = TYPED_GROUPS.iter().any(|groups| groups.contains(&group))
        || group == "ftrace" && matches!(name, "print" | "funcgraph_entry" | "funcgraph_exit");
    in_group && typed_message(name).is_some()
}

fn typed_message(name: &str) -> Option<(u32, prost_reflect::MessageDescriptor)> {
    let event = schema::message("FtraceEvent")?;
    let field = event.get_field_by_name(name).filter(|field| field.containing_oneof().is_some())?;
    match field.kind() {
        Kind::Message(message) if field.number() != LEGACY_GENERIC => Some((field.number(), message)),
        _ => None,
    }
}

impl Plan {
    /// For an event with a message of its own.
    pub(super) fn typed(format: &EventFormat) -> Option<Self> {
        let (number, message) = typed_message(&format.name)?;
        let steps = format.fields.iter().filter_map(|field| {
            let kind = field.kind?;
            let target = message.get_field_by_name(&field.name)?;
            let key = typed_key(kind, field.size, target.number(), &target.kind())?;
            let is_narrow = field.size == 8 && target.kind() == Kind::Uint32;
            Some(Step { key, offset: field.offset, size: field.size, kind, is_narrow, name: None })
        });
        Some(Self::new(format, number, steps.collect()))
    }

    /// For any other event.
    pub(super) fn generic(group: &str, format: &EventFormat, how: Generic) -> Option<Self> {
        let fields = format.fields.iter().filter_map(|field| Some((field, field.kind?)));
        match how {
            Generic::Legacy => {
                let steps = fields.filter_map(|(field, kind)| legacy_step(field, kind)).collect();
                let mut plan = Self::new(format, LEGACY_GENERIC, steps);
                put_bytes(&mut plan.prefix, 1, format.name.as_bytes());
                Some(plan)
            }
            Generic::Described(number) if number > GENERIC_LAST => None,
            Generic::Described(number) => {
                let known: Vec<_> = fields
                    .filter(|(_, kind)| *kind != FieldKind::WordArray)
                    .take(GENERIC_FIELDS_MAX)
                    .zip(1_u32..)
                    .map(|((field, kind), number)| (field, kind, number))
                    .collect();
                let steps = known.iter().map(|&(field, kind, number)| Step {
                    key: generic_key(kind, number),
                    offset: field.offset,
                    size: field.size,
                    kind,
                    is_narrow: false,
                    name: None,
                });
                let mut plan = Self::new(format, number, steps.collect());
                plan.descriptor = Some(describe(group, format, number, &known));
                Some(plan)
            }
        }
    }

    fn new(format: &EventFormat, number: u32, steps: Vec<Step>) -> Self {
        let is_pid = |field: &&Field| field.kind == Some(FieldKind::Pid);
        Self {
            number,
            size_min: format.size_min(),
            pids: format.fields.iter().filter(is_pid).map(|field| field.offset).collect(),
            descriptor: None,
            prefix: Vec::new(),
            steps,
        }
    }

    /// Appends the event's message for a record of at least `size_min` bytes. False if a field
    /// points outside of the record; what was appended is to be dropped then.
    pub(super) fn write(&self, record: &[u8], lookup: &mut dyn Lookup, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(&self.prefix);
        self.steps.iter().all(|step| match &step.name {
            None => step.write(record, lookup, out),
            Some(name) => {
                let mut field = name.clone();
                let written = step.write(record, lookup, &mut field);
                put_bytes(out, 2, &field);
                written
            }
        })
    }
}

impl Step {
    fn write(&self, record: &[u8], lookup: &mut dyn Lookup, out: &mut Vec<u8>) -> bool {
        use FieldKind as K;
        let bytes = &record[self.offset..];
        let place = |end| read::located(record, self.offset, end);
        let text = match self.kind {
            K::FixedString => Some(read::until_nul(&bytes[..self.size])),
            K::StringToEnd => Some(read::until_nul(bytes)),
            K::DataLocString => place(0).map(read::until_nul),
            K::RelLocString => place(self.offset + 4).map(read::until_nul),
            K::DataLocBytes => place(0),
            K::RelLocBytes => place(self.offset + 4),
            K::StringPointer => {
                put_varint(out, u64::from(self.key));
                let text = lookup.text_at(read::unsigned(bytes, self.size));
                put_varint(out, text.len() as u64);
                out.extend_from_slice(text);
                return true;
            }
            _ => {
                self.write_number(bytes, lookup, out);
                return true;
            }
        };
        let Some(text) = text else { return false };
        put_varint(out, u64::from(self.key));
        put_text(out, text);
        true
    }

    #[inline]
    fn write_number(&self, bytes: &[u8], lookup: &mut dyn Lookup, out: &mut Vec<u8>) {
        use FieldKind as K;
        let value = match self.kind {
            K::Signed | K::Pid => read::signed(bytes, self.size) as u64,
            K::Bool => u64::from(read::unsigned(bytes, self.size) != 0),
            K::Device => read::user_device(read::unsigned(bytes, self.size)),
            K::Address => lookup.symbol_number(read::unsigned(bytes, self.size)),
            K::Object => lookup.object_number(read::unsigned(bytes, self.size)),
            K::WordArray => {
                let word = self.size / 6;
                for number in 0..6 {
                    put_varint(out, u64::from(self.key));
                    put_varint(out, read::unsigned(&bytes[number * word..], word));
                }
                return;
            }
            _ => read::unsigned(bytes, self.size),
        };
        if self.is_narrow && value > u64::from(u32::MAX) {
            return;
        }
        put_varint(out, u64::from(self.key));
        put_varint(out, value);
    }
}

/// Strings of the format are UTF-8; names that programs gave themselves may be anything.
fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    let lossy = String::from_utf8_lossy(text);
    put_varint(out, lossy.len() as u64);
    out.extend_from_slice(lossy.as_bytes());
}

fn is_text(kind: FieldKind) -> bool {
    use FieldKind as K;
    matches!(kind, K::FixedString | K::StringToEnd | K::DataLocString | K::RelLocString | K::StringPointer)
}

fn is_bytes(kind: FieldKind) -> bool {
    matches!(kind, FieldKind::DataLocBytes | FieldKind::RelLocBytes)
}

fn is_signed(kind: FieldKind) -> bool {
    matches!(kind, FieldKind::Signed | FieldKind::Pid)
}

/// The key of a field of a typed message, if the kernel's type fits the schema's. Kernels change
/// the sign of a number, and keep flags of 32 bits in an `unsigned long`; readers take the low
/// bits.
fn typed_key(kind: FieldKind, size: usize, number: u32, target: &Kind) -> Option<u32> {
    use FieldKind as K;
    let fits = match target {
        Kind::String => return is_text(kind).then_some(length_key(number)),
        Kind::Bytes => return is_bytes(kind).then_some(length_key(number)),
        _ if is_text(kind) || is_bytes(kind) => false,
        Kind::Int32 => (is_signed(kind) || kind == K::Unsigned) && size <= 4,
        Kind::Int64 => is_signed(kind) || kind == K::Unsigned,
        Kind::Uint32 => kind == K::Unsigned || (is_signed(kind) || kind == K::Bool) && size <= 4,
        Kind::Uint64 => true,
        _ => false,
    };
    fits.then_some(varint_key(number))
}

fn generic_key(kind: FieldKind, number: u32) -> u32 {
    if is_text(kind) || is_bytes(kind) { length_key(number) } else { varint_key(number) }
}

/// `GenericFtraceEvent.Field`: str_value 3, int_value 4, uint_value 5; bytes have no place.
fn legacy_step(field: &Field, kind: FieldKind) -> Option<Step> {
    if is_bytes(kind) || kind == FieldKind::WordArray {
        return None;
    }
    let key = match kind {
        _ if is_text(kind) => length_key(3),
        _ if is_signed(kind) => varint_key(4),
        _ => varint_key(5),
    };
    let mut name = Vec::new();
    put_bytes(&mut name, 1, field.name.as_bytes());
    Some(Step { key, offset: field.offset, size: field.size, kind, is_narrow: false, name: Some(name) })
}

/// `GenericEventDescriptor` with a `google.protobuf.DescriptorProto` inside.
fn describe(group: &str, format: &EventFormat, number: u32, fields: &[(&Field, FieldKind, u32)]) -> Vec<u8> {
    const INT64: u64 = 3;
    const UINT64: u64 = 4;
    const STRING: u64 = 9;
    const BYTES: u64 = 12;
    let mut message = Vec::new();
    put_bytes(&mut message, 1, format.name.as_bytes());
    for &(field, kind, number) in fields {
        let of_type = match kind {
            _ if is_text(kind) => STRING,
            _ if is_bytes(kind) => BYTES,
            _ if is_signed(kind) => INT64,
            _ => UINT64,
        };
        let mut described = Vec::new();
        put_bytes(&mut described, 1, field.name.as_bytes());
        put_number(&mut described, 3, u64::from(number));
        put_number(&mut described, 5, of_type);
        put_bytes(&mut message, 2, &described);
    }
    let mut descriptor = Vec::new();
    put_number(&mut descriptor, 1, u64::from(number));
    put_bytes(&mut descriptor, 2, &message);
    put_bytes(&mut descriptor, 3, group.as_bytes());
    descriptor
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
