//! What comes late costs about what comes in order, however much of it there is.

mod support;

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use support::{Buffer, chunk};
use watershed_engine::{FillPolicy, HugePages, Shard, mem::Region};

/// What this thread has computed so far: what others do at the same time is not in it.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

/// CPU time in which so many chunks of eight writers are committed with these tickets and read; the
/// best of several.
fn cost(tickets: &[u64]) -> Duration {
    let chunks: Vec<_> = (0..tickets.len())
        .map(|n| chunk(1 + (n % 8) as u16, (n / 8) as u32).whole(&"x".repeat(100)))
        .collect();
    let round = || {
        let region = Arc::new(Region::map(16 << 20, HugePages::No).unwrap());
        // SAFETY: nobody else knows the region.
        let mut shard = unsafe { Shard::alone(region, FillPolicy::RingBuffer) };
        let start = cpu_time();
        for (chunk, &ticket) in chunks.iter().zip(tickets) {
            shard.copy_chunk_untrusted(&chunk.info, chunk.bytes.as_slice(), ticket).unwrap();
        }
        shard.begin_read();
        let packets = std::iter::from_fn(|| shard.read_next(u64::MAX).map(|_| ())).count();
        assert_eq!(packets, tickets.len());
        cpu_time() - start
    };
    (0..7).map(|_| round()).min().unwrap()
}

/// Measured: at most twice, in a release build. With a list that was searched for each of them, it
/// was more than 100 times.
#[test]
fn records_that_come_late_cost_about_what_others_do() {
    const CHUNKS: u64 = 32_000;
    let in_order = cost(&(1..=CHUNKS).collect::<Vec<_>>());
    let late = std::iter::once(1 << 40).chain(1..CHUNKS).collect::<Vec<_>>();
    let descending = (1..=CHUNKS).rev().collect::<Vec<_>>();
    for (what, tickets) in [("late", late), ("descending", descending)] {
        let cost = cost(&tickets);
        println!("{what}: {cost:?}, in order {in_order:?}");
        assert!(cost < 4 * in_order, "{what}: {cost:?}, in order {in_order:?}");
    }
}

/// Chunk ids that descend between others that are listed cost about what they do before all others,
/// where nothing has to be moved.
#[test]
fn descending_chunk_ids_cost_the_same_wherever_they_belong() {
    const LISTED: u32 = 60_000;
    let cost = |id: fn(u32) -> u32| {
        let chunks: Vec<_> = (0..LISTED / 4).map(|n| chunk(1, id(n)).whole("0123456789")).collect();
        let mut best = Duration::MAX;
        for _ in 0..5 {
            let mut buffer = Buffer::ring(8 << 20);
            for chunk in (0..LISTED).map(|n| chunk(1, LISTED + 2 * n).whole("0123456789")) {
                buffer.0.copy_chunk_untrusted(&chunk.info, chunk.bytes.as_slice()).unwrap();
            }
            let start = cpu_time();
            for chunk in &chunks {
                buffer.0.copy_chunk_untrusted(&chunk.info, chunk.bytes.as_slice()).unwrap();
            }
            best = best.min((cpu_time() - start) / chunks.len() as u32);
            buffer.checked().0.begin_read();
            let packets = std::iter::from_fn(|| buffer.0.read_next().map(|_| ())).count();
            assert_eq!(packets, LISTED as usize + chunks.len());
        }
        best
    };
    let before = cost(|n| LISTED - 1 - n);
    let between = cost(|n| LISTED + LISTED / 2 * 3 - 2 * n - 1);
    println!("between others: {between:?}, before them: {before:?}");
    assert!(between < 3 * before, "{between:?} between others, {before:?} before them");
}
