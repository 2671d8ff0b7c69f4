//! The edges of the program: the places at which the compiler has put a counter (`-C
//! instrument-coverage`), as far as they are told apart by one.
//!
//! A build with `--cfg polder_edges` has them, others have none. LLVM's runtime, which is linked to
//! such a program, knows where they are. They belong to the whole process and only grow: those of a
//! run are what is added while it lasts, if nothing else runs. They are never written here, so the
//! counts of a coverage report stay right.

/// Returns how often each edge was passed since the process began.
#[cfg(polder_edges)]
pub(crate) fn counts() -> impl ExactSizeIterator<Item = u64> {
    // compiler-rt/lib/profile/InstrProfiling.h
    unsafe extern "C" {
        safe fn __llvm_profile_begin_counters() -> *const u64;
        safe fn __llvm_profile_end_counters() -> *const u64;
    }
    let (begin, end) = (
        __llvm_profile_begin_counters(),
        __llvm_profile_end_counters(),
    );
    let count = (end.addr() - begin.addr()) / size_of::<u64>();
    // SAFETY: between the addresses of __llvm_profile_begin_counters and …_end_counters are
    // aligned numbers of 64 bits, until the process ends. They are no allocation of Rust's. Another
    // thread may be counting, by plain instructions: a volatile read returns the old number or the
    // new one.
    (0..count).map(move |edge| unsafe { begin.add(edge).read_volatile() })
}

#[cfg(not(polder_edges))]
pub(crate) fn counts() -> impl ExactSizeIterator<Item = u64> {
    std::iter::empty()
}
