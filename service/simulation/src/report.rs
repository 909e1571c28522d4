//! What happened in runs, so that a test can tell that it was worth something.

/// Sums over runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Runs that are in the sums.
    pub runs: u64,
    /// Packets of honest producers that were read.
    pub packets: u64,
    /// Of which were told that something before them is lost.
    pub losses: u64,
    /// Sessions that began.
    pub sessions: u64,
    /// Configs that were refused.
    pub refused: u64,
    /// Sessions that were read to their end, with all their books checked.
    pub drained: u64,
    /// Flushes that were answered.
    pub flushes: u64,
    /// Statistics that were told.
    pub stats: u64,
    /// Clones that were made.
    pub clones: u64,
    /// Of which were compared with a read of the original at that time.
    pub clones_compared: u64,
    /// Triggers that sessions have taken.
    pub triggers: u64,
    /// Packets that have passed a filter.
    pub filtered: u64,
    /// Packets that were written into files.
    pub in_files: u64,
    /// Compressed parts of files.
    pub compressed: u64,
    /// Steps of reads between whose beginning and end something else happened.
    pub steps: u64,
    /// Of which had lost their consumer when they ended, but not the session.
    pub handed_back: u64,
    /// Sessions that another connection took over.
    pub attached: u64,
    /// Connections that ended in the middle of something.
    pub deaths: u64,
    /// Messages of liars.
    pub lies: u64,
}

impl Report {
    /// Adds the sums of other runs.
    pub fn add(&mut self, other: &Report) {
        let pairs = [
            (&mut self.runs, other.runs),
            (&mut self.packets, other.packets),
            (&mut self.losses, other.losses),
            (&mut self.sessions, other.sessions),
            (&mut self.refused, other.refused),
            (&mut self.drained, other.drained),
            (&mut self.flushes, other.flushes),
            (&mut self.stats, other.stats),
            (&mut self.clones, other.clones),
            (&mut self.clones_compared, other.clones_compared),
            (&mut self.triggers, other.triggers),
            (&mut self.filtered, other.filtered),
            (&mut self.in_files, other.in_files),
            (&mut self.compressed, other.compressed),
            (&mut self.steps, other.steps),
            (&mut self.handed_back, other.handed_back),
            (&mut self.attached, other.attached),
            (&mut self.deaths, other.deaths),
            (&mut self.lies, other.lies),
        ];
        pairs.into_iter().for_each(|(sum, part)| *sum += part);
    }
}
