#!/usr/bin/env bash
# The rules about several workers in a pool without its monitor (src/scheduler/monitor.rs): a wake-up that is missing is a
# test that hangs, where the monitor would find what is ready within 12 ms. A test's own deadline ends it.
#
#     ci/no_monitor.sh [TEST…]
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/run_tests.sh

# What the monitor is for, and what counts its inspections. All of these block a worker, as a computation does, until
# what waits for that worker has run elsewhere (rules 75 and 77).
monitored=(
    runtime::stealing::a_backlog_
    runtime::stealing::a_socket_that_is_readable_waits_for_no_worker_that_computes
    runtime::stealing::a_task_that_its_worker_wakes_before_it_computes_does_not_wait_for_it
    runtime::stealing::a_timer_that_is_due_waits_for_no_worker_that_computes
    runtime::stealing::a_worker_that_sleeps_for_moments_only_looks_after_those_that_compute
    runtime::stealing::looks_are_frequent_beside_a_worker_that_computes
    runtime::stealing::looks_at_others_are_no_reason_to_poll_busily
    runtime::stealing::one_idle_worker_looks_after_one_that_computes_and_the_others_sleep
    runtime::stealing::tasks_that_were_taken_from_a_worker_count_there_no_more
    runtime::stealing::tasks_that_yield_wait_for_no_worker_that_computes
    runtime::stealing::what_comes_due_beside_the_only_worker_that_is_awake_does_not_wait_for_it
    runtime::stealing::what_is_left_behind_a_poll_that_goes_on_is_taken_without_a_sleep_in_between
    runtime::stealing::what_is_ready_waits_for_no_worker_that_computes_while_the_others_have_work
    runtime::outliving::a_worker_that_was_helped_goes_on_where_no_descriptor_is_left
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
