//! The compact encoding of `sched_switch` and `sched_waking`: a column for each field.
//!
//! ```text
//!   switch_timestamp  12000  250  90  ...     first absolute, then the time since the last switch
//!   switch_next_pid     417    0  31  ...
//!   intern_table      "make" "swapper/0" ...  names, once a bundle
//! ```
//!
//! The thread that is switched away from is the one that was switched to before, so it is not
//! written; readers need every switch of a CPU, in order.

use std::ops::Deref;

use super::format::{EventFormat, Field, FieldKind};
use super::proto::{put_bytes, put_varint};
use super::read;

/// A bundle with more names is closed at the next page.
pub(super) const NAMES_MAX: usize = 64;
/// A name's size in the kernel.
const COMM_SIZE: usize = 16;

/// Where the fields lie that the encoding needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SwitchFormat {
    size_min: usize,
    prev_state: (usize, usize),
    next_comm: usize,
    pub(super) next_pid: usize,
    next_prio: usize,
}

/// The same for wakings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WakingFormat {
    size_min: usize,
    comm: usize,
    pub(super) pid: usize,
    prio: usize,
    target_cpu: usize,
    common_flags: usize,
}

fn offset(field: Option<&Field>, kind: FieldKind, size: usize) -> Option<usize> {
    field.filter(|field| field.kind == Some(kind) && field.size == size).map(|field| field.offset)
}

impl SwitchFormat {
    /// `None` if the kernel's fields are not those that the encoding has columns for.
    pub(super) fn new(format: &EventFormat) -> Option<Self> {
        let state = format.field("prev_state")?;
        let is_state = state.kind == Some(FieldKind::Signed) && matches!(state.size, 4 | 8);
        Some(Self {
            size_min: format.size_min(),
            prev_state: is_state.then_some((state.offset, state.size))?,
            next_comm: offset(format.field("next_comm"), FieldKind::FixedString, COMM_SIZE)?,
            next_pid: offset(format.field("next_pid"), FieldKind::Pid, 4)?,
            next_prio: offset(format.field("next_prio"), FieldKind::Signed, 4)?,
        })
    }
}

impl WakingFormat {
    /// `None` if the kernel's fields are not those that the encoding has columns for.
    pub(super) fn new(format: &EventFormat) -> Option<Self> {
        Some(Self {
            size_min: format.size_min(),
            comm: offset(format.field("comm"), FieldKind::FixedString, COMM_SIZE)?,
            pid: offset(format.field("pid"), FieldKind::Pid, 4)?,
            prio: offset(format.field("prio"), FieldKind::Signed, 4)?,
            target_cpu: offset(format.field("target_cpu"), FieldKind::Signed, 4)?,
            common_flags: offset(format.common_field("common_flags"), FieldKind::Unsigned, 1)?,
        })
    }
}

/// Both, or none is compact.
pub(super) type CompactFormats = (SwitchFormat, WakingFormat);

/// The formats of both events, if both have what the encoding needs. `of` gives the format of an
/// event of the group `sched`.
pub(super) fn formats<F: Deref<Target = EventFormat>>(
    mut of: impl FnMut(&str) -> Option<F>,
) -> Option<CompactFormats> {
    Some((SwitchFormat::new(&*of("sched_switch")?)?, WakingFormat::new(&*of("sched_waking")?)?))
}

/// A name in two words, the first byte lowest, zeros from its NUL on.
type Comm = [u64; 2];

/// The names of a bundle.
#[derive(Debug, Default)]
struct Names {
    known: Vec<Comm>,
    /// By the low bits of a thread's id, the number of the name that it had last: a hint, which is
    /// compared.
    of_tid: [u8; 32],
}

impl Names {
    #[inline]
    fn number(&mut self, tid: i32, comm: Comm) -> u64 {
        let hint = &mut self.of_tid[tid as usize % 32];
        if self.known.get(usize::from(*hint)) != Some(&comm) {
            let found = self.known.iter().position(|&known| known == comm);
            let number = found.unwrap_or_else(|| {
                self.known.push(comm);
                self.known.len() - 1
            });
            // A page has more names than that only if they are made up.
            let Ok(small) = u8::try_from(number) else { return number as u64 };
            *hint = small;
        }
        u64::from(*hint)
    }
}

/// Columns of one bundle.
#[derive(Debug, Default)]
pub(super) struct Compact {
    names: Names,
    switch_last_ns: u64,
    switch_timestamp: Vec<u8>,
    switch_prev_state: Vec<u8>,
    switch_next_pid: Vec<u8>,
    switch_next_prio: Vec<u8>,
    switch_next_comm: Vec<u8>,
    waking_last_ns: u64,
    waking_timestamp: Vec<u8>,
    waking_pid: Vec<u8>,
    waking_target_cpu: Vec<u8>,
    waking_prio: Vec<u8>,
    waking_comm: Vec<u8>,
    waking_flags: Vec<u8>,
}

