#!/usr/bin/env bash
# How many seeds it takes to find each planted bug, and how many runs of an exploration, by events and by edges too: medians
# of campaigns that begin at different seeds, as the table of docs/SIMULATION.md has them.
#
#     ci/campaigns.sh [CAMPAIGNS [NAME]]
#
# NAME is a part of the name of a test in crates/polder-sim/tests/sim/planted.rs. A bug that is not found within 5,000 runs counts as if it
# were by the last one.
set -euo pipefail
cd "$(dirname "$0")/.."

limit=5000
campaigns=${1:-20}
corpus=$(mktemp)
trap 'rm -f "$corpus"' EXIT

program=$(ci/executable.sh test sim --release -p polder-sim)
export LLVM_PROFILE_FILE=/dev/null
with_edges=$(ci/edges.sh ci/executable.sh test sim --release -p polder-sim)

# run PROGRAM NAME VARIABLE...: the output of a test, with its bug.
run() {
    local program=$1 name=$2
    shift 2
    env "$@" POLDER_PLANTED_ONLY=1 "$program" --exact "$name" --nocapture 2>&1 || true
}
# explore PROGRAM NAME FIRST: the number of runs of an exploration from this seed on.
explore() {
    local said runs
    rm -f "$corpus"
    said=$(run "$1" "$2" POLDER_SEED_FROM="$3" POLDER_SEEDS=1 POLDER_SIM_EXPLORE=$limit POLDER_SIM_CORPUS="$corpus")
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

echo '| bug | seeds | runs of an exploration | by edges too |'
echo '|---|--:|--:|--:|'
# (The late subscriber's seeds have their order by hand.)
"$program" --list "planted::${2:-}" | sed -n 's/: test$//p' | grep -v late_subscriber | while read -r name; do
    blind='' explored='' by_edges=''
    for ((nth = 1; nth <= campaigns; nth++)); do
        # From a seed that is not calm.
        first=$((nth * 1000000 + 10))
        seed=$(run "$program" "$name" POLDER_SEED_FROM=$first POLDER_SEEDS=$limit |
            sed -n 's/^seed \(0x[0-9a-f]*\) failed.*/\1/p' | head -n 1)
        blind+="$((${seed:-first + limit - 1} - first + 1))"$'\n'
        explored+="$(explore "$program" "$name" $first)"$'\n'
        by_edges+="$(explore "$with_edges" "$name" $first)"$'\n'
    done
    echo "| $name | $(median <<<"${blind%?}") | $(median <<<"${explored%?}") | $(median <<<"${by_edges%?}") |"
done
