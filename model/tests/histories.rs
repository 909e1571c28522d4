//! Random histories reach what they are for, and the driver notices a buffer that is wrong.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use watershed_model::drive::{Reached, run};
use watershed_model::history::History;
use watershed_model::subject::Subject;
use watershed_model::{
    Absorb, Chunk, Histogram, Ledger, Model, Packet, Patch, Policy, Stats, loss, property, strategy,
};

fn draw(count: usize) -> Vec<History> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let histories = strategy::histories(120, 1);
    (0..count).map(|_| histories.new_tree(&mut runner).expect("no filters").current()).collect()
}

#[test]
fn histories_reach_every_counter_and_every_loss() {
    let mut sum = [0u64; 21];
    let (mut bits, mut packets, mut steps) = (0, 0, 0);
    for history in draw(400) {
        let Reached { steps: s, packets: p, loss_bits, stats, ledger } =
            run::<Model>(&history).expect("the model is like itself");
        steps += s;
        packets += p;
        bits |= loss_bits;
        let reached = [
            stats.chunks_written,
            stats.chunks_overwritten,
            stats.chunks_read,
            stats.padding_bytes_written,
            stats.padding_bytes_cleared,
            stats.chunks_rewritten,
            stats.chunks_relocated,
            stats.chunks_discarded,
            stats.chunks_committed_out_of_order,
            stats.write_wrap_count,
            stats.patches_succeeded,
            stats.patches_failed,
            stats.readaheads_succeeded,
            stats.readaheads_failed,
            stats.abi_violations,
            stats.trace_writer_packet_loss,
            ledger.read.chunks,
            ledger.overwritten.chunks,
            ledger.empty.chunks,
            ledger.damaged.chunks,
            ledger.duplicate_commits,
        ];
        sum.iter_mut().zip(reached).for_each(|(sum, reached)| *sum += reached);
    }
    println!("{steps} steps, {packets} packets, loss bits {bits:#b}, counters {sum:?}");
    assert!(sum.iter().all(|&n| n >= 3), "{sum:?}");
    assert_eq!(bits, 0x1ff, "SMB_FULL is only given back");
}

/// The model with one thing wrong.
#[derive(Clone)]
struct Wrong<const FAULT: u8>(Model);

impl<const FAULT: u8> Subject for Wrong<FAULT> {
    fn create(size_bytes: usize, policy: Policy, absorb: Option<Absorb>) -> Self {
        Self(Model::create(size_bytes, policy, absorb))
    }

    fn commit(&mut self, chunk: &Chunk<'_>) -> bool {
        // 0: incomplete chunks count as complete.
        let complete = chunk.complete || FAULT == 0;
        self.0.commit(&Chunk { complete, ..chunk.clone() })
    }

    fn patch(
        &mut self,
        producer_id: u32,
        writer_id: u16,
        chunk_id: u32,
        patches: &[Patch],
        pending: bool,
    ) -> bool {
        // 1: has_more_patches is not heeded.
        self.0.patch(producer_id, writer_id, chunk_id, patches, pending && FAULT != 1)
    }

    fn end_writer(&mut self, producer_id: u32, writer_id: u16) {
        // 2: the end of a writer is not heard.
        if FAULT != 2 {
            self.0.end_writer(producer_id, writer_id);
        }
    }

    fn end_producer(&mut self, producer_id: u32) {
        self.0.end_producer(producer_id);
    }

    fn begin_read(&mut self) {
        self.0.begin_read();
    }

    fn read_next(&mut self) -> Option<Packet> {
        let mut packet = self.0.read_next()?;
        // 3: gaps are not reported.
        if FAULT == 3 {
            packet.loss &= !loss::READ_GAP;
        }
        Some(packet)
    }

    fn return_loss(&mut self, producer_id: u32, writer_id: u16, bits: u32) {
        self.0.return_loss(producer_id, writer_id, bits);
    }

    fn clone_read_only(&self) -> Self {
        Self(self.0.clone_read_only())
    }

    fn take_evicted(&mut self) -> Vec<Packet> {
        self.0.take_evicted()
    }

    fn stats(&self) -> Stats {
        // 4: a counter that stays.
        let mut stats = self.0.stats();
        if FAULT == 4 {
            stats.chunks_relocated = 0;
        }
        stats
    }

    fn ledger(&self) -> Ledger {
        self.0.ledger()
    }

    fn writer_stats(&self) -> Vec<(u32, u16, Histogram)> {
        self.0.writer_stats()
    }

    fn size_bytes(&self) -> usize {
        self.0.size_bytes()
    }

    fn used_size_bytes(&self) -> usize {
        self.0.used_size_bytes()
    }

    fn write_offset(&self) -> usize {
        self.0.write_offset()
    }
}

#[test]
fn differences_are_shrunk() {
    let told =
        std::panic::catch_unwind(|| property::check::<Wrong<3>>(100_000, 1)).expect_err("a gap is met");
    let told = told.downcast_ref::<String>().expect("a message");
    println!("{told}");
    assert!(told.matches("\n    .").count() <= 12, "of up to 120 steps: {told}");
}

#[test]
fn faults_are_noticed() {
    let histories = draw(60);
    let finds =
        |run: fn(&History) -> Result<Reached, String>| histories.iter().any(|history| run(history).is_err());
    assert!(finds(run::<Wrong<0>>));
    assert!(finds(run::<Wrong<1>>));
    assert!(finds(run::<Wrong<2>>));
    assert!(finds(run::<Wrong<3>>));
    assert!(finds(run::<Wrong<4>>));
    assert!(!finds(run::<Wrong<99>>));
}

#[test]
fn a_difference_is_told_as_a_chain() {
    let told = draw(60).iter().find_map(|history| run::<Wrong<3>>(history).err()).expect("a gap is met");
    println!("{told}");
    assert!(told.starts_with("buffer("));
    assert!(told.contains("\n    .commit(1/"));
    assert!(told.contains("=> packet"));
}
