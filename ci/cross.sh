#!/usr/bin/env bash
# Type-checks the library, its tests and the examples for platforms that this machine is not:
#
#     ci/cross.sh [TARGET…]
#
# See ci/targets.sh for where their standard libraries come from.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/targets.sh

targets=("$@")
if [ ${#targets[@]} = 0 ]; then
    targets=(
        aarch64-apple-darwin
        x86_64-unknown-freebsd
        x86_64-unknown-netbsd
        x86_64-unknown-openbsd
        x86_64-unknown-illumos
        x86_64-pc-windows-gnu
    )
fi

for target in "${targets[@]}"; do
    start=$SECONDS
    echo "-- $target"
    cargo_for "$target" std,test check --all-targets
    echo "-- $target: $((SECONDS - start)) s"
done
