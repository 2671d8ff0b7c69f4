#!/usr/bin/env bash
# The runs of worlds that are written down, on this platform: tests/sim/platforms.rs and determinism.rs.
#
#     ci/fingerprints.sh
#
# Where ci/features.sh runs, it runs these too; the BSDs have this script alone.
set -euo pipefail
cd "$(dirname "$0")/.."

for tests in platforms:: determinism::; do
    # A filter that matches nothing passes too.
    ran=$(cargo test --features sim --test sim -- "$tests" | tee -a /dev/stderr | awk '/^test result: ok/ { n += $4 } END { print n + 0 }')
    if [ "$ran" = 0 ]; then
        echo "$0: no test of $tests has run" >&2
        exit 1
    fi
done
