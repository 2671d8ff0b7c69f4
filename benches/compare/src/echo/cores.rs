//! Core assignment: the generator runs on the last of the cores that this process may use, the
//! server on the first. The server gets a second one too if it has two workers and there are three
//! cores.

use std::io;

/// Returns the cores that this process may use.
pub fn allowed() -> Vec<usize> {
    // SAFETY: all zero is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is of the size given.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the number is within the set.
        .filter(|&core| unsafe { libc::CPU_ISSET(core, &set) })
        .collect()
}

/// Pins this thread, and what it starts from now on, to these cores.
pub fn pin(cores: &[usize]) {
    // SAFETY: all zero is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &core in cores {
        // SAFETY: the number was within such a set.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    // SAFETY: the set is of the size given.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
    assert_eq!(
        result,
        0,
        "cannot use {cores:?}: {}",
        io::Error::last_os_error()
    );
}
