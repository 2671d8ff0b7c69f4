//! The C library's clock and randomness, answered by the program.
//!
//! [`answer_for_libc!`](crate::answer_for_libc) defines a few of the C library's functions in the
//! program that invokes it, and the linker prefers these. The standard library, and every crate
//! that calls the C library, then calls the program's functions instead. It is a macro, since a
//! library must not define them for every program that links it.
//!
//! The functions ask the [`Answers`] that were [`set`]. If there are none, or if none has an
//! answer, the kernel gives it, through the system call: it is the same as the C library's, and
//! slower only for calls that need not enter the kernel there (the clocks: 23 ns, and 750 ns by a
//! system call of a virtual machine). No lock is taken and nothing is allocated, so these functions
//! may be called wherever the C library's may. They set `errno` as `syscall(2)` does.
//!
//! ```standalone_crate
//! use std::mem::MaybeUninit;
//! use std::time::{Duration, SystemTime};
//!
//! polder_sim::answer_for_libc!();
//!
//! struct InTheYear2000;
//!
//! impl polder_sim::libc_answers::Answers for InTheYear2000 {
//!     fn time(&self, clock: polder_sim::libc_answers::Clock) -> Option<Duration> {
//!         let is_wall = clock == polder_sim::libc_answers::Clock::Wall;
//!         is_wall.then_some(Duration::from_secs(946_684_800))
//!     }
//!
//!     fn fill(&self, _: &mut [MaybeUninit<u8>]) -> bool {
//!         false // The kernel's randomness.
//!     }
//! }
//!
//! polder_sim::libc_answers::set(&InTheYear2000);
//! if cfg!(all(target_os = "linux", target_pointer_width = "64")) {
//!     let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
//!     assert_eq!(since.unwrap().as_secs(), 946_684_800);
//! }
//! ```
//!
//! **Only Linux, with pointers of 64 bits.** There the kernel's interface is stable, and the types
//! are those below. Elsewhere the macro is empty: other kernels' calls are private to their C
//! library, so only that library could answer.
//!
//! **`syscall`** is how some crates request randomness (getrandom 0.2, and so ring). It is
//! variadic, and may be used for calls that return twice on one stack (vfork), so no Rust function
//! can replace it. It consists of the few instructions that the C library has, after one check.
//! They are written for x86-64 and aarch64; on other architectures it is the C library's.

#![deny(missing_docs)]
#![warn(clippy::undocumented_unsafe_blocks)]

use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::time::Duration;

/// A clock of the C library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// `CLOCK_MONOTONIC` and those like it: `Instant::now`.
    Monotonic,
    /// `CLOCK_REALTIME` and those like it, since 1970: `SystemTime::now`.
    Wall,
}

/// What a program answers. Called wherever the C library's functions are: in signal handlers, by an
/// allocator, and while thread-locals are destroyed. So these functions neither allocate nor lock.
pub trait Answers: Sync {
    /// Returns what the clock shows on this thread. `None` asks the kernel.
    fn time(&self, clock: Clock) -> Option<Duration>;

    /// Fills the bytes, all of them, and returns true; or returns false, which asks the kernel.
    fn fill(&self, bytes: &mut [MaybeUninit<u8>]) -> bool;
}

/// Room for worlds, for recordings and for those of the program itself.
static ANSWERS: [OnceLock<&dyn Answers>; 4] = [const { OnceLock::new() }; 4];

