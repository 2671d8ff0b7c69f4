#!/usr/bin/env bash
# Whole programs under Miri, which finds what no test sees: undefined behaviour, data races, and wakes that
# rest on more than the memory model promises (it reports those as a deadlock). tests/miri.rs, and the unit
# tests of what the programs stand on, under several schedules, with both models of aliasing:
#
#     ci/miri.sh [--short | SEEDS]
#
# SEEDS is how many schedules of each (2). --short: one schedule of the programs, with the first of the models, and the
# unit tests with the second. It wants rustup's nightly toolchain with Miri, and gets it where it can.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/run_tests.sh

short=0 seeds="${1:-2}"
if [ "$seeds" = --short ]; then
    short=1 seeds=1
fi

if ! command -v rustup >/dev/null; then
    . ci/not_run.sh
    not_run "Miri comes with rustup's nightly toolchain, and there is no rustup here"
    exit 0
fi

# Where it cannot be reached, rustup takes long to say so. (macOS has no `timeout`.)
briefly() {
    if command -v timeout >/dev/null; then timeout 300 "$@"; else "$@"; fi
}

has_miri() {
    local sysroot
    sysroot=$(rustup run nightly rustc --print sysroot 2>/dev/null) &&
        [ -e "$sysroot/lib/rustlib/src/rust/library" ] &&
        rustup run nightly cargo miri --version 2>/dev/null
}

has_miri || {
    if rustup run nightly rustc -V 2>/dev/null; then
        briefly rustup component add miri rust-src --toolchain nightly
    else
        briefly rustup toolchain install nightly --profile minimal --component miri,rust-src
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
common="-Zmiri-disable-isolation"
miri=(rustup run nightly cargo miri test --no-default-features --features fs)

# Bounded: a program that goes on for ever, without a deadlock, would not end by itself.
bounded() {
    local limit=$1
    shift
    if command -v timeout >/dev/null; then timeout "$limit" "$@"; else "$@"; fi
}

MIRIFLAGS="$common" "${miri[@]}" --lib --test miri --no-run
# What is pure computation runs under one schedule: it has no others.
unit_tests() {
    MIRIFLAGS="$common$1" run_tests bounded 900 "${miri[@]}" --lib -- reactor:: scheduler::
}
programs() {
    MIRIFLAGS="$common$1 -Zmiri-many-seeds=0..$seeds" run_tests bounded $((300 + 300 * seeds)) "${miri[@]}" --test miri
}
stacked='' tree=' -Zmiri-tree-borrows'
if [ "$short" = 1 ]; then
    # Beside each other, since Miri uses one core.
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    unit_tests "$tree" >"$log" 2>&1 &
    programs "$stacked"
    status=0
    wait $! || status=$?
    cat "$log"
    exit $status
fi
for aliasing in "$stacked" "$tree"; do
    unit_tests "$aliasing"
    programs "$aliasing"
done
