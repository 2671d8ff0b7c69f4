#!/usr/bin/env bash
# The oldest versions of its dependencies that Cargo.toml allows will do: everything compiles with them.
# (Theirs of theirs are the newest, since what other crates promise of theirs is not ours to keep.)
set -euo pipefail
cd "$(dirname "$0")/.."

cache="${XDG_CACHE_HOME:-$HOME/.cache}/polder-ci"
# A copy, since another Cargo.lock would have the usual build start anew.
work="$cache/minimal"
rm -rf "$work"
mkdir -p "$work"
cp -R Cargo.toml README.md docs src tests examples benches "$work"
rm -rf "$work/benches/compare"
cd "$work"
export CARGO_TARGET_DIR="$cache/minimal-target"

# Only the resolver's option is not stable; what compiles is the toolchain that is there.
RUSTC_BOOTSTRAP=1 cargo update -Z direct-minimal-versions
cargo tree --depth 1 --edges normal,build --all-features --prefix none
cargo check --all-features --all-targets
cargo check --no-default-features
