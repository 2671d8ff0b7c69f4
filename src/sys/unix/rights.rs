//! Privileges that the program's user lacks (set-user-ID and the like): with them, the environment
//! must not control the program.
//!
//! A program that has dropped them has equal real and effective IDs, and still holds what it opened
//! before. So the system is asked how the program was started.

#[allow(unreachable_code, reason = "its end is for the other systems")]
pub(crate) fn has_foreign_rights() -> bool {
    // Linux records it at `exec`: getauxval(3).
    #[cfg(any(target_os = "linux", target_os = "android"))]
    // SAFETY: reads a vector that the kernel has passed to the process; no preconditions.
    return unsafe { libc::getauxval(libc::AT_SECURE) != 0 };
    // issetugid(2). On most of these systems it is also true if the program has changed its IDs
    // itself, so a daemon that was root ignores the environment.
    #[cfg(any(
        target_vendor = "apple",
        target_os = "dragonfly",
        target_os = "freebsd",
        target_os = "illumos",
        target_os = "netbsd",
        target_os = "openbsd",
        target_os = "solaris",
    ))]
    return {
        // Not in the oldest version of `libc` that Cargo.toml allows.
        unsafe extern "C" {
            safe fn issetugid() -> libc::c_int;
        }
        issetugid() != 0
    };
    use rustix::process::{getegid, geteuid, getgid, getuid};
    getuid() != geteuid() || getgid() != getegid()
}

#[cfg(test)]
mod tests {
    /// Tests do not start with privileges; without the symbol, they would not link.
    #[test]
    fn ordinary_program_has_no_foreign_rights() {
        assert!(!super::has_foreign_rights());
    }
}
