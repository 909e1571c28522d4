//! The session's thread: waits for the end, and fetches what there is then.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use watershed_client::consumer::{Consumer, ConsumerError, FLUSH_AT_STOP, Notice, Wait};
use watershed_client::in_process::Unread;
use watershed_wire::protos::observable_events::CloneTriggerHit;
use watershed_wire::protos::trace_stats::FinalFlushOutcome;
use watershed_wire::protos::{TraceConfig, TraceStats};
use watershed_wire::raw::Fields;

use super::super::end::{End, LeftOut};
use super::clones::Clones;
use super::destination::{Destination, read};

/// Time for data sources to answer the flush before the end, unless the config says otherwise.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Field `TracePacket.trusted_packet_sequence_id`.
const SEQUENCE_ID: u32 = 10;
/// The sequence of the service's own packets.
const SERVICE_SEQUENCE: u64 = 1;

pub(super) struct Run {
    consumer: Consumer,
    destination: Destination,
    /// Nobody wants the trace any more.
    abandoned: Arc<AtomicBool>,
    stats_before: TraceStats,
    flush_timeout: Duration,
    /// A session that ends by itself before, and not for an error, has filled its file; `None` if
    /// there are other reasons.
    full_before: Option<Instant>,
    stopped: bool,
    flush_failed: bool,
    /// Data sources of the config that nobody offered when the session began.
    not_offered: Vec<String>,
    /// With a trace for each trigger.
    clones: Option<Clones>,
    /// Triggers that have come already, in the order in which they came.
    hits: VecDeque<CloneTriggerHit>,
}

impl Run {
    pub(super) fn new(
        consumer: Consumer,
        destination: Destination,
        abandoned: Arc<AtomicBool>,
        stats_before: TraceStats,
        not_offered: Vec<String>,
        config: &TraceConfig,
    ) -> Self {
        let ms = |ms: u32| Some(Duration::from_millis(ms.into())).filter(|time| !time.is_zero());
        let has_limit = config.write_into_file() && config.max_file_size_bytes() > 0;
        let far_off = Duration::from_secs(365 * 24 * 3600);
        let time = ms(config.duration_ms()).unwrap_or(far_off);
        let full_before = (has_limit && config.trigger_config.is_none()).then(|| Instant::now() + time);
        Run {
            consumer,
            destination,
            abandoned,
            stats_before,
            flush_timeout: ms(config.flush_timeout_ms()).unwrap_or(FLUSH_TIMEOUT),
            full_before,
            stopped: false,
            flush_failed: false,
            not_offered,
            clones: None,
            hits: VecDeque::new(),
        }
    }

    /// Has a trace written for each trigger; some have come already.
    pub(super) fn take_clones(&mut self, clones: Clones, hits: Vec<CloneTriggerHit>) {
        (self.clones, self.hits) = (Some(clones), hits.into());
    }

    /// How the session ended; `None` if it was abandoned.
    pub(super) fn run(mut self) -> Option<End> {
        let ended = self.wait_end();
        if self.abandoned.load(Ordering::Relaxed) {
            return None;
        }
        self.take_rest();
        let mut end = End { flush_failed: self.flush_failed, ..End::default() };
        let fetched = match ended {
            Ok(error) => {
                end.error = error.map(|error| crate::text::printable(&error));
                let is_full = end.error.is_none()
                    && !self.stopped
                    && self.full_before.is_some_and(|then| Instant::now() < then);
                self.fetch(is_full, &mut end)
            }
            Err(error) => Err(error),
        };
        match fetched {
            Ok(()) => {}
            Err(ConsumerError::Write(error)) => end.write_error = Some(error.to_string()),
            Err(error) => end.error = Some(error.to_string()),
        }
        // Gives the session up, so that the service closes what it writes into.
        drop(self.consumer);
        if let Err(error) = self.destination.finish() {
            end.write_error.get_or_insert(error.to_string());
        }
        Some(end)
    }

    fn wait_end(&mut self) -> Result<Option<String>, ConsumerError> {
        loop {
            if let Some(hit) = self.hits.pop_front() {
                self.take(&hit);
                continue;
            }
            match self.consumer.next_notice()? {
                Notice::Ended { error } => return Ok(error),
                Notice::Events(events) => self.hits.extend(events.clone_trigger_hit),
                Notice::Woken if self.abandoned.load(Ordering::Relaxed) => return Ok(None),
                Notice::Woken if !self.stopped => {
                    if let Some(error) = self.stop()? {
                        return Ok(error);
                    }
                }
                Notice::Woken => {}
            }
        }
    }

