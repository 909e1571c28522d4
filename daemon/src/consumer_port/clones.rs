//! Calls about sessions beyond the connection's own: detached ones, changed configs, clones.

use std::fs::File;
use std::sync::Arc;

use watershed_service::{
    ClockReadings, CloneRequest, CloneSource, ClonedSession, ReceivedTrigger, SessionId,
};
use watershed_wire::Decode as _;
use watershed_wire::ipc::messages::TraceConfigMessage;
use watershed_wire::ipc::{ConsumerMethod, Invocation};
use watershed_wire::protos::{self, clone_session_request::Selector, observable_events};

use super::ConsumerPort;
use crate::connection::Closed;
use crate::core::Core;
use crate::log::Topic;

/// Stands for the session that is for bug reports (spec, service 3.12).
const FOR_BUGREPORT: u64 = u64::MAX;

impl ConsumerPort {
    pub(super) fn change_config(
        &mut self,
        call: &Invocation<ConsumerMethod>,
        core: &mut Core,
        now: &ClockReadings,
    ) -> Result<(), Closed> {
        let Ok(request) = TraceConfigMessage::decode(&call.args[..]) else {
            return self.reject(call.reply_to);
        };
        let config = request.trace_config().unwrap_or_default();
        if let Err(refused) = core.service.handle_change_trace_config(self.consumer_id, &config, now) {
            let line = format_args!("{self}: the config is not changed: {refused}");
            core.log.line(now.monotonic_ns, Topic::Call, Some(self.connection.peer), line);
            return self.reject(call.reply_to);
        }
        self.connection.reply(call.reply_to, &protos::ChangeTraceConfigResponse {}, false)
    }

    /// The end of the session that is left behind is not told here any more.
    pub(super) fn detach(
        &mut self,
        call: &Invocation<ConsumerMethod>,
        core: &mut Core,
    ) -> Result<(), Closed> {
        let Ok(request) = protos::DetachRequest::decode(&call.args[..]) else {
            return self.reject(call.reply_to);
        };
        match core.service.handle_detach(self.consumer_id, request.key()) {
            Ok(_) => self.connection.reply(call.reply_to, &protos::DetachResponse {}, false),
            Err(_) => self.reject(call.reply_to),
        }
    }

    pub(super) fn attach(
        &mut self,
        call: &Invocation<ConsumerMethod>,
        core: &mut Core,
        now: &ClockReadings,
    ) -> Result<(), Closed> {
        let Ok(request) = protos::AttachRequest::decode(&call.args[..]) else {
            return self.reject(call.reply_to);
        };
        match core.service.handle_attach(self.consumer_id, request.key(), now) {
            Ok((_, config)) => self.connection.reply(call.reply_to, &TraceConfigMessage::new(config), false),
            Err(_) => self.reject(call.reply_to),
        }
    }

    pub(super) fn clone_session(
        &mut self,
        call: &Invocation<ConsumerMethod>,
        core: &mut Core,
        now: &ClockReadings,
    ) -> Result<(), Closed> {
        // One comes with every call: a client cannot know whether it is needed.
        let file = self.connection.take_fd().map(File::from);
        let Ok(request) = protos::CloneSessionRequest::decode(&call.args[..]) else {
            return self.reject(call.reply_to);
        };
        let (request, has_file) = (clone_request(request), file.is_some());
        match core.service.handle_clone_session(self.consumer_id, request, has_file, now) {
            Ok(session_id) => {
                self.clones.insert(session_id, call.reply_to);
                if let Some(file) = file {
                    let room = core.service.clone_room(session_id);
                    core.files.keep_for_clone(session_id, file, room);
                }
                Ok(())
            }
            Err(refused) => self.connection.reply(call.reply_to, &not_cloned(refused.to_string()), false),
        }
    }

    pub(super) fn tell_cloned(
        &mut self,
        session_id: SessionId,
        result: Result<ClonedSession, String>,
    ) -> Result<(), Closed> {
        let Some(reply_to) = self.clones.remove(&session_id) else { return Ok(()) };
        let reply = match result {
            Ok(clone) => protos::CloneSessionResponse {
                success: Some(true),
                error: None,
                uuid_msb: Some(clone.uuid.0),
                uuid_lsb: Some(clone.uuid.1),
                was_write_into_file: Some(clone.is_in_file),
            },
            Err(reason) => not_cloned(reason),
        };
        self.connection.reply(reply_to, &reply, false)
    }
}

impl ConsumerPort {
    /// The connection has ended: what was kept for its clones is not needed any more.
    pub(crate) fn forget_clones(&self, core: &mut Core) {
        self.clones.keys().for_each(|session_id| core.files.forget_clone(*session_id));
    }
}

fn not_cloned(reason: String) -> protos::CloneSessionResponse {
    protos::CloneSessionResponse { success: Some(false), error: Some(reason), ..Default::default() }
}

fn clone_request(request: protos::CloneSessionRequest) -> CloneRequest {
    let trigger = request.clone_trigger_name.as_deref().map(|name| ReceivedTrigger {
        boottime_ns: request.clone_trigger_boot_time_ns(),
        name: Arc::from(name),
        producer_name: Arc::from(request.clone_trigger_producer_name()),
        producer_uid: request.clone_trigger_trusted_producer_uid(),
        stop_delay_ms: request.clone_trigger_delay_ms(),
    });
    let (for_bugreport, skip_filter) = (request.for_bugreport(), request.skip_trace_filter());
    let into_file = request.into_file();
    let source = match request.selector {
        Some(Selector::SessionId(FOR_BUGREPORT)) => CloneSource::ForBugreport,
        Some(Selector::UniqueSessionName(name)) => CloneSource::Named(name),
        Some(Selector::SessionId(id)) => CloneSource::Session(SessionId(id)),
        None => CloneSource::Session(SessionId(0)),
    };
    CloneRequest { source, for_bugreport, skip_filter, trigger, into_file }
}

/// As a consumer is told of a trigger for which it is to clone.
pub(super) fn hit(session_id: SessionId, trigger: &ReceivedTrigger) -> observable_events::CloneTriggerHit {
    observable_events::CloneTriggerHit {
        tracing_session_id: Some(session_id.0.cast_signed()),
        trigger_name: Some(trigger.name.to_string()),
        producer_name: Some(trigger.producer_name.to_string()),
        producer_uid: Some(trigger.producer_uid.cast_unsigned()),
        boot_time_ns: Some(trigger.boottime_ns),
        trigger_delay_ms: Some(trigger.stop_delay_ms),
    }
}
