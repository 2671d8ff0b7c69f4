//! Whether the program runs, or ran, with rights that its user does not have (set-user-ID and the
//! like): then it is not the environment's to command.
//!
//! Equal real and effective ids do not show the contrary: a program that has given such rights up
//! has them equal, and still holds what it opened before. So the system is asked how the program
//! was started.

/// Linux notes it at `exec`: getauxval(3).
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn has_foreign_rights() -> bool {
    // SAFETY: it reads a vector that the kernel has given to the process, and has no preconditions.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// issetugid(2). Most of these systems also say so of a program that has changed its ids itself: a
/// daemon that was root does not obey the environment there.
#[cfg(any(
    target_vendor = "apple",
    target_os = "dragonfly",
    target_os = "freebsd",
    target_os = "illumos",
    target_os = "netbsd",
    target_os = "openbsd",
    target_os = "solaris",
))]
pub(crate) fn has_foreign_rights() -> bool {
    // The oldest version of `libc` that Cargo.toml allows does not have it.
    unsafe extern "C" {
        safe fn issetugid() -> libc::c_int;
    }
    issetugid() != 0
}

/// Other systems: compares the ids, which every Unix can tell.
#[cfg(not(any(
    target_vendor = "apple",
    target_os = "android",
    target_os = "dragonfly",
    target_os = "freebsd",
    target_os = "illumos",
    target_os = "linux",
    target_os = "netbsd",
    target_os = "openbsd",
    target_os = "solaris",
)))]
pub(crate) fn has_foreign_rights() -> bool {
    // SAFETY: these have no preconditions, and always succeed.
    unsafe { libc::getuid() != libc::geteuid() || libc::getgid() != libc::getegid() }
}

#[cfg(test)]
mod tests {
    /// Tests are not started so; and if the symbol did not exist, they would not be linked.
    #[test]
    fn a_program_that_was_started_as_usual_has_no_foreign_rights() {
        assert!(!super::has_foreign_rights());
    }
}
