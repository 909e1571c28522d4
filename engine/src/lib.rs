//! One shard of the trace buffer: TBChunk ring, SequenceState table, read back, statistics.
