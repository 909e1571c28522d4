//! Threads of a daemon's process share one heap, which grows in large steps. Without the test
//! harness, which has threads before there is a daemon.

mod support;

use std::fs;
use std::ops::Range;
use std::thread;

use watershed_daemon::Daemon;

fn main() {
    if cfg!(all(target_os = "linux", target_env = "gnu")) {
        heap_grows_in_steps();
    }
}

fn heap_grows_in_steps() {
    const PIECE_BYTES: usize = 20 << 10;
    const PIECES: usize = 100;
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::new(support::options(folder.path(), 1), |_| {}).unwrap();
    let of_another_thread = thread::spawn(|| {
        let mut heaps = Vec::with_capacity(PIECES);
        let pieces: Vec<_> = (0..PIECES)
            .map(|_| {
                let piece = Vec::<u8>::with_capacity(PIECE_BYTES);
                heaps.push(heap());
                assert!(heap().contains(&piece.as_ptr().addr()), "in the one heap");
                piece
            })
            .collect();
        heaps.dedup();
        drop(pieces);
        heaps
    });
    let heaps = of_another_thread.join().unwrap();
    assert!(heaps.len() <= 2, "2 MB take at most one step: {heaps:x?}");
    assert_eq!(heap(), *heaps.last().unwrap(), "nothing is given back");
}

/// Where it is.
fn heap() -> Range<usize> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with("[heap]")).expect("there is a heap");
    let (start, end) = line.split_whitespace().next().unwrap().split_once('-').unwrap();
    let number = |hex| usize::from_str_radix(hex, 16).unwrap();
    number(start)..number(end)
}
