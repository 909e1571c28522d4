//! Huge pages made ready before the cursor comes to them, on a thread of their own.
//!
//! ```text
//!   first lap of a ring       written                cursor       goal            never touched
//!   | huge page | huge page | huge page | huge p|.......... | huge page | ............ |
//!                                               ^ here the    ^ made ready meanwhile
//!                                                 next are asked for
//! ```
//!
//! Making a huge page ready, which is mostly clearing it, takes about as long as filling it with chunks. Without the thread the writer
//! stands still at the beginning of each; with it the two go on at once, and memory is used a few pages earlier than it is written. The
//! thread sleeps while nothing is asked for and ends with the first lap. Pages are touched by advice only, which changes no byte: it
//! may be given while the writer is there already.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};

use super::{Region, huge};
use crate::config::HugePages;

/// From this size on: smaller buffers are full before the thread has saved more than it takes.
const WORTH_IT_BYTES: usize = 16 * huge::SIZE_BYTES;

/// How far into a huge page the cursor goes before the next are asked for. The first time it is the sign that this is not one of the
/// many buffers that stay nearly empty.
const STOP_BYTES: usize = huge::SIZE_BYTES / 2;

/// How far ahead of the cursor pages are asked for; to the end of the page.
const AHEAD_BYTES: usize = 2 * huge::SIZE_BYTES;

/// The goal that ends the thread: no offset in a buffer.
const END: usize = usize::MAX;

/// The thread that makes pages ready, and the offset up to which it shall.
///
/// Nobody waits for its end, which comes within a page: it keeps the region by a count of its own. (A child process that was forked
/// meanwhile has a buffer but no thread, and would wait for ever.)
pub(crate) struct Ahead {
    goal: Arc<AtomicUsize>,
    thread: Thread,
}

impl Ahead {
    /// Where the first lap through `region` stops for the first time to ask for pages: at its end, if that is not worth it.
    pub(crate) fn first_stop(region: &Region) -> usize {
        let is_worth_it = region.granted() != HugePages::No && region.size_bytes() >= WORTH_IT_BYTES;
        if is_worth_it { STOP_BYTES } else { region.size_bytes() }
    }

    /// Starts the thread. None where it would help nobody: with one processor, or where there is no thread to be had.
    pub(crate) fn start(region: &Arc<Region>) -> Option<Ahead> {
        thread::available_parallelism().ok().filter(|processors| processors.get() > 1)?;
        let goal = Arc::new(AtomicUsize::new(0));
        let (region, told) = (region.clone(), goal.clone());
        let builder = thread::Builder::new().name("watershed-pages".into()).stack_size(128 << 10);
        let thread = builder.spawn(move || make_ready(&region, &told)).ok()?.thread().clone();
        Some(Ahead { goal, thread })
    }

    /// Asks for the pages behind `cursor`. Answers where the cursor, in a buffer of `size_bytes`, is to stop next and ask again: at the end,
    /// if there is nothing more to ask for, or nobody.
    pub(crate) fn ask(&self, cursor: usize, size_bytes: usize) -> usize {
        let goal = (cursor + AHEAD_BYTES).next_multiple_of(huge::SIZE_BYTES);
        // Relaxed, as its partner in `make_ready`: nothing but the number is handed over.
        self.goal.store(goal.min(size_bytes), Ordering::Relaxed);
        self.thread.unpark();
        let has_ended = Arc::strong_count(&self.goal) == 1;
        if goal >= size_bytes || has_ended { size_bytes } else { goal - AHEAD_BYTES + STOP_BYTES }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // Relaxed: as in `ask`.
        self.goal.store(END, Ordering::Relaxed);
        self.thread.unpark();
    }
}

/// Makes pages ready up to the goal, whenever there is a new one, until all are.
fn make_ready(region: &Region, goal: &AtomicUsize) {
    // The first one is being written.
    let mut ready = huge::SIZE_BYTES;
    while ready < region.size_bytes() {
        // Relaxed: pairs with the stores of `ask` and `drop`; the unpark behind each of them makes that the next load sees it.
        match goal.load(Ordering::Relaxed) {
            END => return,
            goal if ready < goal => {
                let next = (ready + huge::SIZE_BYTES).min(region.size_bytes());
                // Where the system knows no such advice, or has no memory for it, the writer finds its pages one by one.
                if !region.populate(ready..next) {
                    return;
                }
                ready = next;
            }
            _ => thread::park(),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    const PAGE: usize = huge::SIZE_BYTES;

    /// Whether the page at `offset` has memory behind it.
    fn is_ready(region: &Region, offset: usize) -> bool {
        let mut resident = 0u8;
        // SAFETY: one system page of the region, for which there is one byte.
        let answer = unsafe {
            libc::mincore(region.base().add(offset).cast(), super::super::page_size_bytes(), &mut resident)
        };
        assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
        resident & 1 != 0
    }

    /// Waits until the page at `offset` is ready.
    fn wait_for(region: &Region, offset: usize) {
        let patience = Instant::now() + Duration::from_secs(20);
        while !is_ready(region, offset) {
            assert!(Instant::now() < patience, "the thread did nothing");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn pages_are_made_ready_up_to_the_goal_and_no_further() {
        let [tried, region] =
            [PAGE, WORTH_IT_BYTES].map(|size| Region::map(size, HugePages::Advise).expect("memory"));
        // A kernel before 5.14 does not know the advice, an emulator may take it and do nothing.
        if !tried.populate(0..PAGE) || !is_ready(&tried, PAGE / 2) {
            return;
        }
        let region = Arc::new(region);
        // None with one processor: then there is nothing to see.
        let Some(ahead) = Ahead::start(&region) else { return };
        assert_eq!(ahead.ask(PAGE / 2, WORTH_IT_BYTES), PAGE + PAGE / 2);
        wait_for(&region, 2 * PAGE);
        thread::sleep(Duration::from_millis(20));
        assert!(!is_ready(&region, 3 * PAGE), "further than the goal");
        assert!(!is_ready(&region, 0), "the page that is being written");
        assert_eq!(ahead.ask(WORTH_IT_BYTES - PAGE, WORTH_IT_BYTES), WORTH_IT_BYTES);
        wait_for(&region, WORTH_IT_BYTES - PAGE);
    }

    #[test]
    fn the_thread_ends_with_the_buffer() {
        let region = Arc::new(Region::map(WORTH_IT_BYTES, HugePages::Advise).expect("memory"));
        let Some(ahead) = Ahead::start(&region) else { return };
        drop(ahead);
        let patience = Instant::now() + Duration::from_secs(20);
        while Arc::strong_count(&region) > 1 {
            assert!(Instant::now() < patience, "it keeps the region");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn small_buffers_and_plain_pages_need_no_thread() {
        for (size_bytes, pages) in
            [(WORTH_IT_BYTES - 4096, HugePages::Advise), (WORTH_IT_BYTES, HugePages::No)]
        {
            let region = Region::map(size_bytes, pages).expect("memory");
            assert_eq!(Ahead::first_stop(&region), size_bytes);
        }
    }
}
