#!/usr/bin/env bash
# The whole of what .ci/run takes a part of, or leaves out: several hours. .github/workflows/weekly.yml does the same, with
# a machine for each. Of mutants it takes the sample, since all of them take days: ci/mutants.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh
# Asked once, for all of them.
may_install "what its scripts need: Debian's packages, tools from crates.io, rustup's toolchains"
export INSTALL=1
exec </dev/null

failed=()
run() {
    local start=$SECONDS
    echo
    echo "==== $*"
    "$@" || failed+=("$*")
    echo "==== $*: $((SECONDS - start)) s"
}

run ci/packages.sh manifests
run ci/packages.sh build
run ci/packages.sh build --adapters
run ci/packages.sh deny
run ci/instructions.sh
run ci/packages.sh minimal
run ci/features.sh --all
run ci/msrv.sh
run ci/no_monitor.sh
run ci/sanitizers.sh miri 8
run ci/cross.sh
run ci/mutants.sh --sample
run ci/machines.sh
run ci/windows.sh
run ci/kqueue.sh
run ci/interop.sh
run env POLDER_FINGERPRINT_SEEDS=10000 ci/sim.sh 10000
run ci/sim.sh --campaigns
run ci/stress.sh storm
run ci/stress.sh soak 100000000
run ci/stress.sh fuzz 5000000
run ci/faults.sh

if [ ${#failed[@]} != 0 ]; then
    printf '%s failed\n' "${failed[@]}" >&2
    exit 1
fi
