#!/usr/bin/env bash
# polder-top, the package in top/: formatting, lints, and its tests, which look at a program.
set -euo pipefail
cd "$(dirname "$0")/.."

# Its build is reused, and a checkout of the repository does not end it.
export CARGO_TARGET_DIR="${XDG_CACHE_HOME:-$HOME/.cache}/polder-ci/top-target"

cd top
cargo fmt --check
cargo clippy --all-targets -- -D warnings
cargo test
