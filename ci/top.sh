#!/usr/bin/env bash
# polder-top: lints, and its tests, which look at a program.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo clippy -p polder-top --all-targets -- -D warnings
cargo test -p polder-top
