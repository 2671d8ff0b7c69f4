#!/usr/bin/env bash
# The suite once under AddressSanitizer, which sees memory that is used after it was given back, or beyond its
# end. Arguments choose tests: `ci/asan.sh workers::`.
#
# It wants rustup's nightly toolchain, whose standard library need not be built anew for this.
set -euo pipefail
cd "$(dirname "$0")/.."

cache="${XDG_CACHE_HOME:-$HOME/.cache}/polder-ci"
target=x86_64-unknown-linux-gnu

rustup run nightly rustc -V || {
    echo "$0: rustup's nightly toolchain is missing" >&2
    exit 1
}

# Flags of one's own mean a build of one's own. Where a target is named, what runs while building (build
# scripts, macros) goes without the sanitizer.
export CARGO_TARGET_DIR="$cache/asan" RUSTFLAGS="-Zsanitizer=address" RUST_BACKTRACE=0
# No leaks: threads that outlive a test (the background runtime, the pool's) keep memory until the process ends.
export ASAN_OPTIONS="detect_leaks=0 ${ASAN_OPTIONS:-}"

# Left out: `soak`, which ci/soak.sh repeats anyway; `budgets`, which counts allocations and system calls, of which
# the sanitizer makes its own; `no_threads`, which limits the memory that the sanitizer reserves; and folders
# other than the suite's, which are programs.
tests=(--lib)
for file in tests/*.rs tests/conformance/main.rs; do
    name=${file#tests/}
    name=${name%.rs}
    name=${name%/main}
    case $name in
        budgets | soak | no_threads) ;;
        *) tests+=(--test "$name") ;;
    esac
done

test=(rustup run nightly cargo test --all-features --target "$target" "${tests[@]}")
"${test[@]}" --no-run
# Nor what measures resident memory: the sanitizer keeps for a while what is freed.
timeout 1800 "${test[@]}" --no-fail-fast -- \
    --skip leave_no_memory "$@"