    /// Writes the traces of triggers that came before the session's end.
    fn take_rest(&mut self) {
        while let Ok(Some(events)) = self.consumer.next_events(Duration::ZERO) {
            self.hits.extend(events.clone_trigger_hit);
        }
        std::mem::take(&mut self.hits).iter().for_each(|hit| self.take(hit));
    }

    /// Writes the trace of a trigger, before anything else is done.
    fn take(&mut self, hit: &CloneTriggerHit) {
        let Some(mut clones) = self.clones.take() else { return };
        clones.take(hit, |stats| {
            let mut end = End { not_offered: self.still_not_offered(), ..End::default() };
            self.add_stats(stats, &mut end);
            end
        });
        self.clones = Some(clones);
    }

    /// Stops the session. Returns its end if it had ended by itself.
    fn stop(&mut self) -> Result<Option<Option<String>>, ConsumerError> {
        if !self.consumer.flush(self.flush_timeout, FLUSH_AT_STOP)? {
            // One that has just ended is not flushed either.
            if let Wait::Ended { error } = self.consumer.wait_end(Some(Duration::ZERO))? {
                return Ok(Some(error));
            }
            self.flush_failed = true;
        }
        // Those that came before the flush was asked for are here by now. Their clones are flushed
        // only while the session records.
        self.take_rest();
        self.stopped = true;
        self.consumer.disable()?;
        Ok(None)
    }

    /// Takes what the service has of the session: packets, statistics.
    fn fetch(&mut self, is_full: bool, end: &mut End) -> Result<(), ConsumerError> {
        // Before the session is given up. Where statistics tell, they know better.
        end.not_offered = self.still_not_offered();
        let result = match &mut self.destination {
            Destination::Read(file) => read(&mut self.consumer, file),
            _ if is_full => unread(&mut self.consumer).map(|unread| end.left_out = Some(unread)),
            _ => Ok(()),
        };
        let stats = self.consumer.stats().ok();
        self.add_stats(stats, end);
        result
    }

    /// What a trace's statistics tell of it.
    fn add_stats(&self, stats: Option<TraceStats>, end: &mut End) {
        let Some(stats) = stats else { return };
        end.flush_failed |= stats.final_flush_outcome() == FinalFlushOutcome::FinalFlushFailed;
        if stats.commit_stats.is_some() {
            end.not_offered.clone_from(&stats.data_sources_not_offered);
        }
        end.stats = Some(since(&self.stats_before, stats));
    }

    /// What nobody offers now either. A program that came and went meanwhile is not known of.
    fn still_not_offered(&mut self) -> Vec<String> {
        let names = self.not_offered.clone();
        if names.is_empty() {
            return names;
        }
        let Ok(state) = self.consumer.query_state(false) else { return names };
        let offered = crate::connect::data_source_names(&state);
        names.into_iter().filter(|name| !offered.contains(name)).collect()
    }
}

/// What a full file had no room for. Not every service tells.
fn unread(consumer: &mut Consumer) -> Result<LeftOut, ConsumerError> {
    let mut unread = Unread::default();
    consumer.read_packets(|packet| {
        let ids = Fields::new(packet).map_while(Result::ok).filter(|field| field.number == SEQUENCE_ID);
        if ids.last().and_then(|field| field.value.varint()) != Some(SERVICE_SEQUENCE) {
            unread.packets += 1;
            unread.bytes += packet.len() as u64;
        }
        Ok(())
    })?;
    Ok(if unread.packets > 0 { LeftOut::Packets(unread) } else { LeftOut::Unknown })
}

/// The service counts some things over all sessions, from its own beginning on. Chunks and patches
/// for a buffer that there is not are late ones of a session that has ended: not of this trace.
fn since(before: &TraceStats, mut stats: TraceStats) -> TraceStats {
    let before = before.invalid_packets.unwrap_or(0);
    stats.invalid_packets = stats.invalid_packets.map(|now| now.saturating_sub(before));
    (stats.chunks_discarded, stats.patches_discarded) = (None, None);
    stats
}
