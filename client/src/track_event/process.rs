//! This process and its threads, as traces name them.

use super::message::Message;
use crate::sync::OnceLock;

const UUID: u32 = 1;
const PROCESS: u32 = 3;
const THREAD: u32 = 4;
const PARENT_UUID: u32 = 5;

/// Number of the track of this process: no other process of any trace has it.
pub(super) fn uuid() -> u64 {
    static PROCESS_UUID: OnceLock<u64> = OnceLock::new();
    *PROCESS_UUID.get_or_init(watershed_shell::machine::seed)
}

/// Mixes a number into that of a track. Source: the finalizer of SplitMix64.
pub(super) const fn mix(uuid: u64, with: u64) -> u64 {
    let mut mixed = (uuid ^ with).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// A number for a flow, which no other process has: `number` tells those of this one apart.
#[must_use]
pub fn flow_id(number: u64) -> u64 {
    mix(uuid(), mix(FLOWS, number))
}

/// Apart from the numbers of tracks.
const FLOWS: u64 = 0x464c_4f57;

/// Number of the track of the calling thread.
pub(super) fn thread_uuid() -> u64 {
    mix(uuid(), thread_id())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn thread_id() -> u64 {
    u64::from(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned())
}

/// A number of the process's own, in the order in which threads come here.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn thread_id() -> u64 {
    use crate::sync::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static ID: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    ID.with(|id| *id)
}

/// A `TrackDescriptor` of this process.
pub(super) fn describe_process(descriptor: &mut Message) {
    descriptor.varint(UUID, uuid());
    descriptor.nested(PROCESS, |process| {
        process.varint(1, u64::from(std::process::id()));
        for part in std::env::args_os() {
            process.bytes(2, part.to_string_lossy().as_bytes());
        }
        process.bytes(6, crate::producer::program_name().as_bytes());
    });
}

/// A `TrackDescriptor` of the calling thread.
pub(super) fn describe_thread(descriptor: &mut Message) {
    descriptor.varint(UUID, thread_uuid());
    descriptor.varint(PARENT_UUID, uuid());
    descriptor.nested(THREAD, |thread| {
        thread.varint(1, u64::from(std::process::id()));
        thread.varint(2, thread_id());
        if let Some(name) = thread_name() {
            thread.bytes(5, name.as_bytes());
        }
    });
}

/// The name that the program gave, else the one that the system has.
fn thread_name() -> Option<String> {
    if let Some(name) = std::thread::current().name() {
        return Some(name.to_owned());
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let comm = std::fs::read_to_string("/proc/thread-self/comm").ok()?;
        Some(comm.trim_end().to_owned())
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        None
    }
}
