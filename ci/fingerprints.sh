#!/usr/bin/env bash
# The runs of worlds that are written down, on this platform: tests/sim/platforms.rs and determinism.rs.
#
#     ci/fingerprints.sh
#
# Where ci/features.sh runs, it runs these too; the BSDs have this script alone.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/run_tests.sh

run_tests cargo test --features sim --test sim -- platforms:: determinism::
