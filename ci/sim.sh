#!/usr/bin/env bash
# Simulated worlds: the same runs in several builds, their rules, the conformance suite in worlds, their sockets
# beside Linux's, the planted bugs, each without which 1,000 seeds have to pass, and an exploration by edges.
#
#     ci/sim.sh [--short | SEEDS]
#     ci/sim.sh --campaigns [CAMPAIGNS [NAME]]
#
# --short takes a part of all seeds and leaves out the edges. And it runs the suites without optimisation, with the
# library as ci/features.sh has built it: to optimise the rules of worlds takes seven minutes of CPU time, and to run
# them so saves two. POLDER_FINGERPRINT_SEEDS sets how many fingerprints are compared, 300 if it is not set: 10,000 take
# two minutes of CPU time, nearly all of them without optimisation.
#
# --campaigns: how many seeds it takes to find each planted bug, and how many runs of an exploration, by events and by
# edges too: medians of campaigns that begin at different seeds, as the table of docs/SIMULATION.md has them. NAME is a
# part of the name of a test in crates/polder-sim/tests/sim/planted.rs. A bug that is not found within 5,000 runs counts as
# if it were by the last one.

# cargo calls this script as the compiler's wrapper, for `with_edges`: tests have counters of their edges, and polder,
# which runs them, has none.
if [ -n "${POLDER_SIM_EDGES:-}" ]; then
    case " $* " in
        *" --test "*) exec "$@" -C instrument-coverage ;;
        *) exec "$@" ;;
    esac
fi

set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh

# with_edges COMMAND…: runs it so that cargo builds tests with counters of their edges.
with_edges() {
    (
        export POLDER_SIM_EDGES=1 RUSTC_WORKSPACE_WRAPPER="$PWD/ci/sim.sh" RUSTFLAGS='--cfg polder_edges'
        export LLVM_PROFILE_FILE=/dev/null CARGO_TARGET_DIR=target/edges
        "$@"
    )
}

# run_bug PROGRAM NAME VARIABLE...: the output of a test, with its bug.
run_bug() {
    local program=$1 name=$2
    shift 2
    env "$@" POLDER_PLANTED_ONLY=1 "$program" --exact "$name" --nocapture 2>&1 || true
}
# explore PROGRAM NAME FIRST: the number of runs of an exploration from this seed on.
explore() {
    local said runs
    rm -f "$corpus"
    said=$(run_bug "$1" "$2" POLDER_SIM_FIRST_SEED="$3" POLDER_SIM_RUNS=1 POLDER_SIM_EXPLORE=$limit POLDER_SIM_CORPUS="$corpus")
    runs=$(sed -n 's/^explored \([0-9]*\) runs.*/\1/p' <<<"$said")
    # The first seed may have it already.
    [ -n "$runs" ] || ! grep -q '^seed 0x[0-9a-f]* failed' <<<"$said" || runs=1
    if [ -z "$runs" ]; then
        echo "$0: $2 says neither how many runs were explored nor which seed failed" >&2
        return 1
    fi
    echo "$runs"
}
# The median of the numbers of the input.
median() {
    sort -n | awk '{ all[NR] = $1 } END { print (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2 }'
}

campaigns() {
    local name nth first seed blind explored by_edges program with_edges
    limit=5000
    campaigns=${1:-20}
    corpus=$(mktemp)
    trap 'rm -f "$corpus"' EXIT

    program=$(executable test sim --release -p polder-sim)
    export LLVM_PROFILE_FILE=/dev/null
    with_edges=$(with_edges executable test sim --release -p polder-sim)

    echo '| bug | seeds | runs of an exploration | by edges too |'
    echo '|---|--:|--:|--:|'
    # (The late subscriber's seeds have their order by hand.)
    "$program" --list "planted::${2:-}" | sed -n 's/: test$//p' | grep -v late_subscriber | while read -r name; do
        blind='' explored='' by_edges=''
        for ((nth = 1; nth <= campaigns; nth++)); do
            # From a seed that is not calm.
            first=$((nth * 1000000 + 10))
            seed=$(run_bug "$program" "$name" POLDER_SIM_FIRST_SEED=$first POLDER_SIM_RUNS=$limit |
                sed -n 's/^seed \(0x[0-9a-f]*\) failed.*/\1/p' | head -n 1)
            blind+="$((${seed:-first + limit - 1} - first + 1))"$'\n'
            explored+="$(explore "$program" "$name" $first)"$'\n'
            by_edges+="$(explore "$with_edges" "$name" $first)"$'\n'
        done
        echo "| $name | $(median <<<"${blind%?}") | $(median <<<"${explored%?}") | $(median <<<"${by_edges%?}") |"
    done
}

if [ "${1:-}" = --campaigns ]; then
    campaigns "${@:2}"
    exit
fi

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
POLDER_SIM_RUNS=$example POLDER_SIM_JOBS=1 run_tests timeout -k 10 900 cargo test --release -p polder-sim --test fingerprints -- \
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
POLDER_SIM_RUNS=$column_seeds POLDER_EXCEPTIONS=1 POLDER_RULES="$log.column" \
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
    with_edges cargo test -p polder-sim --test edges --no-run
    with_edges timeout 900 cargo test -p polder-sim --test edges
fi
