#!/usr/bin/env bash
# polder-top: lints, and its tests, which look at a program.
set -euo pipefail
cd "$(dirname "$0")/.."

# Its build is reused, and a checkout of the repository does not end it.
export CARGO_TARGET_DIR="${XDG_CACHE_HOME:-$HOME/.cache}/polder-ci/top-target"

cargo clippy -p polder-top --all-targets -- -D warnings
cargo test -p polder-top
