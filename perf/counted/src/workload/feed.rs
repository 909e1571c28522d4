//! Feeds: endless streams of commits, made of the same chunks. A rival that copies bytes takes the
//! same feed.

use super::SourceChunk;
use super::minstd::Minstd;

/// One commit: who, which chunk id, which bytes. The chunk is complete.
#[derive(Clone, Copy, Debug)]
pub struct Commit<'a> {
    /// Producer and writer, which are the same number here, from 1.
    pub writer: u16,
    /// The chunk's id.
    pub chunk_id: u32,
    /// Its fragments and flags.
    pub chunk: &'a SourceChunk,
}

/// All chunks, again and again, from one writer.
pub fn one_writer(chunks: &[SourceChunk]) -> impl Iterator<Item = Commit<'_>> {
    chunks.iter().cycle().zip(0..).map(|(chunk, chunk_id)| Commit { writer: 1, chunk_id, chunk })
}

/// Commit k is of writer k mod 1000, each with chunk ids of its own.
pub fn thousand_writers(chunks: &[SourceChunk]) -> impl Iterator<Item = Commit<'_>> {
    let writers = (0..).flat_map(|chunk_id| (1..=1000).map(move |writer| (writer, chunk_id)));
    chunks.iter().cycle().zip(writers).map(|(chunk, (writer, chunk_id))| Commit { writer, chunk_id, chunk })
}

/// One writer whose commits arrive in shuffled batches of 8.
pub fn out_of_order(chunks: &[SourceChunk]) -> impl Iterator<Item = Commit<'_>> {
    let mut random = Minstd::new(42);
    // A few orders, repeated: drawing them would take longer than what is measured.
    let orders: Vec<[u32; 8]> = (0..64)
        .map(|_| {
            let mut order = std::array::from_fn(|index| index as u32);
            random.shuffle(&mut order);
            order
        })
        .collect();
    let ids = (0..).step_by(8).zip((0..orders.len()).cycle()).flat_map(move |(first, turn)| {
        let order = orders[turn];
        (0..8).map(move |index| first + order[index])
    });
    chunks.iter().cycle().zip(ids).map(|(chunk, chunk_id)| Commit { writer: 1, chunk_id, chunk })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::templates;

    #[test]
    fn ids_run_on_by_writer() {
        let chunks = templates::mixed(3);
        let commits: Vec<_> = thousand_writers(&chunks).take(2001).collect();
        let ends = |at: usize| (commits[at].writer, commits[at].chunk_id);
        assert_eq!([ends(0), ends(999), ends(1000), ends(2000)], [(1, 0), (1000, 0), (1, 1), (1, 2)]);
        assert_eq!(one_writer(&chunks).nth(7).map(|commit| commit.chunk_id), Some(7));
    }

    #[test]
    fn batches_of_eight_are_shuffled_and_whole() {
        let chunks = templates::mixed(3);
        let ids: Vec<u32> = out_of_order(&chunks).take(800).map(|commit| commit.chunk_id).collect();
        assert!(ids.windows(2).any(|pair| pair[0] > pair[1]));
        for (batch, first) in ids.chunks(8).zip((0..).step_by(8)) {
            let mut sorted = batch.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, (first..first + 8).collect::<Vec<_>>());
        }
    }
}
