#!/usr/bin/env bash
# Breaks the library on purpose, in one place after the other, and sees whether a test notices:
#
#     ci/mutants.sh [ARGUMENT…]    all of the files in `common` below: many hours
#     ci/mutants.sh --sample       a fixed handful: a few minutes
#
# ARGUMENTs go to cargo-mutants: `--file src/scheduler/local.rs`, `--re Parking`, `--shard 3/20`.
#
# There are two rounds. The first has only quick tests, the unit tests and tests/miri.rs; what they miss
# goes to the second, which has the part of the conformance suite that is about these files. A mutant that
# hangs is ended by a timeout, and counts as caught. What nobody has noticed is compared with
# ci/mutants.txt, which gives a reason for each; one that is not there is a failure, and a test to be
# written.
#
# The mutated tree is a copy. Takes cargo-mutants from crates.io where it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

. ci/tool.sh
tool cargo-mutants 27.1.0

# The copy's path is new each time, but what the library depends on is built once. Nobody debugs a mutant,
# and most of the time goes into building them.
export CARGO_TARGET_DIR="$cache/mutants-target" CARGO_PROFILE_DEV_DEBUG=0

known=ci/mutants.txt
out="$cache/mutants"
mkdir -p "$out"
mutants="$out/mutants.out"

# What is not compiled here, or only under loom, or cannot be told from what it replaces: see "Left out" in
# ci/mutants.txt.
common=(
    --no-config --no-shuffle --jobs 1 --output "$out" --line-col false --copy-vcs false
    --exclude-re 'tests::' --exclude-re '<impl .*Debug for'
    --file 'src/poller/**' --file 'src/reactor/**' --file 'src/task/**' --file 'src/scheduler/**' --file 'src/runtime/**'
    --file src/event.rs --file 'src/time/**'
    --file src/io/operation.rs --file src/io/lent.rs --file src/net/socket.rs
    --exclude src/poller/backends/async_io.rs --exclude src/poller/backends/io_uring.rs
    --exclude src/poller/backends/kqueue.rs --exclude 'src/poller/backends/kqueue/**'
    --exclude src/poller/backends/simulated.rs
    --exclude-re '(in_world|\bsimulated?|not_simulated|register_simulated|other_sites|Worker::step|spawn_main|woken_on_this_thread)( |$)'
    --exclude-re 'Local::(let_choose|pop_chosen|leaves_behind)'
)
# As arguments of cargo's own: what stands behind `--` chooses what is run, but everything is built.
quick=(--cargo-arg=--lib --cargo-arg=--test=miri)
thorough=(--cargo-arg=--test=conformance)
# Rules of great numbers, and those that watch a pool of threads retire, tell nothing that others do not.
thorough_names=(
    --test-threads=8
    numbers:: events:: tasks:: taskset:: runtime:: workers:: pollers:: time::
    streams:: udp:: unix:: connecting:: async_io:: descriptor:: waiters::
    kernel:: names:: scope:: serve_on_workers:: diagnostics::
    --skip thousand --skip hundreds --skip blocking
)

# Ends as cargo-mutants does: with 2 where mutants were missed, 3 where one ran into its timeout.
run() {
    local status=0
    cargo mutants "$@" || status=$?
    case $status in
        0 | 2 | 3) ;;
        *)
            echo "$0: cargo mutants ended with $status" >&2
            exit "$status"
            ;;
    esac
}

# What was missed and has no reason.
unexplained() {
    comm -23 <(sed 's/:[0-9]*:[0-9]*:/:/' "$mutants/missed.txt" | sort) <(sed -n '/^src\//p' "$known" | sort)
}

rm -rf "$mutants" "$mutants.old"
if [ "${1:-}" = --sample ]; then
    # One for each protocol, and the name of the protocol. A pattern that matches nothing is out of date.
    sample=(
        'replace Parking::unpark -> bool with false'
        'replace Local::release_yielded with \(\)'
        'replace Idle::wake_one with \(\)'
        'replace Shared::task_ended with \(\)'
        'replace Event::set with \(\)'
        'replace TimerHeap::reset -> bool with true'
        'replace Notifier<W>::notify -> io::Result<\(\)> with Ok\(\(\)\)'
    )
    patterns=()
    all=$(cargo mutants "${common[@]}" --list)
    for pattern in "${sample[@]}"; do
        if ! grep -qE -e "$pattern" <<<"$all"; then
            echo "$0: no mutant is called \"$pattern\": a name has changed" >&2
            exit 1
        fi
        patterns+=(--re "$pattern")
    done
    run "${common[@]}" "${quick[@]}" "${patterns[@]}" --timeout 15
else
    run "${common[@]}" "${quick[@]}" "$@" --timeout 30
    # Those that ran into their timeout need not do so again.
    cat "$mutants/timeout.txt" >>"$mutants/caught.txt"
    cp "$mutants/timeout.txt" "$out/timeout-quick.txt"
    echo "-- what the quick tests have missed: $(wc -l <"$mutants/missed.txt")"
    # By their names: a shard of the second round would be of others.
    missed=()
    while read -r name; do
        missed+=(--re "^$(sed 's/[][\\.*^$(){}|+?]/\\&/g' <<<"$name")\$")
    done <"$mutants/missed.txt"
    if [ ${#missed[@]} != 0 ]; then
        cp "$mutants/caught.txt" "$out/caught-quick.txt"
        run "${common[@]}" "${thorough[@]}" "${missed[@]}" --timeout 90 -- -- "${thorough_names[@]}"
        cat "$out/caught-quick.txt" >>"$mutants/caught.txt"
    fi
fi

for what in caught timeout unviable missed; do
    echo "$what: $(wc -l <"$mutants/$what.txt")"
done
if [ -n "$(unexplained)" ]; then
    echo "$0: no test notices these, and $known gives no reason:" >&2
    sed 's/^/    /' <<<"$(unexplained)" >&2
    exit 1
fi
