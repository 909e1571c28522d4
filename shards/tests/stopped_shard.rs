//! A shard whose owner is stopped: what is for the others goes on, and a read names whom it waits
//! for.

mod common;

use std::thread;
use std::time::Duration;

use common::numbered::{Seen, chunk};
use common::{read_all, wait_until, write_packet};
use watershed_shards::{CommitError, Committer, ShardedBuffer, ShardedConfig, Wait};

#[test]
fn a_stopped_shard_delays_no_other() {
    let config = ShardedConfig { num_shards: Some(4), queue_capacity: 16, ..ShardedConfig::ring(4 << 20) };
    let buffer = ShardedBuffer::create(config).unwrap();
    let mut committer = buffer.committer().unwrap();
    let mut next_ids = [0u32; 12];
    let mut write = |committer: &mut Committer, writer: usize| {
        let (info, bytes) = chunk(1, writer as u16 + 1, next_ids[writer]);
        let committed = committer.commit_chunk(&info, &bytes);
        next_ids[writer] += u32::from(committed.is_ok());
        committed
    };
    for round in 0..600 {
        write(&mut committer, round % 12).unwrap();
    }
    let before = buffer.shard_stats();
    let stuck = before.iter().position(|(stats, _)| stats.chunks_written > 0).expect("a shard in use");
    let stopped = buffer.stop_shard(stuck);
    // Sixteen batches are queued, then those of this shard are refused; the others' evictions go
    // on, round after round.
    let mut refused = 0;
    let mut taken = 0;
    for round in 0..6000 {
        match write(&mut committer, round % 12) {
            Ok(()) => taken += 1,
            Err(CommitError::QueueFull(full)) => {
                assert_eq!(full.shard, stuck);
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 0 && taken > 3000, "{refused} refused, {taken} taken");
    // A read waits for the stopped shard, and names it.
    thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let buffer = &buffer;
        scope.spawn(move || {
            let pass = buffer.read_pass(write_packet);
            sender.send(pass.waits().to_vec()).unwrap();
        });
        wait_until("the read waits", || buffer.is_waited_for(stuck));
        assert!(receiver.try_recv().is_err());
        drop(stopped);
        let waits: Vec<Wait> = receiver.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(waits.iter().any(|wait| wait.shard == stuck), "{waits:?}");
    });
    let mut seen = Seen::default();
    read_all(&buffer).iter().for_each(|got| seen.check(got));
    assert!(buffer.ledger().is_balanced());
}
