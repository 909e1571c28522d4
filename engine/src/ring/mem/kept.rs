//! Small regions that were given up, for those that are made next.
//!
//! In the life of a small buffer, or of a clone of one, nearly all time is the system's, which
//! makes and clears its pages. So the process keeps the regions that it gave up last: their pages
//! are ready, and a cache may still have them.

use std::sync::Mutex;

use super::Mapped;

/// Larger regions go back to the system: to clear them here would take as long.
pub(super) const REGION_BYTES_MAX: usize = 1 << 20;
/// So many are kept.
const REGIONS_MAX: usize = 4;

/// The process's.
pub(super) static KEPT: Kept = Kept(Mutex::new(Vec::new()));

/// Regions of plain pages whose bytes are zeros, oldest first. Nobody waits for them: who does not
/// get the lock at once goes on without.
pub(super) struct Kept(Mutex<Vec<Mapped>>);

impl Kept {
    /// The newest region of this size.
    pub(super) fn take(&self, size_bytes: usize) -> Option<Mapped> {
        let mut kept = self.0.try_lock().ok()?;
        let index = kept.iter().rposition(|one| one.size_bytes == size_bytes)?;
        Some(kept.remove(index))
    }

    /// Keeps a region, in place of the oldest one if there are many.
    pub(super) fn keep(&self, region: Mapped) {
        let Ok(mut kept) = self.0.try_lock() else { return };
        kept.push(region);
        let unwanted = (kept.len() > REGIONS_MAX).then(|| kept.remove(0));
        // Before the system takes that one back, which needs its time.
        drop(kept);
        drop(unwanted);
    }
}

#[cfg(test)]
mod tests {
    use std::mem::ManuallyDrop;

    use super::super::{Region, page_size_bytes};
    use super::*;
    use crate::config::HugePages;

    /// A region of so many pages, and where it is.
    fn mapped(pages: usize) -> (Mapped, *mut u8) {
        let size = page_size_bytes();
        let region = Region::map_with_page_size(pages * size, HugePages::No, size).unwrap();
        let mut region = ManuallyDrop::new(region);
        // SAFETY: the region is neither used nor dropped any more.
        (unsafe { ManuallyDrop::take(&mut region.0) }, region.base())
    }

    /// Where the region is that is taken.
    fn take(kept: &Kept, pages: usize) -> Option<*mut u8> {
        kept.take(pages * page_size_bytes()).map(|mapped| Region::of(mapped).base())
    }

    #[test]
    fn the_newest_of_a_size_comes_first() {
        let kept = Kept(Mutex::default());
        let at = [1, 2, 1].map(mapped).map(|(region, at)| {
            kept.keep(region);
            at
        });
        assert_eq!(
            [1, 1, 1, 2].map(|pages| take(&kept, pages)),
            [Some(at[2]), Some(at[0]), None, Some(at[1])]
        );
    }

    #[test]
    fn no_more_than_a_few_are_kept() {
        let kept = Kept(Mutex::default());
        let at: Vec<*mut u8> = (0..=REGIONS_MAX)
            .map(|_| {
                let (region, at) = mapped(1);
                kept.keep(region);
                at
            })
            .collect();
        let taken: Vec<*mut u8> = std::iter::from_fn(|| take(&kept, 1)).collect();
        assert!(taken.iter().eq(at[1..].iter().rev()), "all but the oldest");
    }

    /// While another thread has the lock a region is made, and unmapped, as if none were kept.
    #[test]
    fn nobody_waits_for_what_is_kept() {
        let kept = Kept(Mutex::default());
        let (first, at) = mapped(1);
        kept.keep(first);
        let locked = kept.0.lock().unwrap();
        assert!(kept.take(page_size_bytes()).is_none());
        kept.keep(mapped(1).0);
        drop(locked);
        assert_eq!([(); 2].map(|()| take(&kept, 1)), [Some(at), None]);
    }
}
