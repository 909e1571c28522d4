//! Packets as C sees them, and the function that is shown those which are about to be overwritten.

use crate::guard::{enter, ws_buffer};
use crate::types::{ws_identity, ws_overwrite_fn, ws_packet, ws_slice};
use std::ffi::c_void;
use watershed_engine::{OverwriteSink, Packet};

/// Sets the function that is handed packets which are about to be overwritten unread; NULL takes it
/// away.
///
/// # Safety
/// `sink` can be called with `user` until it is replaced or the buffer destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_buffer_set_overwrite_sink(
    buffer: *mut ws_buffer,
    sink: ws_overwrite_fn,
    user: *mut c_void,
) {
    let sink = sink.map(|function| Sink { function, user });
    // SAFETY: the caller's promise about `buffer`.
    unsafe {
        enter(buffer, (), |inner| {
            inner.engine.set_overwrite_sink(sink.map(|sink| Box::new(sink) as Box<dyn OverwriteSink>));
        })
    }
}

pub(crate) fn to_slice(bytes: &[u8]) -> ws_slice {
    ws_slice { data: bytes.as_ptr(), size_bytes: bytes.len() }
}

pub(crate) fn to_packet(packet: &Packet<'_>, slices: &[ws_slice]) -> ws_packet {
    ws_packet {
        slices: slices.as_ptr(),
        num_slices: slices.len(),
        producer_id: packet.producer_id.0 as u16,
        writer_id: packet.writer_id.0,
        identity: ws_identity {
            uid: packet.identity.uid,
            pid: packet.identity.pid,
            machine_id: packet.identity.machine_id,
        },
        loss_reasons: packet.loss.0,
    }
}

/// A C program's overwrite function.
#[derive(Clone, Copy)]
struct Sink {
    function: unsafe extern "C" fn(*mut c_void, *const ws_packet) -> bool,
    user: *mut c_void,
}

// SAFETY: the function is only called inside calls of the buffer, which are made by one thread at a
// time; what `user` points to is the caller's, who moves a buffer between threads only when that
// may move too (see `crate`).
unsafe impl Send for Sink {}

impl OverwriteSink for Sink {
    fn handle_overwritten(&mut self, packet: &Packet<'_>) -> bool {
        let slices: Vec<ws_slice> = packet.slices().iter().map(|slice| to_slice(slice)).collect();
        let packet = to_packet(packet, &slices);
        // SAFETY: the promise that came with `ws_buffer_set_overwrite_sink`.
        unsafe { (self.function)(self.user, &packet) }
    }
}
