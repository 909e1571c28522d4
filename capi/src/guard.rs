//! What stands between a C program's pointer and a `&mut` to our data.

use bumpalo::Bump;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use watershed_engine::TraceBuffer;

/// A trace buffer: what a `ws_buffer *` points to. One thread at a time.
#[expect(non_camel_case_types, reason = "this is the name that C programs use")]
pub struct ws_buffer {
    /// Never part of a `&mut`, so that a call from within a call can look at it.
    state: Cell<State>,
    /// Borrowed only by `enter`, while the state is `Busy`.
    inner: UnsafeCell<Inner>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    /// A call is in progress.
    Busy,
    /// A call panicked: what it left behind is not trusted.
    Broken,
}

/// The data behind the guard.
pub(crate) struct Inner {
    pub(crate) engine: TraceBuffer,
    /// The `ws_slice` arrays of the packets that were handed out since the last write. Emptied by
    /// the next write.
    pub(crate) slices: Bump,
}

impl ws_buffer {
    /// Moves an engine to the heap for a C program to hold.
    pub(crate) fn into_raw(engine: TraceBuffer) -> *mut ws_buffer {
        let inner = Inner { engine, slices: Bump::new() };
        Box::into_raw(Box::new(ws_buffer { state: Cell::new(State::Idle), inner: UnsafeCell::new(inner) }))
    }
}

/// Runs `work` on the buffer; `neutral` instead when there is none, it is in use or broken, or
/// `work` panics.
///
/// # Safety
/// `buffer` is null or came from [`ws_buffer::into_raw`] and was not destroyed, and no other thread
/// uses it.
pub(crate) unsafe fn enter<T>(buffer: *const ws_buffer, neutral: T, work: impl FnOnce(&mut Inner) -> T) -> T {
    // SAFETY: null or a live buffer, by contract; only shared references to a `ws_buffer` are ever
    // made.
    let Some(buffer) = (unsafe { buffer.as_ref() }) else { return neutral };
    if buffer.state.get() != State::Idle {
        return neutral;
    }
    buffer.state.set(State::Busy);
    // SAFETY: the state was `Idle`, so no other call holds this borrow, and it is `Busy` until this
    // one ends.
    let inner = unsafe { &mut *buffer.inner.get() };
    // A broken state is never looked at again, so it does not matter what an unwinding `work`
    // leaves in it.
    match catch_unwind(AssertUnwindSafe(|| work(inner))) {
        Ok(value) => {
            buffer.state.set(State::Idle);
            value
        }
        Err(_panic) => {
            buffer.state.set(State::Broken);
            neutral
        }
    }
}

/// Runs `work`, which has no buffer; `neutral` when it panics.
pub(crate) fn shielded<T>(neutral: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(neutral)
}

/// Frees a buffer, unless a call into it is in progress.
///
/// # Safety
/// As for [`enter`], and the pointer is not used again.
pub(crate) unsafe fn destroy(buffer: *mut ws_buffer) {
    // SAFETY: as in `enter`.
    let Some(shared) = (unsafe { buffer.as_ref() }) else { return };
    if shared.state.get() == State::Busy {
        return;
    }
    // SAFETY: it came from `Box::into_raw`, no call is in progress, and the caller gives the
    // pointer up.
    let owned = unsafe { Box::from_raw(buffer) };
    shielded((), || drop(owned));
}

#[cfg(test)]
mod tests {
    use super::*;
    use watershed_engine::{BufferConfig, FillPolicy};

    fn buffer() -> *mut ws_buffer {
        let config =
            BufferConfig { size_bytes: 4096, policy: FillPolicy::RingBuffer, ..BufferConfig::default() };
        ws_buffer::into_raw(TraceBuffer::create(&config).expect("4096 bytes"))
    }

    #[test]
    fn a_panic_stays_inside_and_breaks_only_its_buffer() {
        let (first, second) = (buffer(), buffer());
        // SAFETY: both are live and used by this thread only, in all calls below; each is destroyed
        // once, at the end.
        unsafe {
            assert_eq!(enter(first, -1, |_| panic!("on purpose")), -1);
            assert_eq!(enter(first, -1, |_| 7), -1, "not trusted any more");
            assert_eq!(enter(second, -1, |_| 7), 7);
            destroy(first);
            destroy(second);
        }
        assert_eq!(shielded(1, || panic!("on purpose")), 1);
    }

    #[test]
    fn a_call_from_within_a_call_is_refused() {
        let outer = buffer();
        // SAFETY: as above.
        unsafe {
            let inside = enter(outer, None, |_| {
                destroy(outer);
                Some(enter(outer, "refused", |_| "let in"))
            });
            assert_eq!(inside, Some("refused"));
            assert_eq!(enter(outer, 0, |inner| inner.engine.size_bytes()), 4096, "still alive");
            destroy(outer);
            enter(std::ptr::null(), (), |_| panic!("no buffer"));
            destroy(std::ptr::null_mut());
        }
    }
}
