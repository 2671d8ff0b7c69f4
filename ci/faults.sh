#!/usr/bin/env bash
# What comes of it when the kernel refuses a system call: runs tests/faults under strace, which has one
# call after another fail, and writes docs/FAULTS.md:
#
#     ci/faults.sh [--check | CALL ERRNO WHEN BACKEND]
#
# With --check it writes nothing, runs one fault of each row on each backend, and fails where one ends
# in a hang, a panic or wrong data. With a call and the rest it runs that fault alone, and says what
# came of it. Linux only. The whole takes a quarter of an hour, the check two minutes; more where
# something hangs. Where nothing may be traced (ptrace is denied) it says so, and checks nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh
need strace strace

cargo test --test faults --no-run
# Each run has a deadline of its own; this is for what would get round it.
case "${1:-}" in
    --check)
        log=$(mktemp)
        trap 'rm -f "$log"' EXIT
        timeout 900 cargo test --quiet --test faults -- sample | tee "$log"
        ! grep -q '^faults: skipped' "$log" || not_run "faults, since nothing can be traced here"
        ;;
    "") timeout 7200 cargo test --quiet --test faults -- matrix "$PWD/docs/FAULTS.md" ;;
    *) timeout 60 cargo test --quiet --test faults -- one "$@" ;;
esac
