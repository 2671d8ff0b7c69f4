#!/usr/bin/env bash
# Every pair of features compiles without a warning, and what differs in the smallest and the largest build
# is tested: without any feature the loop, with all the suite with async-io's reactor and a ring among the
# backends. Takes cargo-hack from crates.io where it is missing.
#
#     ci/features.sh [--short | --all]
#
# With --short each feature is compiled alone instead of in pairs, and the tests of simulated worlds are left to ci/sim.sh.
# With --all every combination is compiled: more than three hundred, a quarter of an hour.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh

cargo clippy --all-targets --no-default-features -- -D warnings
cargo clippy --all-targets --all-features -- -D warnings
cargo test --no-default-features --lib --tests

run_tests cargo test --all-features --doc -- compat

cargo test -p polder-sim --test readme

if [ "$(uname)" = Linux ]; then
    cargo run --quiet --all-features --example embed -- --backend io-uring >/dev/null ||
        not_run "the suite on io-uring, since this kernel makes no ring"
fi
cargo test --all-features --lib
cargo test -p polder-stack
cargo test -p polder-replay --all-features
cargo test --all-features --test backtrace --test budgets --test conformance --test shutdown \
    --test one_reactor --test platform --test no_default_features --test smol --test spans
cargo test -p polder-sim --lib --test libc_interpose
[ "${1:-}" = --short ] || cargo test -p polder-sim --test fingerprints --test sim

# Last, since without the tool the script ends here.
tool cargo-hack 0.6.46

# Flags of one's own mean a build of one's own. What `tracing` adds is in a module of its own, which no
# other feature changes: alone and, above, with all of them will do, and it does not double the combinations.
export RUSTFLAGS="-D warnings" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/features"
cargo check --no-default-features --features tracing --lib
case "${1:-}" in
    --short) depth=(--depth 1) ;;
    --all) depth=() ;;
    *) depth=(--depth 2) ;;
esac
cargo hack check --feature-powerset "${depth[@]}" --exclude-features tracing --lib
