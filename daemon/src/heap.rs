//! How the C library's heap grows.
//!
//! Who asks the system for more address space waits for whoever makes memory ready (`madvise`),
//! some milliseconds where that is slow. In the first lap of a ring the daemon does both all the
//! time: one thread makes pages ready, while what the others note of chunks grows. By default glibc
//! has a heap for each thread, which grows page by page. Here all threads have one, which grows in
//! steps.

/// Has the allocator of this process ask for memory in large pieces, which are touched only as they
/// are used. To be called before there are other threads: else these keep heaps of their own. Does
/// nothing with another C library.
pub(crate) fn grow_in_steps() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::grow_in_steps();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::ffi::c_int;

    /// It grows by so much. Larger memory gets a mapping of its own.
    const STEP_BYTES: c_int = 4 << 20;
    /// So much has to be free at its end before that is given back, but for a step.
    const TRIMMED_BYTES: c_int = 4 * STEP_BYTES;

    #[expect(unsafe_code, reason = "no safe function has it")]
    pub(super) fn grow_in_steps() {
        let options = [
            (libc::M_ARENA_MAX, 1),
            (libc::M_TOP_PAD, STEP_BYTES),
            (libc::M_MMAP_THRESHOLD, STEP_BYTES),
            (libc::M_TRIM_THRESHOLD, TRIMMED_BYTES),
        ];
        for (option, value) in options {
            // An option that this version lacks changes nothing.
            // SAFETY: it sets a number of the allocator, which allocations of other threads read,
            // as they read those that the allocator itself sets again when memory is freed.
            unsafe { libc::mallopt(option, value) };
        }
    }
}
