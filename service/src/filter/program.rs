//! Filter programs: which fields of which messages are allowed.
//!
//! ```text
//!   bytecode:  word, word, ... , checksum           each a varint of 32 bits
//!   word:      field number << 3 | operation
//!
//!   0 end of a message (number 0)    3 a message, next word: its index
//!   1 a field                        4 a string
//!   2 fields, next word: how many    5 a string, next word: its semantic type
//! ```
//!
//! Messages have the indices of their order; 0 is the trace. An overlay, from newer configs, adds
//! single fields: triples of message, word and argument, with a checksum of their own.

use prost::encoding::decode_varint;

use crate::filter::FilterError;
use crate::limits::{FILTER_MESSAGES_MAX, FILTER_WORDS_MAX};

const END_OF_MESSAGE: u32 = 0;
const SIMPLE: u32 = 1;
const RANGE: u32 = 2;
const NESTED: u32 = 3;
const STRING: u32 = 4;
const STRING_OF_TYPE: u32 = 5;

const OPCODE_BITS: u32 = 3;

/// Fields below have a slot of their own, as nearly all fields of all messages.
const DIRECT_FIELDS: u32 = 128;

/// `Trace.packet`.
const PACKET_FIELD: u32 = 1;

/// What happens to a field that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldRule {
    /// It is taken as it is.
    Simple,
    /// It is a message: that with this index.
    Nested(u32),
    /// It is a string of this semantic type, of which parts may be redacted.
    String(u32),
}

#[derive(Clone, Debug)]
pub(super) struct Program {
    messages: Vec<MessageRules>,
    /// The index of `TracePacket`.
    root: usize,
}

/// What happens to a field whose key has one byte, if that is soon said: those that stay as they
/// are, by what comes behind the key. [`FastRule::No`] is for all others and for what is no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FastRule {
    #[default]
    No,
    Varint,
    Fixed64,
    Fixed32,
    Delimited,
    /// A message that is looked into.
    Nested,
}

impl FastRule {
    fn of(key: u8, rule: Option<FieldRule>) -> FastRule {
        match (rule, key & 7) {
            // A second byte follows, or there is no field 0.
            _ if !(8..0x80).contains(&key) => FastRule::No,
            (Some(FieldRule::Simple), 0) => FastRule::Varint,
            (Some(FieldRule::Simple), 1) => FastRule::Fixed64,
            (Some(FieldRule::Simple), 2) => FastRule::Delimited,
            (Some(FieldRule::Simple), 5) => FastRule::Fixed32,
            (Some(FieldRule::Nested(_)), 2) => FastRule::Nested,
            _ => FastRule::No,
        }
    }
}

/// Which fields of a message are allowed.
#[derive(Clone, Debug, Default)]
pub(super) struct MessageRules {
    /// By key. Made when all has been said.
    fast_rules: Vec<FastRule>,
    /// By field number, as far as there are any.
    direct: Vec<Option<FieldRule>>,
    /// Fields from [`DIRECT_FIELDS`]: first, behind the last, what happens. Sorted, without
    /// overlaps.
    ranges: Vec<(u32, u32, FieldRule)>,
    /// Single fields from there that come before the ranges, sorted.
    overlaid: Vec<(u32, FieldRule)>,
}

impl Program {
    pub(super) fn load(bytecode: &[u8], overlay: &[u8]) -> Result<Program, FilterError> {
        if bytecode.is_empty() {
            return Err(FilterError::NoBytecode);
        }
        let mut messages = read_messages(&checked_words("bytecode", bytecode)?)?;
        if !overlay.is_empty() {
            lay_over(&mut messages, &checked_words("overlay", overlay)?)?;
        }
        for (index, rules) in messages.iter_mut().enumerate() {
            rules.close(index)?;
        }
        for (message, rules) in messages.iter().enumerate() {
            let nested = rules.nested().find(|(_, nested)| *nested >= messages.len());
            if let Some((field, nested)) = nested {
                return Err(FilterError::NoSuchMessage { message, field, nested, messages: messages.len() });
            }
        }
        match messages.first().and_then(|trace| trace.rule(PACKET_FIELD)) {
            Some(FieldRule::Nested(root)) => Ok(Program { messages, root: root as usize }),
            _ => Err(FilterError::NoPackets),
        }
    }

    /// The index of the rules for packets.
    pub(super) fn root(&self) -> usize {
        self.root
    }

    /// The rules of the message with this index.
    pub(super) fn message(&self, index: usize) -> &MessageRules {
        &self.messages[index]
    }
}

impl MessageRules {
    /// What happens to a field; `None`: it is left out.
    #[inline]
    pub(super) fn rule(&self, field: u32) -> Option<FieldRule> {
        match field < DIRECT_FIELDS {
            true => self.direct.get(field as usize).copied().flatten(),
            false => self.rule_beyond(field),
        }
    }

    fn rule_beyond(&self, field: u32) -> Option<FieldRule> {
        if let Ok(at) = self.overlaid.binary_search_by_key(&field, |(field, _)| *field) {
            return Some(self.overlaid[at].1);
        }
        let behind = self.ranges.partition_point(|(first, ..)| *first <= field);
        let (_, end, rule) = *self.ranges.get(behind.checked_sub(1)?)?;
        (field < end).then_some(rule)
    }

    #[inline]
    pub(super) fn fast_rule(&self, key: u8) -> FastRule {
        self.fast_rules[usize::from(key)]
    }

    /// The index of a message whose field has this key, which is [`FastRule::Nested`].
    #[inline]
    pub(super) fn nested_by_key(&self, key: u8) -> usize {
        match self.direct[usize::from(key >> 3)] {
            Some(FieldRule::Nested(index)) => index as usize,
            rule => unreachable!("{rule:?} of a message"),
        }
    }

