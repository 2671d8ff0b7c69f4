#!/usr/bin/env bash
# What synchronises, under every interleaving that loom finds: the `loom_tests` in src/. Arguments
# are parts of their names: `ci/loom.sh parker::loom_tests` runs some of them only. (Unit tests, which
# are compiled too, do not run under loom.)
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh

# Flags of one's own mean a build of one's own.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
export RUSTFLAGS="--cfg loom"
run_tests cargo test --lib --release -- "${@:-loom_tests}"
