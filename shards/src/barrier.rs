//! A memory barrier of two unlike halves: one side, which is common, pays nothing; the other, which is rare, pays for both.
//!
//! Of two threads that each store and then load what the other has stored, one must see the other's store. That takes a full barrier between
//! store and load in both. Here one side only keeps the compiler from changing the order ([`light`]), and the other ([`heavy`]) asks the system
//! for a moment in which every running thread of the process has passed a full barrier: Linux' `membarrier`, private and expedited, which
//! interrupts the other processors. A thread that does not run passed one when it was taken off its processor.
//!
//! Under loom both halves are a read-modify-write of one place, so that of two such threads the later sees what the earlier has stored. That is
//! less than the system's barrier does, and less than a fence, which would also publish with whatever its thread stores next.

#[cfg(loom)]
pub(crate) use self::of_loom::{pass as heavy, pass as light};
#[cfg(not(loom))]
pub(crate) use self::of_the_system::{heavy, is_ready, light, prepare};

#[cfg(loom)]
mod of_loom {
    use loom::sync::atomic::{AtomicUsize, Ordering};

    loom::lazy_static! {
        static ref PASSED: AtomicUsize = AtomicUsize::new(0);
    }

    pub(crate) fn pass() {
        PASSED.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(not(loom))]
mod of_the_system {
    use std::sync::{
        Once,
        atomic::{AtomicBool, Ordering, compiler_fence},
    };
    use std::time::Duration;

    /// Whether the system has promised the heavy half. Relaxed: the promise is the kernel's, of the whole process.
    static IS_READY: AtomicBool = AtomicBool::new(false);
    static ASKED: Once = Once::new();

    /// Longer by orders of magnitude than it takes.
    const UNTIL_STORES_ARE_SEEN: Duration = Duration::from_millis(10);

    /// Asks the system for the heavy half, once for the process. Of a process that has threads the kernel waits for a grace period first, which
    /// takes milliseconds.
    pub(crate) fn prepare() {
        ASKED.call_once(|| IS_READY.store(membarrier::register(), Ordering::Relaxed));
    }

    /// Whether there is a heavy half. Where there is none, none may be needed.
    #[inline]
    pub(crate) fn is_ready() -> bool {
        IS_READY.load(Ordering::Relaxed)
    }

    /// The common half, between a store and a load.
    #[inline(always)]
    pub(crate) fn light() {
        compiler_fence(Ordering::SeqCst);
    }

    /// The rare half, between a store and a load.
    #[cold]
    #[inline(never)]
    pub(crate) fn heavy() {
        if membarrier::issue() {
            return;
        }
        // Somebody has forbidden the call after it was granted: a sandbox that was set up late. From now on no word is kept. For one that is, there
        // is nothing better than to wait: what was stored is seen when the store buffer is empty, which takes less than a microsecond, and a thread
        // that loses its processor meanwhile passes a barrier.
        IS_READY.store(false, Ordering::Relaxed);
        std::thread::sleep(UNTIL_STORES_ARE_SEEN);
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    mod membarrier {
        fn call(command: libc::c_int) -> bool {
            // SAFETY: the call takes three numbers and touches no memory of ours.
            unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
        }

        pub(super) fn register() -> bool {
            call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
        }

        pub(super) fn issue() -> bool {
            call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
        }
    }

    #[cfg(not(all(target_os = "linux", not(miri))))]
    mod membarrier {
        pub(super) fn register() -> bool {
            false
        }

        pub(super) fn issue() -> bool {
            false
        }
    }
}
