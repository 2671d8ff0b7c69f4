#!/usr/bin/env bash
# Load in which nothing may be lost or come out differently:
#
#     ci/stress.sh soak [WAKES]
#     ci/stress.sh fuzz [STEPS]
#     ci/stress.sh storm [--short] [PER_SECOND]
#
# `soak`: very many wakes between threads (tests/soak.rs). 100,000,000 of them take about five minutes, the default
# less than half a minute.
#
# `fuzz`: random programs against a model, on every backend (tests/fuzz). STEPS is how many each of the tests takes;
# 300,000 take about a minute on two cores. A failure tells the seed that it can be run again with.
#
# `storm`: the conformance suite in a storm of signals without SA_RESTART, PER_SECOND (10,000) for each rule; with
# --short only the rules about pollers, sockets and time. Linux only.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh

soak() {
    export POLDER_SOAK="${1:-4000000}"
    # A wake that is lost is noticed by the soak itself; this is for what would get round that.
    cargo test --release --all-features --test soak --no-run
    timeout $((60 + POLDER_SOAK / 20000)) cargo test --release --all-features --test soak -- --nocapture
}

fuzz() {
    export POLDER_FUZZ_STEPS="${1:-300000}"
    cargo test --release --all-features --test fuzz --no-run
    # Each case has a deadline of its own; this is for what would get round it.
    timeout $((120 + POLDER_FUZZ_STEPS / 500)) cargo test --release --all-features --test fuzz -- --nocapture
}

storm() {
    local rules=()
    if [ "${1:-}" = --short ]; then
        rules=(pollers:: events:: time:: streams:: udp:: unix:: connecting:: two_runtimes:: --skip thousand --skip million)
        shift
    fi
    export POLDER_STORM="${1:-10000}"
    # Each rule has a deadline of its own; this is for what would get round it.
    cargo test --all-features --test conformance --no-run
    run_tests timeout -k 10 600 cargo test --all-features --test conformance -- ${rules[@]+"${rules[@]}"}
}

case "${1:-}" in
    soak | fuzz | storm) "$@" ;;
    *)
        echo "usage: $0 soak | fuzz | storm [ARGUMENT…]" >&2
        exit 2
        ;;
esac
