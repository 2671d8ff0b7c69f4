#!/usr/bin/env bash
# The oldest versions of its dependencies that Cargo.toml allows will do: everything compiles with them.
# (Theirs of theirs are the newest, since what other crates promise of theirs is not ours to keep.)
# For Windows and macOS too, where rustup has their standard libraries:
#
#     ci/minimal.sh [--short]
#
# --short: the library alone, on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/not_run.sh

cache="${XDG_CACHE_HOME:-$HOME/.cache}/polder-ci"
# A copy, since another Cargo.lock would have the usual build start anew.
work="$cache/minimal"
rm -rf "$work"
mkdir -p "$work"
cp -R Cargo.toml README.md crates docs src tests examples benches "$work"
rm -rf "$work"/{benches/{compare,simulators},crates/polder-{async-rs,hickory,hyper,quinn,tokio,top,tor,zbus}}
cd "$work"
export CARGO_TARGET_DIR="$cache/minimal-target"

# Only the resolver's option is not stable; what compiles is the toolchain that is there.
RUSTC_BOOTSTRAP=1 cargo update -Z direct-minimal-versions
cargo tree --depth 1 --edges normal,build --all-features --prefix none
if [ "${1:-}" = --short ]; then
    cargo check --all-features --lib
    cargo check -p polder-sim
    exit
fi
cargo check --all-features --all-targets
cargo check --no-default-features

installed=$(rustup target list --installed 2>/dev/null || true)
for target in x86_64-pc-windows-gnu aarch64-apple-darwin; do
    if grep -qx "$target" <<<"$installed"; then
        cargo check --all-features --all-targets --target "$target"
    else
        not_run "the oldest dependencies for $target, which rustup has not installed"
    fi
done
