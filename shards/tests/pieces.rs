//! In which portions packets come out of buffers of one thread, and what becomes of those that
//! nobody takes.

mod common;

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{drain, info, next_bytes, parse, payload, pools, read_all, round_robin, write_packet};
use watershed_engine::Packet;

/// Who asks for little gets little, in the same order, whatever was extracted.
#[test]
fn pieces_are_about_as_large_as_asked_for() {
    for num_shards in [1, 3] {
        let buffer = round_robin(num_shards, 16);
        let mut committer = buffer.committer().unwrap();
        for round in 0..200 {
            for writer in 1..=5 {
                let chunk = info(1, writer, round, 3, 0);
                committer.commit_chunk(&chunk, &payload(&[1, 2, 3].map(|body| vec![body; 900]))).unwrap();
            }
        }
        let all = read_all(&buffer.clone_read_only().unwrap());
        assert!(all.len() * 900 > 2 << 20, "more than a block");
        let mut pass = buffer.read_pass(write_packet);
        let mut bytes = Vec::new();
        while let Some(some) = next_bytes(&mut pass, 10_000) {
            assert!(some.len() < 10_000 + (16 << 10) + 1000, "{}", some.len());
            bytes.extend(some);
        }
        assert!(parse(&bytes) == all);
    }
}

/// What there was no room for comes again: in the next pieces, and in the next pass.
#[test]
fn pieces_can_be_taken_back() {
    for num_shards in [1, 3] {
        let buffer = round_robin(num_shards, 16);
        let mut committer = buffer.committer().unwrap();
        for round in 0..100 {
            for writer in 1..=5 {
                let chunk = info(1, writer, round, 1, 0);
                committer.commit_chunk(&chunk, &payload(&[vec![writer as u8; 700]])).unwrap();
            }
        }
        let all = read_all(&buffer.clone_read_only().unwrap());
        let packet_bytes = 700 + 24;
        let mut bytes = Vec::new();
        for round in 0.. {
            let mut pass = buffer.read_pass(write_packet);
            let Some(given) = next_bytes(&mut pass, 30_000) else { break };
            let back = (given.len() / packet_bytes).min(round % 7) * packet_bytes;
            let taken = if back == given.len() { given.len() } else { given.len() - back };
            bytes.extend_from_slice(&given[..taken]);
            pass.take_back(given.len() - taken);
            bytes.extend(next_bytes(&mut pass, 1).into_iter().flatten());
        }
        assert_eq!(buffer.extracted_bytes(), 0);
        assert!(parse(&bytes) == all);
    }
}

/// A writer that is interrupted, takes little at a time, and some day nothing.
struct Reluctant {
    calls: usize,
    taken: Vec<u8>,
    most_bytes: usize,
}

impl std::io::Write for Reluctant {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.calls += 1;
        if self.calls % 2 == 1 {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        let count = bytes.len().min(1 + self.calls % 1000).min(self.most_bytes - self.taken.len());
        self.taken.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn pieces_are_written_whole_or_with_an_error() {
    let buffer = round_robin(3, 16);
    let mut committer = buffer.committer().unwrap();
    for round in 0..100 {
        for writer in 1..=5 {
            let chunk = info(1, writer, round, 1, 0);
            committer.commit_chunk(&chunk, &payload(&[vec![writer as u8; 700]])).unwrap();
        }
    }
    let all = read_all(&buffer.clone_read_only().unwrap());
    let mut pass = buffer.read_pass(write_packet);
    let Ok(()) = pass.write_all(|pieces| -> Result<(), Infallible> {
        let mut out = Reluctant { calls: 0, taken: Vec::new(), most_bytes: usize::MAX };
        pieces.write_to(&mut out).unwrap();
        assert!(parse(&out.taken) == all);
        let mut out = Reluctant { calls: 0, taken: Vec::new(), most_bytes: 10_000 };
        assert_eq!(pieces.write_to(&mut out).unwrap_err().kind(), std::io::ErrorKind::WriteZero);
        Ok(())
    });
}

/// Where all packets of a run are dropped, there is nothing to write, and no error.
#[test]
fn packets_that_are_all_dropped_are_written_without_an_error() {
    let buffer = round_robin(3, 16);
    let mut committer = buffer.committer().unwrap();
    for writer in 1..=5 {
        committer.commit_chunk(&info(1, writer, 0, 1, 0), &payload(&[vec![7; 700]])).unwrap();
    }
    for pool in pools() {
        let copy = buffer.clone_read_only().unwrap();
        let mut bytes = Vec::new();
        let mut pass = copy.read_pass(|_: &Packet<'_>, _: &mut Vec<u8>| false).with_pool(pool);
        pass.write_all(|pieces| pieces.write_to(&mut bytes)).unwrap();
        assert!(bytes.is_empty());
    }
}

/// What the caller refuses leaves nothing behind in the block, and the loss before it is told with
/// the next packet of the sequence.
#[test]
fn a_packet_that_the_writer_refuses_leaves_its_loss_to_the_next() {
    for num_shards in [1, 3] {
        let buffer = round_robin(num_shards, 16);
        let mut committer = buffer.committer().unwrap();
        // Chunk 3 never comes.
        for id in [0, 1, 2, 4, 5] {
            for writer in 1..=3 {
                let body = vec![id as u8; 10];
                committer.commit_chunk(&info(1, writer, id, 1, 0), &payload(&[body])).unwrap();
            }
        }
        let has_refused = AtomicBool::new(false);
        let mut pass = buffer.read_pass(|packet: &Packet<'_>, out: &mut Vec<u8>| {
            write_packet(packet, out);
            let is_refused = packet.to_vec()[0].is_multiple_of(4);
            has_refused.fetch_or(is_refused, Ordering::Relaxed);
            !is_refused
        });
        let read = drain(&mut pass);
        assert!(has_refused.into_inner());
        let told: Vec<(u16, u8, bool)> =
            read.iter().map(|got| (got.writer_id, got.bytes[0], got.loss != 0)).collect();
        let expected = [(1, false), (2, false), (5, true)]
            .into_iter()
            .flat_map(|(id, is_loss)| (1..=3).map(move |writer| (writer, id, is_loss)));
        assert!(told.iter().copied().eq(expected), "{told:?}");
    }
}
