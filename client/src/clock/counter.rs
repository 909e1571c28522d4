//! The processor's own counter of time: one instruction instead of a call of the C library or the
//! system.
//!
//! The only module of the crate with `unsafe`. Measured (`cargo bench -p watershed-client --bench
//! events clock`): see `docs/performance.md`.

/// The counter now. It may be read before instructions that stand in front of it have ended.
#[inline]
pub(super) fn read() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has the instruction, and it touches no memory. Where the
        // system does not let programs use it, `is_usable` is false.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: the register is read, which touches no memory, no flag and no stack. Linux lets
        // programs read it.
        unsafe {
            std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags));
        }
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        0
    }
}

/// Whether the counter runs at one speed, also while processors sleep, and is the same on all of
/// them. The system knows: it would not take its own time from one that is not.
pub(super) fn is_usable() -> bool {
    let is_linux = cfg!(any(target_os = "linux", target_os = "android"));
    if cfg!(target_arch = "aarch64") {
        // As the architecture has it.
        return is_linux;
    }
    let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    cfg!(target_arch = "x86_64") && is_linux && source.is_ok_and(|source| source.trim_end() == "tsc")
}
