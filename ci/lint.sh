#!/usr/bin/env bash
# Scripts that parse, formatting, lints, and documentation without a broken link.
set -euo pipefail
cd "$(dirname "$0")/.."

for script in .ci/run ci/*.sh; do
    bash -n "$script"
done

cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
cargo clippy --version >/dev/null 2>&1 || rustup component add clippy

cargo fmt --check
cargo clippy --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --all-features
