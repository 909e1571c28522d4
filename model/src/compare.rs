//! What is compared after a step.

use std::fmt::Debug;

use crate::subject::Subject;
use crate::{Model, Placed, Stats};

/// How much of a buffer must equal the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything: what one shard in one ring answers.
    All,
    /// What is read, whether calls succeed, and what is counted but for padding and wraps, in a
    /// buffer of this size. It must be large enough for the history, since what is evicted when may
    /// differ: the property of a buffer of many shards.
    Packets {
        /// In place of the history's own.
        size_bytes: usize,
    },
}

impl Scope {
    pub(crate) fn compare<S: Subject>(self, subject: &mut S, model: &mut Model) -> Result<(), String> {
        match self {
            Self::All => compare(subject, model),
            Self::Packets { .. } => compare_counts(subject, model),
        }
    }

    pub(crate) fn compare_image<S: Subject>(self, subject: &mut S, model: &Model) -> Result<(), String> {
        match self {
            Self::All => compare_image(subject, model),
            Self::Packets { .. } => Ok(()),
        }
    }
}

pub(crate) fn same<T: PartialEq + Debug>(what: &str, subject: &T, model: &T) -> Result<(), String> {
    if subject == model {
        return Ok(());
    }
    Err(format!("{what}:\n       got {subject:?}\n  expected {model:?}"))
}

fn compare<S: Subject>(subject: &mut S, model: &mut Model) -> Result<(), String> {
    subject.check()?;
    same("evicted packets", &subject.take_evicted(), &model.take_evicted())?;
    same("stats", &subject.stats(), &model.stats())?;
    same("ledger", &subject.ledger(), &model.ledger())?;
    if !S::HAS_TICKETS {
        same("write_offset", &subject.write_offset(), &model.write_offset())?;
    }
    same("used_size", &subject.used_size_bytes(), &model.used_size_bytes())?;
    same("size", &subject.size_bytes(), &model.size_bytes())?;
    same("writer_stats", &subject.writer_stats(), &model.writer_stats())
}

fn compare_counts<S: Subject>(subject: &mut S, model: &mut Model) -> Result<(), String> {
    subject.check()?;
    let [ours, theirs] = [subject.stats(), model.stats()].map(|stats| Stats {
        padding_bytes_written: 0,
        padding_bytes_cleared: 0,
        write_wrap_count: 0,
        ..stats
    });
    same("stats", &ours, &theirs)?;
    same("ledger", &subject.ledger(), &model.ledger())?;
    let [mut ours, mut theirs] = [subject.writer_stats(), model.writer_stats()];
    for list in [&mut ours, &mut theirs] {
        list.sort_unstable_by_key(|&(producer_id, writer_id, _)| (producer_id, writer_id));
    }
    same("writer_stats", &ours, &theirs)
}

/// The bytes of the buffer: headers tile what is used (spec, trace-buffer 2.2, 2.3), listed chunks
/// are where they belong, nothing was ever written above.
fn compare_image<S: Subject>(subject: &mut S, model: &Model) -> Result<(), String> {
    let Some(ring) = subject.ring() else {
        return Ok(());
    };
    let u16_at = |at: usize| usize::from(u16::from_le_bytes([ring[at], ring[at + 1]]));
    let u32_at = |at: usize| u32::from_le_bytes([ring[at], ring[at + 1], ring[at + 2], ring[at + 3]]);
    for Placed { offset, outer_bytes, listed } in model.placed() {
        let outer_found = (16 + u16_at(offset + 8)).next_multiple_of(16);
        same(&format!("outer size of the record at {offset}"), &outer_found, &outer_bytes)?;
        let Some(listed) = listed else { continue };
        let header = (u32_at(offset), u32_at(offset + 4), u16_at(offset + 8), u16_at(offset + 10));
        let expected = (listed.chunk_id, listed.key as u32, listed.reserved_bytes, listed.payload.len());
        same(&format!("id, key, reserved and visible size at {offset}"), &header, &expected)?;
        same(
            &format!("payload at {offset}"),
            &&ring[offset + 16..][..listed.payload.len()],
            &listed.payload,
        )?;
    }
    same("first byte above used_size", &ring[model.used_size_bytes()..].iter().position(|&b| b != 0), &None)
}