/// Adds answers for this process, for good. Those that were added before are asked first. Only the
/// first four calls have an effect.
pub fn set(answers: &'static dyn Answers) {
    let _ = ANSWERS.iter().find(|place| place.set(answers).is_ok());
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[doc(hidden)]
pub use answer::*;

/// Makes worlds answer for the C library: one line at the root of a test's crate. Within a world
/// the seed then decides everything that a program asks the C library for: the keys of a `HashMap`,
/// `SystemTime::now`, `Instant::now`, and random numbers of crates that call `getrandom`.
///
/// ```standalone_crate
/// use std::time::{Duration, Instant, SystemTime};
///
/// polder_sim::answer_for_libc!();
///
/// polder_sim::check(0..10, |sim| async move {
///     let (start, date) = (Instant::now(), SystemTime::now());
///     sim.sleep(Duration::from_secs(3_600)).await;
/// #   if cfg!(all(target_os = "linux", target_pointer_width = "64")) {
///     assert_eq!(start.elapsed(), Duration::from_secs(3_600));
///     assert_eq!(date.elapsed().unwrap(), Duration::from_secs(3_600));
/// #   }
/// });
/// ```
///
/// It defines `getrandom`, `getentropy`, `clock_gettime`, `gettimeofday` and `time` in the program.
/// On x86-64 and aarch64 it also defines `syscall`, of which it only answers requests for
/// randomness. On threads outside a world these functions make the system call. Reading a clock is
/// slower there than with the C library, which need not enter the kernel for it. `Instant::now` in
/// a world is [`time::now`](polder::time::now), including the clock settings of the host, and the
/// wall clock begins at the year 2026. CPU time is the system's.
///
/// Anything that does not go through the C library is not answered: see `docs/SIMULATION.md`. Do
/// not call a wait of the standard library that has a time limit (`Condvar::wait_timeout`,
/// `park_timeout`) on a world's thread: its limit would be a time of the world, and it would block
/// the world.
///
/// Works only on Linux with 64-bit pointers; elsewhere the line is allowed, and has no effect. It
/// expands to `unsafe` code (`no_mangle`), so a crate that forbids `unsafe` has to allow it.
#[macro_export]
macro_rules! answer_for_libc {
    () => {
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        const _: () = {
            use ::core::ffi::{c_int, c_uint, c_void};

            // SAFETY: the C library's names, types and duties; nothing else of these names is in
            // this program, or the linker says so.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn getrandom(to: *mut c_void, len: usize, flags: c_uint) -> isize {
                // SAFETY: the caller promises what libc::getrandom asks for.
                unsafe { $crate::libc_answers::getrandom(to, len, flags) }
            }

            // SAFETY: as above.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn getentropy(to: *mut c_void, len: usize) -> c_int {
                // SAFETY: the caller promises what libc::getentropy asks for.
                unsafe { $crate::libc_answers::getentropy(to, len) }
            }

            // SAFETY: as above.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut c_void) -> c_int {
                // SAFETY: the caller promises what libc::clock_gettime asks for.
                unsafe { $crate::libc_answers::clock_gettime(clock, time) }
            }

            // SAFETY: as above.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn gettimeofday(time: *mut c_void, zone: *mut c_void) -> c_int {
                // SAFETY: the caller promises what libc::gettimeofday asks for.
                unsafe { $crate::libc_answers::gettimeofday(time, zone) }
            }

            // SAFETY: as above.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn time(to: *mut i64) -> i64 {
                // SAFETY: the caller promises what libc::time asks for.
                unsafe { $crate::libc_answers::time(to) }
            }

            // Assembly needs a separate module.
            mod syscall {
                $crate::__syscall!();
            }
        };
    };
}

/// `syscall(2)`: moves its arguments from a function's registers to those of the kernel's
/// interface. A result from -4095 to -1 is an error.
///
/// A request for randomness goes to the `getrandom` above. That function also uses `syscall` to ask
/// the kernel, and marks its calls by a fifth argument.
#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_pointer_width = "64"
))]
#[doc(hidden)]
#[macro_export]
macro_rules! __syscall {
    () => {
        ::core::arch::global_asm!(
            ".pushsection .text.syscall, \"ax\", @progbits",
            ".globl syscall",
            ".type syscall, @function",
            "syscall:",
            ".cfi_startproc",
            "endbr64",
            "cmp rdi, {number}",
            "jne 2f",
            "movabs rax, {kernel}",
            "cmp r8, rax",
            "je 2f",
            "mov rdi, rsi",
            "mov rsi, rdx",
            "mov rdx, rcx",
            "jmp getrandom",
            "2:",
            "mov rax, rdi",
            "mov rdi, rsi",
            "mov rsi, rdx",
            "mov rdx, rcx",
            "mov r10, r8",
            "mov r8, r9",
            "mov r9, qword ptr [rsp + 8]",
            "syscall",
            "cmp rax, -4095",
            "jae 3f",
            "ret",
            "3:",
            "mov rdi, rax",
            "jmp {failed}",
            ".cfi_endproc",
            ".size syscall, . - syscall",
            ".popsection",
            number = const $crate::libc_answers::GETRANDOM,
            kernel = const $crate::libc_answers::OF_THE_KERNEL,
            failed = sym $crate::libc_answers::failed,
        );
    };
}