/// A record was shorter than its format.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooShort;

/// Bytes up to the NUL, zeros behind it: what the kernel leaves there is no part of the name.
#[inline]
fn comm(record: &[u8], offset: usize) -> Comm {
    let [low, high] = [0, 8].map(|at| u64::from_le_bytes(read::array(record, offset + at)));
    match until_zero(low) {
        (low, true) => [low, 0],
        (low, false) => [low, until_zero(high).0],
    }
}

/// The bytes below the first that is zero, and whether there is one.
#[inline]
fn until_zero(word: u64) -> (u64, bool) {
    const ONES: u64 = u64::MAX / 0xFF;
    // The high bit of each byte that is zero; above the first one, of others too.
    let zeros = word.wrapping_sub(ONES) & !word & (ONES << 7);
    match zeros {
        0 => (word, false),
        _ => (word & ((1 << (zeros.trailing_zeros() - 7)) - 1), true),
    }
}

#[inline]
fn put_int(out: &mut Vec<u8>, value: i32) {
    put_varint(out, i64::from(value) as u64);
}

impl Compact {
    /// Adds a switch. Returns the thread that is switched to.
    #[inline]
    pub(super) fn add_switch(
        &mut self,
        format: &SwitchFormat,
        timestamp_ns: u64,
        record: &[u8],
    ) -> Result<i32, TooShort> {
        if record.len() < format.size_min {
            return Err(TooShort);
        }
        put_varint(&mut self.switch_timestamp, timestamp_ns.wrapping_sub(self.switch_last_ns));
        self.switch_last_ns = timestamp_ns;
        let state = match format.prev_state {
            (offset, 8) => i64::from_le_bytes(read::array(record, offset)),
            (offset, _) => i64::from(read::int(record, offset)),
        };
        put_varint(&mut self.switch_prev_state, state as u64);
        let next_pid = read::int(record, format.next_pid);
        put_int(&mut self.switch_next_pid, next_pid);
        put_int(&mut self.switch_next_prio, read::int(record, format.next_prio));
        let name = self.names.number(next_pid, comm(record, format.next_comm));
        put_varint(&mut self.switch_next_comm, name);
        Ok(next_pid)
    }

    /// Adds a waking. Returns the thread that was woken.
    #[inline]
    pub(super) fn add_waking(
        &mut self,
        format: &WakingFormat,
        timestamp_ns: u64,
        record: &[u8],
    ) -> Result<i32, TooShort> {
        if record.len() < format.size_min {
            return Err(TooShort);
        }
        put_varint(&mut self.waking_timestamp, timestamp_ns.wrapping_sub(self.waking_last_ns));
        self.waking_last_ns = timestamp_ns;
        let pid = read::int(record, format.pid);
        put_int(&mut self.waking_pid, pid);
        put_int(&mut self.waking_target_cpu, read::int(record, format.target_cpu));
        put_int(&mut self.waking_prio, read::int(record, format.prio));
        let name = self.names.number(pid, comm(record, format.comm));
        put_varint(&mut self.waking_comm, name);
        put_varint(&mut self.waking_flags, u64::from(record[format.common_flags]));
        Ok(pid)
    }

    /// Nothing was added since the last [`Compact::finish`].
    pub(super) fn is_empty(&self) -> bool {
        self.switch_timestamp.is_empty() && self.waking_timestamp.is_empty()
    }

    /// The bundle should be closed soon.
    pub(super) fn has_many_names(&self) -> bool {
        self.names.known.len() > NAMES_MAX
    }

