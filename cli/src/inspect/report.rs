//! The result for a whole file, in the shape of the JSON that is promised: fields may be added,
//! none changes its meaning or goes away while `format_version` stays.

use serde::Serialize;
use watershed_wire::reader::Damage;

use super::part::{OneSession, Part};
use super::verdict::Verdict;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) format_version: u32,
    pub(super) file: File,
    #[serde(flatten)]
    pub(super) whole: Part,
    /// Of a file with more than one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) sessions: Vec<OneSession>,
}

#[derive(Debug, Serialize)]
pub(super) struct File {
    pub(super) name: String,
    /// Bytes that were read, damaged ones included.
    pub(super) read_bytes: u64,
    /// Bytes before the damage; all of them without one.
    pub(super) intact_bytes: u64,
    pub(super) damage: Option<DamageReport>,
}

#[derive(Debug, Serialize)]
pub(super) struct DamageReport {
    pub(super) offset_bytes: u64,
    pub(super) offset_inflated_bytes: Option<u64>,
    pub(super) message: String,
}

/// How the file was read.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) read_bytes: u64,
    pub(super) compressed_packets: u64,
    pub(super) damage: Option<Damage>,
    /// It has more sessions than are told apart.
    pub(super) has_too_many_sessions: bool,
}

impl Report {
    /// `sessions` are those of the file, at least one.
    pub(super) fn new(mut sessions: Vec<OneSession>, source: &Source) -> Self {
        let mut whole = match sessions.len() {
            1 => sessions.remove(0).part,
            _ => super::together::of(&sessions),
        };
        whole.packets.compressed_packets = source.compressed_packets;
        if source.has_too_many_sessions {
            let last = sessions.len();
            let reason = format!("more sessions than are told apart: session {last} is all that follow");
            whole.completeness.reasons.push(reason);
            if whole.completeness.verdict == Verdict::Complete {
                whole.completeness.verdict = Verdict::Unknown;
            }
        }
        Report { format_version: 1, file: File::new(source), whole, sessions }
    }
}

impl File {
    fn new(source: &Source) -> Self {
        let damage = source.damage.as_ref();
        File {
            name: source.name.clone(),
            read_bytes: source.read_bytes,
            intact_bytes: damage.map_or(source.read_bytes, |damage| damage.offset_bytes),
            damage: damage.map(|damage| DamageReport {
                offset_bytes: damage.offset_bytes,
                offset_inflated_bytes: damage.offset_inflated_bytes,
                message: damage.kind.to_string(),
            }),
        }
    }
}
