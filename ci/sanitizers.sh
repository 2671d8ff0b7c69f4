#!/usr/bin/env bash
# The library under tools that see what no test sees:
#
#     ci/sanitizers.sh miri [--short | SEEDS]
#     ci/sanitizers.sh tsan [--queue | TEST…]
#     ci/sanitizers.sh asan [TEST…]
#
# `miri`: whole programs (tests/miri.rs), and the unit tests of what they stand on, under Miri, which finds undefined
# behaviour, data races, and wakes that rest on more than the memory model promises (it reports those as a deadlock);
# under several schedules, with both models of aliasing. SEEDS is how many schedules of each (2). --short: one schedule
# of the programs, with the first of the models, and the unit tests with the second. It wants rustup's nightly toolchain
# with Miri, and gets it where it can.
#
# `tsan`: what several threads do together, under ThreadSanitizer: the queue that workers steal from, alone (--queue:
# only that); the rules about workers, tasks and events, or the TESTs of the suite; and the soak in small. It wants a
# standard library that the sanitizer has seen too, built from source: with rustup's nightly, if it is there with
# `rust-src`, or else with the compiler, cargo and source that Debian packages, and the sanitizer's library and the
# linker of rustup's stable toolchain.
#
# `asan`: the suite, or the TESTs of it, once under AddressSanitizer, which sees memory that is used after it was given
# back, or beyond its end. It wants rustup's nightly toolchain, whose standard library need not be built anew for this.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh

has_miri() {
    local sysroot
    sysroot=$(rustup run nightly rustc --print sysroot 2>/dev/null) &&
        [ -e "$sysroot/lib/rustlib/src/rust/library" ] &&
        rustup run nightly cargo miri --version 2>/dev/null
}

miri() {
    local short=0 seeds="${1:-2}"
    if [ "$seeds" = --short ]; then
        short=1 seeds=1
    fi

    if ! command -v rustup >/dev/null; then
        not_run "Miri comes with rustup's nightly toolchain, and there is no rustup here"
        return
    fi

    # Where it cannot be reached, rustup takes long to say so.
    has_miri || {
        may_install "rustup's nightly toolchain with miri and rust-src" || exit 1
        if rustup run nightly rustc -V 2>/dev/null; then
            within 300 rustup component add miri rust-src --toolchain nightly
        else
            within 300 rustup toolchain install nightly --profile minimal --component miri,rust-src
        fi && has_miri
    } || {
        echo "$0: there is no nightly toolchain with miri and rust-src, and none can be had" >&2
        exit 1
    }

    # Flags of one's own mean a build of one's own; in this directory, since what Miri keeps of a build names the
    # directory that it was made in. Miri knows the C library's functions, and not the system calls that rustix
    # makes by itself otherwise.
    export CARGO_TARGET_DIR="$PWD/target/miri" RUSTFLAGS="--cfg rustix_use_libc"
    # The clock and epoll are the system's, not Miri's own.
    local common="-Zmiri-disable-isolation"
    local miri=(rustup run nightly cargo miri test --no-default-features --features fs)

    # Bounded: a program that goes on for ever, without a deadlock, would not end by itself.
    MIRIFLAGS="$common" "${miri[@]}" --lib --test miri --no-run
    # What is pure computation runs under one schedule: it has no others.
    unit_tests() {
        MIRIFLAGS="$common$1" run_tests within 900 "${miri[@]}" --lib -- reactor:: scheduler::
    }
    programs() {
        MIRIFLAGS="$common$1 -Zmiri-many-seeds=0..$seeds" run_tests within $((300 + 300 * seeds)) "${miri[@]}" --test miri
    }
    local stacked='' tree=' -Zmiri-tree-borrows' status=0 aliasing
    if [ "$short" = 1 ]; then
        # Beside each other, since Miri uses one core.
        log=$(mktemp)
        trap 'rm -f "$log"' EXIT
        unit_tests "$tree" >"$log" 2>&1 &
        programs "$stacked"
        wait $! || status=$?
        cat "$log"
        return $status
    fi
    for aliasing in "$stacked" "$tree"; do
        unit_tests "$aliasing"
        programs "$aliasing"
    done
}

with_nightly() {
    [ "${TOOLS:-}" != debian ] && command -v rustup >/dev/null || return 1
    local sysroot
    sysroot=$(rustup run nightly rustc --print sysroot 2>/dev/null) &&
        [ -e "$sysroot/lib/rustlib/src/rust/library" ]
}

tsan() {
    local target=x86_64-unknown-linux-gnu
    export CARGO_TARGET_DIR="$cache/tsan"
    local flags="-Zsanitizer=thread --cfg tsan"

    local cargo stable library test
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
    [ "${1:-}" != --queue ] || return 0
    local rules=("$@")
    [ ${#rules[@]} != 0 ] || rules=(workers:: tasks:: events::)
    "${test[@]}" --test conformance --test soak --no-run
    run_tests timeout -k 10 600 "${test[@]}" --test conformance -- "${rules[@]}"
    run_tests timeout -k 10 600 "${test[@]}" --test soak -- --nocapture
}

asan() {
    local target=x86_64-unknown-linux-gnu

    rustup run nightly rustc -V || {
        echo "$0: rustup's nightly toolchain is missing" >&2
        exit 1
    }

    # Flags of one's own mean a build of one's own. Where a target is named, what runs while building (build
    # scripts, macros) goes without the sanitizer.
    export CARGO_TARGET_DIR="$cache/asan" RUSTFLAGS="-Zsanitizer=address" RUST_BACKTRACE=0
    # No leaks: threads that outlive a test (the background runtime, the pool's) keep memory until the process ends.
    export ASAN_OPTIONS="detect_leaks=0 ${ASAN_OPTIONS:-}"

    # Left out: `soak`, which ci/stress.sh repeats anyway; `budgets`, which counts allocations and system calls, of
    # which the sanitizer makes its own; `no_threads`, which limits the memory that the sanitizer reserves; and folders
    # other than the suite's, which are programs.
    local file name tests=(--lib)
    for file in tests/*.rs tests/conformance/main.rs; do
        name=${file#tests/}
        name=${name%.rs}
        name=${name%/main}
        case $name in
            budgets | soak | no_threads) ;;
            *) tests+=(--test "$name") ;;
        esac
    done

    local test=(rustup run nightly cargo test --all-features --target "$target" "${tests[@]}")
    "${test[@]}" --no-run
    # Nor what measures resident memory: the sanitizer keeps for a while what is freed.
    timeout 1800 "${test[@]}" --no-fail-fast -- \
        --skip leave_no_memory "$@"
}

case "${1:-}" in
    miri | tsan | asan) "$@" ;;
    *)
        echo "usage: $0 miri | tsan | asan [ARGUMENT…]" >&2
        exit 2
        ;;
esac
