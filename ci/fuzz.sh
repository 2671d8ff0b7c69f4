#!/usr/bin/env bash
# Random programs against a model, on every backend: see tests/fuzz. An argument is how many steps each
# of the tests takes; 300,000 take about a minute on two cores. A failure tells the seed that it can be run
# again with.
set -euo pipefail
cd "$(dirname "$0")/.."

export POLDER_FUZZ_STEPS="${1:-300000}"
cargo test --release --all-features --test fuzz --no-run
# Each case has a deadline of its own; this is for what would get round it.
timeout $((120 + POLDER_FUZZ_STEPS / 500)) cargo test --release --all-features --test fuzz -- --nocapture
