#!/usr/bin/env bash
# What several threads do together, under ThreadSanitizer: the queue that workers steal from, alone;
# the rules about workers, tasks and events; and the soak in small. Arguments choose others of the
# suite: `ci/tsan.sh runtime::`. `ci/tsan.sh --queue` runs the queue only.
#
# The sanitizer wants a standard library that it has seen too, built from source: with rustup's
# nightly, if it is there with `rust-src`, or else with the compiler, cargo and source that Debian
# packages, and the sanitizer's library and the linker of rustup's stable toolchain.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/targets.sh
. ci/run_tests.sh

target=x86_64-unknown-linux-gnu
export CARGO_TARGET_DIR="$cache/tsan"
flags="-Zsanitizer=thread --cfg tsan"

with_nightly() {
    [ "${TOOLS:-}" != debian ] && command -v rustup >/dev/null || return 1
    local sysroot
    sysroot=$(rustup run nightly rustc --print sysroot 2>/dev/null) &&
        [ -e "$sysroot/lib/rustlib/src/rust/library" ]
}

if with_nightly; then
    cargo=(rustup run nightly cargo)
else
    need /usr/lib/rustlib/src/rust/library rustc-web cargo-web rust-web-src
    stable=$(rustc --print sysroot)/lib/rustlib/$target
    flags="$flags -Zexternal-clangrt -Clink-arg=-fuse-ld=lld -Clink-arg=-B$stable/bin/gcc-ld"
    library="$stable/lib/librustc-stable_rt.tsan.a"
    flags="$flags -Clink-arg=-Wl,--whole-archive,$library,--no-whole-archive -Clink-arg=-lm -Clink-arg=-lc"
    export RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1
    cargo=(/usr/bin/cargo)
fi

# A report ends the process that it comes in. Threads that a failed test has left say nothing new, and
# backtraces take half a minute each.
export RUSTFLAGS="$flags" RUST_BACKTRACE=0
export TSAN_OPTIONS="halt_on_error=1 report_thread_leaks=0 ${TSAN_OPTIONS:-}"
test=("${cargo[@]}" test -Zbuild-std=std,panic_abort,test --target "$target")
"${test[@]}" --lib --no-run
run_tests timeout -k 10 600 "${test[@]}" --lib -- run_queue::
[ "${1:-}" != --queue ] || exit 0
rules=("$@")
[ ${#rules[@]} != 0 ] || rules=(workers:: tasks:: events::)
"${test[@]}" --test conformance --test soak --no-run
run_tests timeout -k 10 600 "${test[@]}" --test conformance -- "${rules[@]}"
run_tests timeout -k 10 600 "${test[@]}" --test soak -- --nocapture
