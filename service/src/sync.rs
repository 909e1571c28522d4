//! The only module of the crate that names locks and atomics of direct commits, so that loom
//! replaces them under `--cfg loom`.

#[cfg(loom)]
pub(crate) use self::modelled::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::{Arc, Mutex, MutexGuard};
use std::sync::{PoisonError, TryLockError};

/// Locks, also when a thread panicked while it held the lock: what is locked is valid between any
/// two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], where nobody has locked it.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Loom's mutex, with a word that is stored where it is locked and unlocked: loom takes no other
/// thread's turn at an unlock, so that no try-lock would ever fail but between two other accesses.
#[cfg(loom)]
mod modelled {
    use std::ops::{Deref, DerefMut};
    use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

    use loom::sync::atomic::{AtomicBool, Ordering};

    pub(crate) struct Mutex<T> {
        is_locked: AtomicBool,
        mutex: loom::sync::Mutex<T>,
    }

    pub(crate) struct MutexGuard<'a, T> {
        is_locked: &'a AtomicBool,
        guard: loom::sync::MutexGuard<'a, T>,
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self { is_locked: AtomicBool::new(false), mutex: loom::sync::Mutex::new(value) }
        }

        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            Ok(self.locked(self.mutex.lock().unwrap_or_else(PoisonError::into_inner)))
        }

        pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
            // The word orders nothing: the mutex does.
            if self.is_locked.load(Ordering::Relaxed) {
                return Err(TryLockError::WouldBlock);
            }
            match self.mutex.try_lock() {
                Ok(guard) => Ok(self.locked(guard)),
                Err(_) => Err(TryLockError::WouldBlock),
            }
        }

        fn locked<'a>(&'a self, guard: loom::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.is_locked.store(true, Ordering::Relaxed);
            MutexGuard { is_locked: &self.is_locked, guard }
        }
    }

    impl<T> Drop for MutexGuard<'_, T> {
        fn drop(&mut self) {
            self.is_locked.store(false, Ordering::Relaxed);
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.guard
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.guard
        }
    }
}
