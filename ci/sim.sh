#!/usr/bin/env bash
# Simulated worlds: the same runs in several builds, their rules, the conformance suite in worlds, their sockets
# beside Linux's, the planted bugs, each without which 1,000 seeds have to pass, and an exploration by edges.
#
#     ci/sim.sh [--short | SEEDS]
#
# --short takes a part of all seeds and leaves out the edges. And it runs the suites without optimisation, with the
# library as ci/features.sh has built it: to optimise the rules of worlds takes seven minutes of CPU time, and to run
# them so saves two. POLDER_FINGERPRINT_SEEDS sets how many fingerprints are compared, 300 if it is not set: 10,000 take
# two minutes of CPU time, nearly all of them without optimisation.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/run_tests.sh

seeds=1000 scripts=5000 example=10000 column_seeds=16 fingerprint_seeds=300 scores=1 build=(--release)
case "${1:-}" in
    --short) seeds=30 scripts=300 example=1000 column_seeds=2 fingerprint_seeds=50 scores='' build=() ;;
    '') ;;
    *) seeds=$1 ;;
esac
export POLDER_PLANTED_SEEDS=$seeds
# Of each kind: TCP's, UDP's and Unix sockets'. 5,000 take about half a minute.
export POLDER_SCRIPTS=${POLDER_SCRIPTS:-$scripts}
# Where scores are asked for: how many seeds would find a planted bug without some of the machinery.
[ -z "$scores" ] || export POLDER_PLANTED_SCORES=$scores

# The same seeds come to the same, with chaos: twice in a process, in two processes, and optimised or not.
fingerprints=$(mktemp -d)
log=$(mktemp)
trap 'rm -rf "$fingerprints" "$log" "$log.column"' EXIT
export POLDER_FINGERPRINT_SEEDS=${POLDER_FINGERPRINT_SEEDS:-$fingerprint_seeds}
for process in release again debug; do
    optimised=(--release)
    [ "$process" != debug ] || optimised=()
    cargo test ${optimised[@]+"${optimised[@]}"} -p polder-sim --test fingerprints --no-run
    POLDER_FINGERPRINTS="$fingerprints/$process" run_tests timeout -k 10 1800 \
        cargo test ${optimised[@]+"${optimised[@]}"} -p polder-sim --test fingerprints
    if ! diff "$fingerprints/release" "$fingerprints/$process" | head -20 >&2; then
        echo "$0: fingerprints differ: release and $process" >&2
        exit 1
    fi
done
echo "$(wc -l <"$fingerprints/release") seeds have the same fingerprint in each of three processes, two of them optimised"
# The example, by far more seeds than in the suite: in seconds, on one core.
POLDER_SEEDS=$example POLDER_SIM_JOBS=1 run_tests timeout -k 10 900 cargo test --release -p polder-sim --test fingerprints -- \
    --exact example::no_increment_is_lost_or_applied_twice

# With debug assertions a task's future is boxed (src/task/mod.rs): without them these tests, which spawn hundreds of
# types of futures, are compiled for eight minutes instead of three. At the first level of optimisation that takes half
# the time again (7 minutes of CPU time, and 13 at the third level), and the tests run as fast.
export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_PROFILE_RELEASE_OPT_LEVEL=1
# suite TEST [ARGUMENT…]: all of these tests.
suite() {
    cargo test ${build[@]+"${build[@]}"} -p polder-sim --test "$1" --no-run
    run_tests timeout -k 10 900 cargo test ${build[@]+"${build[@]}"} -p polder-sim --test "$@"
}
suite sim -- --skip planted::

# The suite's tests in worlds, for so many seeds each, and that its exceptions are still needed. Of these some wait for
# what never comes, by the real clock.
POLDER_SEEDS=$column_seeds POLDER_EXCEPTIONS=1 POLDER_RULES="$log.column" \
    suite conformance >"$log" 2>&1 || {
    cat "$log"
    exit 1
}
awk -F'\t' '$1 == "simulated" { count[$3]++ } END {
    print count["ok"] " tests of " count["ok"] + count["excepted"] " in the world, " count["excepted"] " exceptions"
    exit !count["ok"]
}' "$log.column"

# How many seeds find each bug, and how soon; all that was printed where one fails.
suite sim -- planted:: --nocapture >"$log" 2>&1 || {
    cat "$log"
    exit 1
}
grep ': found by' "$log"
run_tests timeout -k 10 900 cargo test -p polder-sim --doc

# Explorations by edges, in a build with counters of them.
if [ "${1:-}" != --short ]; then
    ci/edges.sh cargo test -p polder-sim --test edges --no-run
    timeout 900 ci/edges.sh cargo test -p polder-sim --test edges
fi
