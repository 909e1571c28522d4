//! A copy that leaves nothing in the writing core's cache: of bytes that another core will read once, and this one not.
//!
//! ```text
//!   from        |..........................................|
//!   to    ...|.....|  line  |  line  | ... |  line  |....|          whole lines of the target go to memory past the cache,
//!            head, in the cache                      tail, too      where nobody has to be asked for them first
//! ```
//!
//! A line that was written in the ordinary way has to be taken from the core that read it last, and is then taken from this one: where the two have no
//! cache in common that takes longer than memory does.

/// Appends `from`. What other threads see of it is ordered as if it had been written in the ordinary way.
pub fn append(to: &mut Vec<u8>, from: &[u8]) {
    #[cfg(all(feature = "intrinsics", target_arch = "x86_64", not(miri)))]
    if from.len() >= LEAST_BYTES {
        to.reserve(from.len());
        // SAFETY: room was made, in memory that nothing else refers to, and every x86-64 has what is used. All bytes are written before
        // they count.
        unsafe {
            copy_lines(from, to.as_mut_ptr().add(to.len()));
            to.set_len(to.len() + from.len());
        }
        return;
    }
    to.extend_from_slice(from);
}

/// Shorter ones hold too few whole lines.
#[cfg(all(feature = "intrinsics", target_arch = "x86_64", not(miri)))]
const LEAST_BYTES: usize = 256;

/// # Safety
/// `to` is writable for as many bytes as `from` has, and they do not overlap.
#[cfg(all(feature = "intrinsics", target_arch = "x86_64", not(miri)))]
unsafe fn copy_lines(from: &[u8], to: *mut u8) {
    use crate::prefetch::LINE_BYTES;
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const VECTOR_BYTES: usize = size_of::<__m128i>();

    let (head, rest) = from.split_at(to.align_offset(LINE_BYTES).min(from.len()));
    let (lines, tail) = rest.as_chunks::<LINE_BYTES>();
    // SAFETY: head, lines and tail are `from`, so each is written at its place in `to`, which is writable there. Behind the head every line of the
    // target is aligned, and so is each vector of it. Nobody reads a line before the fence, which orders them before all that follows.
    unsafe {
        to.copy_from_nonoverlapping(head.as_ptr(), head.len());
        let mut at = to.add(head.len());
        for line in lines {
            // All are loaded before the first is stored: the lines of the target are then whole when they leave.
            let vectors: [__m128i; LINE_BYTES / VECTOR_BYTES] = std::array::from_fn(|vector| {
                _mm_loadu_si128(line.as_ptr().add(vector * VECTOR_BYTES).cast())
            });
            for (vector, value) in vectors.into_iter().enumerate() {
                _mm_stream_si128(at.add(vector * VECTOR_BYTES).cast(), value);
            }
            at = at.add(LINE_BYTES);
        }
        _mm_sfence();
        at.copy_from_nonoverlapping(tail.as_ptr(), tail.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_appended_is_there_at_any_place_and_of_any_length() {
        let from: Vec<u8> = (0..5000_u32).map(|at| (at * 7 + at / 256) as u8).collect();
        for skipped in [0, 1, 13, 63, 64] {
            for before in (0..130).step_by(7) {
                for len in (0..600).chain([1000, 4095, 4096, 4097, 4900]) {
                    // Every second one has to grow.
                    let mut to = Vec::with_capacity(before + len * (len % 2));
                    to.resize(before, 0xee);
                    append(&mut to, &from[skipped..skipped + len]);
                    assert_eq!(to[..before], vec![0xee; before]);
                    assert_eq!(to[before..], from[skipped..skipped + len], "{len} bytes behind {before}");
                }
            }
        }
    }

    #[test]
    fn who_is_told_of_it_sees_it() {
        let (sender, receiver) = std::sync::mpsc::sync_channel::<Vec<u8>>(2);
        let reader = std::thread::spawn(move || {
            for (turn, bytes) in receiver.iter().enumerate() {
                assert_eq!(bytes, vec![turn as u8; 10_000]);
            }
        });
        for turn in 0..200 {
            let mut bytes = Vec::with_capacity(10_001);
            append(&mut bytes, &[turn; 10_000]);
            sender.send(bytes).unwrap();
        }
        drop(sender);
        reader.join().unwrap();
    }
}
