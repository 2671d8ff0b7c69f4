#!/usr/bin/env bash
# The conformance suite in a storm of signals without SA_RESTART: nothing may come out differently.
# An argument is the number of signals a second for each rule (10,000); with --short before it, only the rules about
# pollers, sockets and time are run. Linux only.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/run_tests.sh

rules=()
if [ "${1:-}" = --short ]; then
    rules=(pollers:: events:: time:: streams:: udp:: unix:: connecting:: two_runtimes:: --skip thousand --skip million)
    shift
fi
export POLDER_STORM="${1:-10000}"
# Each rule has a deadline of its own; this is for what would get round it.
cargo test --all-features --test conformance --no-run
run_tests timeout -k 10 600 cargo test --all-features --test conformance -- ${rules[@]+"${rules[@]}"}
