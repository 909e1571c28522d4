//! What the opaque copy costs compared with the ordinary one, which the compiler may inline.
//!
//! `cargo bench -p watershed-smb` prints nanoseconds for one copy, both in the cache; as a test it
//! checks the copies.

use std::hint::black_box;
use std::time::Instant;

use watershed_smb::copy_untrusted;

const SIZES: [usize; 9] = [4, 16, 32, 64, 256, 1024, 4080, 16384, 32760];

/// The fastest of several laps, in nanoseconds for one call.
fn fastest_ns(laps: u32, calls: u32, mut call: impl FnMut()) -> f64 {
    let lap = |_| {
        let start = Instant::now();
        (0..calls).for_each(|_| call());
        start.elapsed().as_nanos() as f64 / f64::from(calls)
    };
    (0..laps).map(lap).fold(f64::INFINITY, f64::min)
}

fn main() {
    let measure = std::env::args().any(|arg| arg == "--bench");
    let (laps, budget_bytes) = if measure { (15, 64 << 20) } else { (1, 1 << 16) };
    println!("{:>8} {:>10} {:>10} {:>7}", "bytes", "opaque ns", "plain ns", "ratio");
    for size in SIZES {
        let src: Vec<u8> = (0..size).map(|i| (i * 7) as u8).collect();
        let mut dst = vec![0; size];
        let calls = u32::try_from((budget_bytes / (size + 64)).max(1)).unwrap();
        let opaque = fastest_ns(laps, calls, || {
            let (from, to) = (black_box(src.as_ptr()), black_box(dst.as_mut_ptr()));
            // SAFETY: two vectors of `size` bytes each.
            unsafe { copy_untrusted(from, to, black_box(size)) }
        });
        assert_eq!(src, dst);
        dst.fill(0);
        let plain = fastest_ns(laps, calls, || {
            let (from, to) = (black_box(src.as_ptr()), black_box(dst.as_mut_ptr()));
            // SAFETY: two vectors of `size` bytes each.
            unsafe { std::ptr::copy_nonoverlapping(from, to, black_box(size)) }
        });
        assert_eq!(src, dst);
        println!("{size:>8} {opaque:>10.2} {plain:>10.2} {:>7.2}", opaque / plain);
    }
}
