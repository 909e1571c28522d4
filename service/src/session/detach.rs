//! Sessions that outlive the connection of their consumer: it leaves one behind under a key, and
//! another connection of the same user takes it over.
//!
//! ```text
//!   attached --- handle_detach(key) ---> detached --- handle_attach(key) ---> attached
//!      |                                    |
//!      | duration over: stopped, then       | duration over: stopped, then freed.
//!      | read and freed by the consumer     | What was written into a file stays
//! ```

use crate::clock::ClockReadings;
use crate::error::{AttachRefused, DetachRefused};
use crate::ids::{ConsumerId, SessionId};
use crate::limits;
use crate::service::Service;
use crate::session::SessionState;

impl Service {
    /// The consumer leaves its session behind: it may start another one, or go. Keys are those of
    /// the user, who may use each for one session at a time.
    ///
    /// # Errors
    ///
    /// [`DetachRefused`]; then the session is still the consumer's.
    pub fn handle_detach(&mut self, consumer_id: ConsumerId, key: &str) -> Result<SessionId, DetachRefused> {
        let session_id = self.session_of(consumer_id).ok_or(DetachRefused::NoSession)?;
        if key.is_empty() || key.len() > limits::DETACH_KEY_BYTES_MAX {
            return Err(DetachRefused::BadKey);
        }
        let session = self.sessions.get(&session_id).ok_or(DetachRefused::NoSession)?;
        if session.state == SessionState::Cloned && session.file_is_open() {
            // Who asked for the clone is told when it is in its file.
            return Err(DetachRefused::NoSession);
        }
        let uid = session.consumer_uid;
        if self.detached(uid, key).is_some() {
            return Err(DetachRefused::KeyTaken);
        }
        let session = self.sessions.get_mut(&session_id).ok_or(DetachRefused::NoSession)?;
        session.consumer_id = None;
        session.detach_key = Some(key.to_owned());
        if let Some(consumer) = self.consumers.get_mut(&consumer_id) {
            consumer.session_id = None;
        }
        Ok(session_id)
    }

    /// The consumer takes over the session that was left under this key by its user. Returns the
    /// session's config as it is now.
    ///
    /// The end of the session is told to whoever has it. A session that has ended already is told
    /// by [`Service::handle_end_wanted`].
    ///
    /// # Errors
    ///
    /// [`AttachRefused`]; then nothing has changed.
    pub fn handle_attach(
        &mut self,
        consumer_id: ConsumerId,
        key: &str,
        now: &ClockReadings,
    ) -> Result<(SessionId, Vec<u8>), AttachRefused> {
        let consumer = self.consumers.get(&consumer_id).ok_or(AttachRefused::NoSuchSession)?;
        let uid = consumer.identity.uid;
        if self.has_or_awaits_session(consumer_id) {
            return Err(AttachRefused::AlreadyHasSession);
        }
        let session_id = self.detached(uid, key).ok_or(AttachRefused::NoSuchSession)?;
        let session = self.sessions.get_mut(&session_id).ok_or(AttachRefused::NoSuchSession)?;
        session.consumer_id = Some(consumer_id);
        session.detach_key = None;
        let config = session.config.bytes().to_vec();
        if let Some(consumer) = self.consumers.get_mut(&consumer_id) {
            consumer.session_id = Some(session_id);
        }
        self.tell_if_all_started(session_id, now);
        Ok((session_id, config))
    }

    /// The consumer asks to be told when its session ends, as one that has attached does. If it is
    /// over, that is told at once, again if need be.
    pub fn handle_end_wanted(&mut self, consumer_id: ConsumerId) {
        let Some(session_id) = self.session_of(consumer_id) else { return };
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        if session.state == SessionState::Disabled && !session.file_is_open() {
            session.end_told = false;
            self.tell_end(session_id);
        }
    }

    fn detached(&self, uid: i32, key: &str) -> Option<SessionId> {
        let is_it = |session: &super::Session| {
            session.consumer_uid == uid && session.detach_key.as_deref() == Some(key)
        };
        self.sessions.iter().find(|(_, session)| is_it(session)).map(|(id, _)| *id)
    }
}
