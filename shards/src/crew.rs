//! Work in parts, done by the calling thread and, where there are any, by `rayon`'s.

#[cfg(feature = "parallel")]
use std::sync::{Mutex, PoisonError};

#[cfg(feature = "parallel")]
use crate::apart::Apart;

/// Threads that may work at once, the calling one included.
pub(crate) fn num_threads() -> usize {
    #[cfg(feature = "parallel")]
    return rayon::current_num_threads();
    #[cfg(not(feature = "parallel"))]
    return 1;
}

/// Does `work` with each of `parts`: each thread takes the next when it has done one, so that faster ones do more. A part takes tens of
/// microseconds or more.
pub(crate) fn share<P>(parts: P, work: impl Fn(P::Item) + Sync)
where
    P: ExactSizeIterator<Item: Send> + Send,
{
    #[cfg(feature = "parallel")]
    if num_threads().min(parts.len()) > 1 {
        return share_in_parallel(parts, work);
    }
    parts.for_each(work);
}

#[cfg(feature = "parallel")]
fn share_in_parallel<P>(parts: P, work: impl Fn(P::Item) + Sync)
where
    P: ExactSizeIterator<Item: Send> + Send,
{
    let num_threads = num_threads().min(parts.len());
    let (apart, parts) = (Apart::new(num_threads), Mutex::new(parts));
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work_on = || {
        while let Some(part) = next() {
            apart.settle();
            work(part);
        }
    };
    rayon::in_place_scope(|scope| {
        (1..num_threads).for_each(|_| scope.spawn(|_| work_on()));
        work_on();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{AtomicUsize, Ordering};

    #[test]
    fn every_part_is_done_once() {
        for num_parts in [0, 1, 2, 3, 100] {
            let mut parts = vec![0; num_parts];
            let calls = AtomicUsize::new(0);
            share(parts.iter_mut(), |part: &mut i32| {
                *part += 1;
                // Relaxed: the threads are joined before it is read.
                calls.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(parts, vec![1; num_parts]);
            assert_eq!(calls.into_inner(), num_parts);
        }
    }

    #[test]
    fn a_panic_in_a_part_comes_out_when_all_have_stopped() {
        let done = AtomicUsize::new(0);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            share(0..64, |part| match part {
                7 => panic!("of a part"),
                _ => {
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }));
        assert!(result.is_err());
        assert!(done.into_inner() < 64);
    }
}
