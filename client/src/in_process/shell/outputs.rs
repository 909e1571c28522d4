//! What the service puts out: commands to producers, and what sessions are told.

use std::io::IoSlice;

use watershed_service::{
    ClockReadings, ConsumerEvent, ConsumerId, InstanceId, Output, ProducerCommand, ProducerId, ReadProgress,
};
use watershed_smb::Smb;
use watershed_wire::protos::TraceStats;
use watershed_wire::protos::trace_stats::FinalFlushOutcome;

use super::Shell;
use crate::in_process::Event;
use crate::in_process::live::AfterFlush;
use crate::in_process::session::SessionEnd;
use crate::producer::Command;

impl Shell {
    pub(in crate::in_process) fn deliver(&mut self, now: &ClockReadings) {
        while let Some(output) = self.service.poll_output() {
            match output {
                Output::Producer(producer_id, command) => self.command(producer_id, command),
                Output::Consumer(consumer_id, event) => self.consumer_event(consumer_id, event, now),
                Output::Warning(warning) => (self.on_event)(Event::Warning(warning)),
            }
        }
    }

    fn command(&mut self, producer_id: ProducerId, command: ProducerCommand) {
        let Some(commands) = self.producers.get(&producer_id) else { return };
        let ids = |ids: Vec<InstanceId>| ids.into_iter().map(|id| id.0).collect();
        let command = match command {
            ProducerCommand::SetupTracing { memory, page_size_bytes } => {
                // Producers of this process bring no memory, and the service makes it in sizes that
                // fit.
                let Some(smb) = memory.and_then(|memory| Smb::new(memory, page_size_bytes).ok()) else {
                    return;
                };
                Command::SetupTracing { smb }
            }
            ProducerCommand::SetupDataSource { instance_id, config } => {
                Command::SetupDataSource { instance_id: instance_id.0, config }
            }
            ProducerCommand::StartDataSource { instance_id, config } => {
                Command::StartDataSource { instance_id: instance_id.0, config }
            }
            ProducerCommand::StopDataSource { instance_id } => {
                Command::StopDataSource { instance_id: instance_id.0 }
            }
            ProducerCommand::Flush { request_id, instance_ids, .. } => {
                Command::Flush { request_id: request_id.0, instance_ids: ids(instance_ids) }
            }
            ProducerCommand::ClearIncrementalState { instance_ids } => {
                Command::ClearIncrementalState { instance_ids: ids(instance_ids) }
            }
        };
        commands.send(command);
    }

    fn consumer_event(&mut self, consumer_id: ConsumerId, event: ConsumerEvent, now: &ClockReadings) {
        let Some(live) = self.sessions.get_mut(&consumer_id) else { return };
        match event {
            ConsumerEvent::AllDataSourcesStarted { .. } => live.notices.all_started(),
            ConsumerEvent::FlushDone { flush_id, success } => match live.flushes.remove(&flush_id) {
                Some(AfterFlush::Stop) => {
                    live.flush_failed = !success;
                    self.service.handle_disable_tracing(consumer_id, now);
                }
                Some(AfterFlush::Tell(reply)) => {
                    let _ = reply.send(success);
                }
                None => {}
            },
            ConsumerEvent::TracingDisabled { error, .. } => self.ended(consumer_id, error, now),
            // Not asked for here.
            ConsumerEvent::InstanceState { .. }
            | ConsumerEvent::TraceStats(_)
            | ConsumerEvent::CloneTriggerHit { .. }
            | ConsumerEvent::ReadReady
            | ConsumerEvent::Cloned { .. } => {}
        }
    }

    /// The session is over: what is in its buffers goes to the sink, and its owner is told.
    fn ended(&mut self, consumer_id: ConsumerId, error: Option<String>, now: &ClockReadings) {
        let Some(live) = self.sessions.get_mut(&consumer_id) else { return };
        let trace = &mut live.trace;
        if trace.output.is_some() && !live.writes_into_file {
            // A failure is kept in `write_error`.
            let mut out = |slices: &[IoSlice<'_>]| trace.write(slices);
            while self.service.write_trace(consumer_id, &mut out, now) == Ok(ReadProgress::More) {}
            if trace.write_error.is_none() {
                let _ = trace.sync();
            }
        }
        let reading_by_hand = trace.output.is_none();
        // Closes the file.
        trace.output = None;
        let stats = self.service.trace_stats(consumer_id);
        let final_flush = stats.as_ref().map(TraceStats::final_flush_outcome);
        let is_full = self.service.file_is_full(live.session_id);
        live.notices.end(SessionEnd {
            error,
            write_error: live.trace.write_error.take(),
            bytes_written: live.trace.bytes_written,
            left_out: is_full.then(|| self.service.take_unread(consumer_id, now)),
            flush_failed: live.flush_failed || final_flush == Some(FinalFlushOutcome::FinalFlushFailed),
            stats,
        });
        if !reading_by_hand {
            self.service.handle_free_buffers(consumer_id, now);
        }
    }
}
