#!/usr/bin/env bash
# Very many wakes between threads, none of which may be lost: see tests/soak.rs. An argument is how
# many; 100,000,000 of them take about five minutes, the default less than half a minute.
set -euo pipefail
cd "$(dirname "$0")/.."

export POLDER_SOAK="${1:-4000000}"
# A wake that is lost is noticed by the soak itself; this is for what would get round that.
cargo test --release --all-features --test soak --no-run
timeout $((60 + POLDER_SOAK / 20000)) cargo test --release --all-features --test soak -- --nocapture
