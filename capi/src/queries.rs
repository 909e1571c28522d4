//! The functions of `watershed.h` that ask a buffer, or the library, about itself. What their `#
//! Safety` sections mean by "the module" is said in [`crate::api`].

use crate::guard::{enter, ws_buffer};
use crate::types::ws_policy;
use std::ffi::c_char;
use watershed_engine::FillPolicy;

/// The buffer's size in bytes.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_buffer_size(buffer: *const ws_buffer) -> usize {
    // SAFETY: the caller's promise about `buffer`.
    unsafe { enter(buffer, 0, |inner| inner.engine.size_bytes()) }
}

/// How many bytes from the start were ever written; the rest is zero. Never becomes less.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_buffer_used_size(buffer: *const ws_buffer) -> usize {
    // SAFETY: the caller's promise about `buffer`.
    unsafe { enter(buffer, 0, |inner| inner.engine.used_size_bytes()) }
}

/// Where the next record goes, in bytes from the start.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_buffer_write_offset(buffer: *const ws_buffer) -> usize {
    // SAFETY: the caller's promise about `buffer`.
    unsafe { enter(buffer, 0, |inner| inner.engine.write_offset()) }
}

/// Bytes of memory that the buffer takes: its ring and what is kept beside it.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_buffer_memory_usage(buffer: *const ws_buffer) -> usize {
    // SAFETY: the caller's promise about `buffer`.
    unsafe { enter(buffer, 0, |inner| inner.engine.memory_usage_bytes()) }
}

/// The ring's bytes, for those who check its layout: ws_buffer_size of them, until the next write.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_buffer_ring(buffer: *const ws_buffer) -> *const u8 {
    // SAFETY: the caller's promise about `buffer`.
    unsafe { enter(buffer, std::ptr::null(), |inner| inner.engine.ring().as_ptr()) }
}

/// What happens when the buffer is full. WS_RING for NULL.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_buffer_policy(buffer: *const ws_buffer) -> ws_policy {
    // SAFETY: the caller's promise about `buffer`.
    unsafe {
        enter(buffer, ws_policy::WS_RING, |inner| match inner.engine.policy() {
            FillPolicy::RingBuffer => ws_policy::WS_RING,
            FillPolicy::Discard => ws_policy::WS_DISCARD,
        })
    }
}

/// Whether anything was ever written.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_buffer_has_data(buffer: *const ws_buffer) -> bool {
    // SAFETY: the caller's promise about `buffer`.
    unsafe { enter(buffer, false, |inner| inner.engine.has_data()) }
}

/// The library's version, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn ws_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
