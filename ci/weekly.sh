#!/usr/bin/env bash
# The whole of what .ci/run takes a part of, or leaves out: several hours. .github/workflows/weekly.yml does the same, with a machine
# for each. Of mutants it takes the sample, since all of them take days:
# ci/mutants.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null

failed=()
run() {
    local start=$SECONDS
    echo
    echo "==== $*"
    "$@" || failed+=("$*")
    echo "==== $*: $((SECONDS - start)) s"
}

run ci/deny.sh
run ci/instructions.sh
run ci/minimal.sh
run ci/features.sh --all
run ci/msrv.sh
run ci/no_monitor.sh
run ci/miri.sh 8
run ci/cross.sh
run ci/mutants.sh --sample
run ci/machines.sh
run ci/windows.sh
run ci/kqueue.sh
run ci/interop.sh
run env POLDER_FINGERPRINT_SEEDS=10000 ci/sim.sh 10000
run ci/campaigns.sh
run ci/storm.sh
run ci/soak.sh 100000000
run ci/fuzz.sh 5000000
run ci/faults.sh

if [ ${#failed[@]} != 0 ]; then
    printf '%s failed\n' "${failed[@]}" >&2
    exit 1
fi