/// As above, for aarch64.
#[cfg(all(
    target_os = "linux",
    target_arch = "aarch64",
    target_pointer_width = "64"
))]
#[doc(hidden)]
#[macro_export]
macro_rules! __syscall {
    () => {
        ::core::arch::global_asm!(
            ".pushsection .text.syscall, \"ax\", @progbits",
            ".p2align 2",
            ".globl syscall",
            ".type syscall, @function",
            "syscall:",
            ".cfi_startproc",
            "hint #34", // `bti c`: it may be called by its address.
            "cmp x0, #{number}",
            "b.ne 2f",
            "ldr x9, 4f",
            "cmp x4, x9",
            "b.eq 2f",
            "mov x0, x1",
            "mov x1, x2",
            "mov x2, x3",
            "b getrandom",
            "2:",
            "mov x8, x0",
            "mov x0, x1",
            "mov x1, x2",
            "mov x2, x3",
            "mov x3, x4",
            "mov x4, x5",
            "mov x5, x6",
            "svc #0",
            "cmn x0, #4095",
            "b.cs 3f",
            "ret",
            "3:",
            "b {failed}",
            ".p2align 3",
            "4:",
            ".xword {kernel}",
            ".cfi_endproc",
            ".size syscall, . - syscall",
            ".popsection",
            number = const $crate::libc_answers::GETRANDOM,
            kernel = const $crate::libc_answers::OF_THE_KERNEL,
            failed = sym $crate::libc_answers::failed,
        );
    };
}

