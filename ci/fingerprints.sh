#!/usr/bin/env bash
# The runs of worlds that are written down, on this platform: crates/polder-sim/tests/fingerprints.
#
#     ci/fingerprints.sh
#
# Where ci/features.sh runs, it runs these too; the BSDs have this script alone.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test -p polder-sim --test fingerprints