    /// Allows the fields from `first` to before `end`.
    fn allow(&mut self, first: u32, end: u32, rule: FieldRule) {
        let direct_end = end.min(DIRECT_FIELDS) as usize;
        if self.direct.len() < direct_end {
            self.direct.resize(direct_end, None);
        }
        for slot in (first as usize)..direct_end {
            self.direct[slot] = Some(rule);
        }
        if end > DIRECT_FIELDS {
            self.ranges.push((first.max(DIRECT_FIELDS), end, rule));
        }
    }

    fn overlay(&mut self, field: u32, rule: FieldRule) {
        match field < DIRECT_FIELDS {
            true => self.allow(field, field + 1, rule),
            false => self.overlaid.push((field, rule)),
        }
    }

    /// All that there is has been said.
    fn close(&mut self, message: usize) -> Result<(), FilterError> {
        self.fast_rules =
            (0..=u8::MAX).map(|key| FastRule::of(key, self.rule(u32::from(key >> 3)))).collect();
        self.ranges.sort_unstable_by_key(|(first, ..)| *first);
        let overlap = self.ranges.windows(2).find(|pair| pair[1].0 < pair[0].1);
        overlap.map_or(Ok(()), |pair| Err(FilterError::Overlap { message, field: pair[1].0 }))
    }

    /// Fields that are messages, with the indices of those.
    fn nested(&self) -> impl Iterator<Item = (u32, usize)> + '_ {
        let direct = (0..).zip(&self.direct).filter_map(|(field, rule)| Some((field, (*rule)?)));
        let beyond = self.ranges.iter().map(|(first, _, rule)| (*first, *rule));
        direct.chain(beyond).filter_map(|(field, rule)| match rule {
            FieldRule::Nested(index) => Some((field, index as usize)),
            FieldRule::Simple | FieldRule::String(_) => None,
        })
    }
}

/// The words of a part without its checksum, which has to be right.
fn checked_words(part: &'static str, mut bytes: &[u8]) -> Result<Vec<u32>, FilterError> {
    let mut words = Vec::new();
    while !bytes.is_empty() {
        if words.len() > FILTER_WORDS_MAX {
            return Err(FilterError::TooManyWords);
        }
        let word = decode_varint(&mut bytes).ok().and_then(|word| u32::try_from(word).ok());
        words.push(word.ok_or(FilterError::NotWords { part })?);
    }
    let found = words.pop().ok_or(FilterError::NotWords { part })?;
    let expected = checksum(&words);
    if found == expected { Ok(words) } else { Err(FilterError::Checksum { part, found, expected }) }
}

/// The lower half of FNV-1a with 64 bits, over the words as four bytes each, the lowest first.
pub(super) fn checksum(words: &[u32]) -> u32 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    bytes.fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME)) as u32
}

fn read_messages(words: &[u32]) -> Result<Vec<MessageRules>, FilterError> {
    let mut messages = Vec::new();
    let mut rules = MessageRules::default();
    let mut has_begun = true;
    let mut words = words.iter().copied().enumerate();
    while let Some((at, word)) = words.next() {
        let (field, opcode) = (word >> OPCODE_BITS, word & ((1 << OPCODE_BITS) - 1));
        has_begun = opcode != END_OF_MESSAGE;
        if opcode == END_OF_MESSAGE {
            messages.push(std::mem::take(&mut rules));
            if messages.len() > FILTER_MESSAGES_MAX {
                return Err(FilterError::TooManyMessages);
            }
            continue;
        }
        if field == 0 {
            return Err(FilterError::FieldZero { at });
        }
        let mut operand = || words.next().map(|(_, word)| word).ok_or(FilterError::NoOperand { at });
        let (end, rule) = match opcode {
            SIMPLE => (field + 1, FieldRule::Simple),
            RANGE => {
                let len = operand()?;
                let end = field.checked_add(len).filter(|end| *end > field);
                (end.ok_or(FilterError::BadRange { at, first: field, len })?, FieldRule::Simple)
            }
            NESTED => (field + 1, FieldRule::Nested(operand()?)),
            STRING => (field + 1, FieldRule::String(0)),
            STRING_OF_TYPE => (field + 1, FieldRule::String(operand()?)),
            opcode => return Err(FilterError::Opcode { at, opcode }),
        };
        rules.allow(field, end, rule);
    }
    if has_begun { Err(FilterError::NoEnd) } else { Ok(messages) }
}

/// Adds the fields of an overlay, or says something else of those that there are.
fn lay_over(messages: &mut [MessageRules], words: &[u32]) -> Result<(), FilterError> {
    let mut last = None;
    let (entries, []) = words.as_chunks::<3>() else { return Err(FilterError::OverlayLength) };
    for (index, &[message, word, argument]) in entries.iter().enumerate() {
        let (field, opcode) = (word >> OPCODE_BITS, word & ((1 << OPCODE_BITS) - 1));
        let rule = match opcode {
            _ if field == 0 => return Err(FilterError::FieldZero { at: 3 * index + 1 }),
            SIMPLE => FieldRule::Simple,
            STRING => FieldRule::String(0),
            STRING_OF_TYPE => FieldRule::String(argument),
            opcode => return Err(FilterError::Opcode { at: 3 * index + 1, opcode }),
        };
        if last.replace((message, field)).is_some_and(|last| last >= (message, field)) {
            return Err(FilterError::OverlayOrder { message, field });
        }
        let num_messages = messages.len();
        let rules = messages
            .get_mut(message as usize)
            .ok_or(FilterError::OverlayMessage { message, messages: num_messages })?;
        rules.overlay(field, rule);
    }
    Ok(())
}