/// Empty: the program uses the C library's `syscall`.
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64"
)))]
#[doc(hidden)]
#[macro_export]
macro_rules! __syscall {
    () => {};
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod answer {
    use std::ffi::{c_int, c_long, c_uint, c_void};
    use std::mem::MaybeUninit;
    use std::time::Duration;

    use super::{ANSWERS, Answers, Clock};

    /// Layout of a `struct timespec` and a `struct timeval` there: seconds, and parts of one.
    type Time = [i64; 2];

    /// Returns those that were added, in this order.
    fn all() -> impl Iterator<Item = &'static dyn Answers> {
        ANSWERS.iter().map_while(|place| place.get().copied())
    }

    fn answered(clock: Clock) -> Option<Duration> {
        all().find_map(|answers| answers.time(clock))
    }

    fn seconds(time: Duration) -> i64 {
        i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
    }

    /// The number of getrandom(2).
    pub const GETRANDOM: c_long = libc::SYS_getrandom;

    /// The fifth argument by which `syscall` recognizes a request for randomness that the kernel
    /// must answer. The kernel reads only three arguments, and no other code passes this one.
    pub const OF_THE_KERNEL: c_long = i64::from_be_bytes(*b"polder's") as c_long;

    /// Sets `errno` and returns -1, for a `result` of the kernel that is minus an error number.
    #[inline(never)]
    pub extern "C" fn failed(result: c_long) -> c_long {
        // SAFETY: libc::__errno_location is this thread's own number.
        unsafe { *libc::__errno_location() = -result as c_int };
        -1
    }

    /// # Safety
    ///
    /// As getrandom(2): `to` is null, or has room for `len` bytes.
    pub unsafe fn getrandom(to: *mut c_void, len: usize, flags: c_uint) -> isize {
        if !to.is_null() {
            let room = to.cast::<MaybeUninit<u8>>();
            // SAFETY: the caller has room for so many bytes, as libc::getrandom asks for, which
            // nobody else uses meanwhile.
            let bytes = unsafe { std::slice::from_raw_parts_mut(room, len) };
            if all().any(|answers| answers.fill(bytes)) {
                return len as isize;
            }
        }
        // SAFETY: the kernel checks its arguments, and the caller has room.
        unsafe { libc::syscall(GETRANDOM, to, len, flags, OF_THE_KERNEL) as isize }
    }

    /// # Safety
    ///
    /// As getentropy(3): `to` has room for `len` bytes.
    pub unsafe fn getentropy(to: *mut c_void, len: usize) -> c_int {
        /// The limit of getentropy(3). The kernel gives this many bytes in one call.
        const MAX_LENGTH: usize = 256;
        if len > MAX_LENGTH {
            // SAFETY: libc::__errno_location is this thread's own number.
            unsafe { *libc::__errno_location() = libc::EIO };
            return -1;
        }
        // SAFETY: the caller has room, as getrandom (of the C library, libc::getrandom) asks for.
        let got = unsafe { getrandom(to, len, 0) };
        if got == len as isize { 0 } else { -1 }
    }

    /// # Safety
    ///
    /// As clock_gettime(2): `time` is null, or has room for a `struct timespec`.
    pub unsafe fn clock_gettime(clock: c_int, time: *mut c_void) -> c_int {
        let which = match clock {
            libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE | libc::CLOCK_REALTIME_ALARM => {
                Some(Clock::Wall)
            }
            libc::CLOCK_MONOTONIC
            | libc::CLOCK_MONOTONIC_COARSE
            | libc::CLOCK_MONOTONIC_RAW
            | libc::CLOCK_BOOTTIME
            | libc::CLOCK_BOOTTIME_ALARM => Some(Clock::Monotonic),
            // CPU time, and clocks of devices.
            _ => None,
        };
        let shown = which.filter(|_| !time.is_null()).and_then(answered);
        if let Some(shown) = shown {
            // SAFETY: libc::timespec is two such numbers here, and the caller has room for them.
            unsafe { *time.cast::<Time>() = [seconds(shown), shown.subsec_nanos().into()] };
            return 0;
        }
        // SAFETY: the kernel checks its arguments, and the caller has room.
        unsafe { libc::syscall(libc::SYS_clock_gettime, c_long::from(clock), time) as c_int }
    }

    /// # Safety
    ///
    /// As gettimeofday(2): `time` and `zone` are null, or have room.
    pub unsafe fn gettimeofday(time: *mut c_void, zone: *mut c_void) -> c_int {
        if !time.is_null() {
            if let Some(shown) = answered(Clock::Wall) {
                // SAFETY: libc::timeval is two such numbers here, and the caller has room for them.
                // So it has for a timezone, which is two of C's.
                unsafe {
                    *time.cast::<Time>() = [seconds(shown), shown.subsec_micros().into()];
                    if !zone.is_null() {
                        *zone.cast::<[c_int; 2]>() = [0; 2];
                    }
                }
                return 0;
            }
        }
        // SAFETY: the kernel checks its arguments, and the caller has room.
        unsafe { libc::syscall(libc::SYS_gettimeofday, time, zone) as c_int }
    }

    /// # Safety
    ///
    /// As time(2): `to` is null, or has room for an `i64`.
    pub unsafe fn time(to: *mut i64) -> i64 {
        let mut now: Time = [0; 2];
        // SAFETY: it has room for a libc::timespec. This clock is always there.
        unsafe { clock_gettime(libc::CLOCK_REALTIME, (&raw mut now).cast()) };
        if !to.is_null() {
            // SAFETY: the caller has room for what libc::time writes.
            unsafe { *to = now[0] };
        }
        now[0]
    }
}
