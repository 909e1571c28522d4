//! Reading and writing at the same time: while one block is written, the next one is read.
//!
//! ```text
//!   this thread    | read 1 | read 2  | read 3  | ...
//!   a second one            | write 1 | write 2 | write 3 ...
//!                     <---- empty blocks come back ----
//! ```

use std::sync::mpsc;
use std::thread;

/// Blocks between the two threads. Both have one in hand besides.
const WAITING_BLOCKS: usize = 2;

/// Reads block after block until there is nothing more, and writes them in order. `read` fills a block and says whether there is
/// more; `write` says whether it worked: after a failure nothing more is read or written. What fits one block is written
/// by this thread, and so is everything if the system has no second one.
pub(super) fn drain(
    block: &mut Vec<u8>,
    mut read: impl FnMut(&mut Vec<u8>) -> bool,
    mut write: impl FnMut(&[u8]) -> bool + Send,
) {
    let mut has_more = read(block);
    if has_more && read_beside(block, &mut read, &mut write).is_ok() {
        return;
    }
    while write(block) && has_more {
        has_more = read(block);
    }
}

/// An error means that nothing was done: there is no thread.
fn read_beside(
    first: &mut Vec<u8>,
    read: &mut impl FnMut(&mut Vec<u8>) -> bool,
    write: &mut (impl FnMut(&[u8]) -> bool + Send),
) -> std::io::Result<()> {
    let (full, to_write) = mpsc::sync_channel::<Vec<u8>>(WAITING_BLOCKS);
    let (empty, to_fill) = mpsc::channel::<Vec<u8>>();
    thread::scope(|scope| {
        let writer = thread::Builder::new().name("trace-writer".to_owned());
        writer.spawn_scoped(scope, move || {
            for block in to_write {
                // Dropping the channel tells the reader to end.
                if !write(&block) {
                    return;
                }
                // Nobody wants it when everything has been read.
                let _ = empty.send(block);
            }
        })?;
        let (mut block, mut has_more) = (std::mem::take(first), true);
        while full.send(block).is_ok() && has_more {
            block = to_fill.try_recv().unwrap_or_default();
            has_more = read(&mut block);
        }
        // The writer ends when it has written what waits.
        drop(full);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks 1, 2, ... up to the last one.
    fn reader(last: usize) -> impl FnMut(&mut Vec<u8>) -> bool {
        let mut next = 0;
        move |block| {
            next += 1;
            assert!(next <= last, "read after the end");
            block.clear();
            block.extend(next.to_le_bytes());
            next < last
        }
    }

    fn number(block: &[u8]) -> usize {
        usize::from_le_bytes(block.try_into().unwrap())
    }

    #[test]
    fn blocks_are_written_in_order_and_once() {
        for last in [1, 2, 3, 4, 5, 1000] {
            let mut written = Vec::new();
            drain(&mut Vec::new(), reader(last), |block| {
                written.push(number(block));
                true
            });
            assert_eq!(written, (1..=last).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_failed_write_is_the_last_one_and_soon_nothing_is_read() {
        for fails_at in [1, 2, 7] {
            let (mut written, mut num_read) = (0, 0);
            let mut blocks = reader(usize::MAX);
            let read = |block: &mut Vec<u8>| {
                num_read += 1;
                blocks(block)
            };
            drain(&mut Vec::new(), read, |block| {
                written += 1;
                assert_eq!(number(block), written);
                written < fails_at
            });
            assert_eq!(written, fails_at);
            assert!(num_read <= fails_at + WAITING_BLOCKS + 2, "{num_read} blocks were read");
        }
    }

    /// The writer waits for block 2 to be read before it is done with block 1: in turns that would never happen.
    #[test]
    fn the_next_block_is_read_while_one_is_written() {
        let (told, second_was_read) = mpsc::channel();
        let mut blocks = reader(3);
        let read = |block: &mut Vec<u8>| {
            let has_more = blocks(block);
            if number(block) == 2 {
                told.send(()).unwrap();
            }
            has_more
        };
        drain(&mut Vec::new(), read, move |block| {
            if number(block) == 1 {
                let waited = second_was_read.recv_timeout(std::time::Duration::from_secs(60));
                waited.expect("block 2 is read while block 1 is written");
            }
            true
        });
    }
}
