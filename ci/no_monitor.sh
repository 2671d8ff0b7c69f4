#!/usr/bin/env bash
# The rules about several workers without the monitor (src/scheduler/monitor.rs): a wake-up that is missing is a test
# that hangs, where the monitor, beside a worker that computes, would find what is ready within 12 ms. A test's own
# deadline ends it.
#
#     ci/no_monitor.sh [TEST…]
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh

# What the monitor is for. All of these block a worker, as a computation does, until what waits for that worker has run
# elsewhere (rules 75 and 77).
monitored=(
    runtime::stealing::backlog_
    runtime::stealing::computing_worker_does_not_hold_socket
    runtime::stealing::computing_worker_does_not_hold_woken_task
    runtime::stealing::computing_worker_does_not_hold_timer
    runtime::stealing::briefly_sleeping_worker_helps
    runtime::stealing::worker_with_long_turns_does_not_hold_timer
    runtime::stealing::inspections_frequent_beside_computing_worker
    runtime::stealing::stolen_tasks_no_longer_counted
    runtime::stealing::computing_worker_does_not_hold_yielding_tasks
    runtime::stealing::due_beside_only_awake_worker_not_held
    runtime::stealing::computing_worker_does_not_hold_ready_when_busy
    runtime::outliving::helped_worker_continues_without_descriptors
)

rules=("$@")
if [ $# = 0 ]; then
    rules=(workers:: tasks:: taskset:: events:: scope:: runtime::)
    for test in "${monitored[@]}"; do rules+=(--skip "$test"); done
fi
# Flags of one's own mean a build of one's own.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/no_monitor"
export RUSTFLAGS="--cfg polder_no_monitor"
cargo test --test conformance --no-run
run_tests timeout -k 10 900 cargo test --test conformance -- "${rules[@]}"