    /// Appends a `CompactSched` and empties the columns.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        for name in &self.names.known {
            let name = name.map(u64::to_le_bytes);
            put_bytes(out, 5, String::from_utf8_lossy(read::until_nul(name.as_flattened())).as_bytes());
        }
        self.names.known.clear();
        let columns = [
            (1, &mut self.switch_timestamp),
            (2, &mut self.switch_prev_state),
            (3, &mut self.switch_next_pid),
            (4, &mut self.switch_next_prio),
            (6, &mut self.switch_next_comm),
            (7, &mut self.waking_timestamp),
            (8, &mut self.waking_pid),
            (9, &mut self.waking_target_cpu),
            (10, &mut self.waking_prio),
            (11, &mut self.waking_comm),
            (12, &mut self.waking_flags),
        ];
        for (number, column) in columns {
            if !column.is_empty() {
                put_bytes(out, number, column);
                column.clear();
            }
        }
        (self.switch_last_ns, self.waking_last_ns) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;
    use watershed_wire::protos::ftrace_event_bundle::CompactSched;

    fn switch_format() -> SwitchFormat {
        let text = include_str!("../../tests/formats/6.18-x86_64/sched_switch");
        SwitchFormat::new(&EventFormat::parse(text).unwrap()).unwrap()
    }

    fn switch(state: i64, next: i32, name: &str) -> Vec<u8> {
        let mut record = vec![0xAA; 64];
        record[32..40].copy_from_slice(&state.to_le_bytes());
        record[40..40 + name.len()].copy_from_slice(name.as_bytes());
        record[40 + name.len()] = 0;
        record[56..60].copy_from_slice(&next.to_le_bytes());
        record[60..64].copy_from_slice(&120_i32.to_le_bytes());
        record
    }

    #[test]
    fn columns_of_switches_and_wakings() {
        let text = include_str!("../../tests/formats/6.18-x86_64/sched_waking");
        let waking_format = WakingFormat::new(&EventFormat::parse(text).unwrap()).unwrap();
        let mut waking = vec![0; 36];
        waking[2] = 0x10;
        waking[8..11].copy_from_slice(b"one");
        waking[24..28].copy_from_slice(&11_i32.to_le_bytes());
        waking[28..32].copy_from_slice(&(-1_i32).to_le_bytes());
        waking[32..36].copy_from_slice(&3_i32.to_le_bytes());

        let mut compact = Compact::default();
        let format = switch_format();
        assert_eq!(compact.add_switch(&format, 1_000, &switch(1, 11, "one")), Ok(11));
        assert_eq!(compact.add_waking(&waking_format, 1_100, &waking), Ok(11));
        assert_eq!(compact.add_switch(&format, 1_250, &switch(256, 0, "swapper/0")), Ok(0));
        assert_eq!(compact.add_switch(&format, 1_240, &switch(0, 11, "one")), Ok(11));
        assert_eq!(compact.add_switch(&format, 9, &switch(0, 1, "a")[..63]), Err(TooShort));
        let mut out = Vec::new();
        compact.finish(&mut out);
        assert!(compact.is_empty());
        let expected = CompactSched {
            switch_timestamp: vec![1_000, 250, 10_u64.wrapping_neg()],
            switch_prev_state: vec![1, 256, 0],
            switch_next_pid: vec![11, 0, 11],
            switch_next_prio: vec![120; 3],
            intern_table: vec!["one".into(), "swapper/0".into()],
            switch_next_comm_index: vec![0, 1, 0],
            waking_timestamp: vec![1_100],
            waking_pid: vec![11],
            waking_target_cpu: vec![3],
            waking_prio: vec![-1],
            waking_comm_index: vec![0],
            waking_common_flags: vec![0x10],
        };
        assert_eq!(CompactSched::decode(&out[..]).unwrap(), expected);
    }

    #[test]
    fn names_have_one_number_whoever_has_them() {
        let mut names = Names::default();
        let first: Vec<_> = (0..400).map(|n| names.number(7 + n as i32 % 3 * 64, [n % 300, n])).collect();
        assert_eq!(first, (0..400).collect::<Vec<_>>());
        let again: Vec<_> = (0..400).map(|n| names.number(n as i32, [n % 300, n])).collect();
        assert_eq!(again, first);
    }

    #[test]
    fn names_end_at_their_first_nul() {
        let bytes = [b'a', 0x80, 0xFF, 1, 0, 1, b'x', 0, 0xFF, 0, 1, 1, 1, 1, 1, 0x80];
        for end in 0..=COMM_SIZE {
            let mut record: Vec<u8> = bytes.iter().map(|&byte| byte.max(1)).collect();
            if let Some(nul) = record.get_mut(end) {
                *nul = 0;
            }
            let mut expected = record.clone();
            expected[end..].fill(0);
            assert_eq!(comm(&record, 0).map(u64::to_le_bytes).as_flattened(), expected, "{end}");
        }
        assert_eq!(comm(&bytes, 0), [u64::from(u32::from_le_bytes([b'a', 0x80, 0xFF, 1])), 0]);
    }

    #[test]
    fn bundles_start_anew() {
        let mut compact = Compact::default();
        let mut decoded = [(); 2].map(|()| {
            compact.add_switch(&switch_format(), 5_000, &switch(0, 1, "a")).unwrap();
            let mut out = Vec::new();
            compact.finish(&mut out);
            CompactSched::decode(&out[..]).unwrap()
        });
        decoded[0].switch_next_prio[0] = 120;
        assert_eq!(decoded[0], decoded[1]);
        assert_eq!(decoded[1].switch_timestamp, [5_000]);
    }

    #[test]
    fn other_fields_have_no_compact_encoding() {
        let text = include_str!("../../tests/formats/6.18-x86_64/sched_switch");
        for (from, to) in [("char next_comm[16]", "int next_comm"), ("pid_t next_pid", "long next_pid")] {
            let format = EventFormat::parse(&text.replace(from, to)).unwrap();
            assert_eq!(SwitchFormat::new(&format), None, "{to}");
        }
    }
}
