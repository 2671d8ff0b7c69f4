#!/usr/bin/env bash
# Timers under a replaced clock: libfaketime, preloaded, fakes CLOCK_MONOTONIC for whoever asks the C library,
# and not for the kernel. Shifted to either side, twice as fast, half as fast, and standing still. Linux;
# installs faketime where apt-get can.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh
need faketime faketime

# Without the program `faketime` around it, so that who is killed and counted is the program itself.
preload=$(faketime -f '+0' printenv LD_PRELOAD)

# Built before the clock is a fake one, which confuses cargo.
cargo build --example timers
timers=target/debug/examples/timers
suite=$(executable test conformance)

# They compare one reading of a clock with another, and none with the clock of somebody else.
tests=(
    time::deadlines::timers_are_never_early
    time::deadlines::timer_worker_sleeps_for_never_early
    time::deadlines::equal_deadlines_fire_in_set_order
    time::deadlines::zero_and_past_ready_at_first_poll
    time::threads::runtime_sleeps_until_earliest_timer
    time::intervals::burst_keeps_every_tick_on_grid
    time::deadlines::a_sleep_that_is_reset_ends_at_its_new_deadline
)

failed=0
check() {
    echo "---- $*"
    if ! "$@" >/tmp/polder-faketime.$$ 2>&1; then
        cat /tmp/polder-faketime.$$
        echo "---- failed: $*"
        failed=1
    fi
    rm -f /tmp/polder-faketime.$$
}

for backend in epoll poll select; do
    export POLDER_BACKEND=$backend
    for clock in '+1d' '-1d' '+20y' '-20y' '+0 x2' '+0 x0.5' '@2020-01-01 00:00:00'; do
        check timeout 60 env LD_PRELOAD="$preload" FAKETIME="$clock" "$timers" --scale 0.05
    done
    # No time passes, so nothing is due; and nothing may be busy with that.
    echo "---- $backend: a clock that stands still"
    TIMEFORMAT='%U %S'
    used=$({ time {
        status=0
        timeout 4 env LD_PRELOAD="$preload" FAKETIME='2020-01-01 00:00:00' "$timers" --scale 0.05 >/dev/null 2>&1 ||
            status=$?
        echo "$status"
    }; } 2>&1 | tr '\n' ' ')
    # 124: it was still running.
    if ! awk -v used="$used" 'BEGIN { split(used, part, " "); exit !(part[1] == 124 && part[2] + part[3] < 1) }'; then
        echo "---- failed: status, and s of CPU time, in 4 s in which no time passes: $used"
        failed=1
    fi
done

unset POLDER_BACKEND # The suite goes through all of them by itself.
for clock in '+1d' '-20y' '+0 x2' '+0 x0.5'; do
    check timeout 120 env LD_PRELOAD="$preload" FAKETIME="$clock" "$suite" --exact "${tests[@]}"
done
exit $failed
