//! A counter that takes half as long to read as the clock, for purposes that need only approximate
//! times.

/// A number that grows steadily, on most machines alike on all cores.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has the instruction. Where the kernel has forbidden
    // it to the process, it has forbidden the clock, too.
    let ticks = unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    let ticks = {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        (time.tv_sec as u64).wrapping_mul(1_000_000_000) + time.tv_nsec as u64
    };
    ticks
}
