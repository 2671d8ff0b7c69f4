#!/usr/bin/env bash
# Mutation testing: breaks the library on purpose, in one place after the other, and sees whether a test fails.
#
#     ci/mutants.sh [ROOM…] [ARGUMENT…]    these rooms, or all of them: days
#     ci/mutants.sh --list                 the rooms, with the number of mutants of each
#     ci/mutants.sh --sample               a fixed handful of several rooms: a few minutes
#
# ARGUMENTs go to cargo-mutants: `--re Parker`, or for every 50th mutant of a room, from the 8th on,
# `--sharding round-robin --shard 7/50`.
#
# A room is a part of `src`, with the features and the tests that are about it. The tests are run in rounds: the quick
# ones first, and each later round has only what the rounds before it have missed. A mutant that hangs is ended by a
# timeout, and counts as caught. Survivors are compared with ci/mutants.txt, which gives a reason for each; one that is
# not there is a failure, and a test to be written.
#
# The mutated tree is a copy. Takes cargo-mutants from crates.io where it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

# The table. `room NAME PATTERNS FEATURES ROUND…`: a file belongs to the first room with a pattern that matches its
# path, where `*` matches slashes too. A ROUND is what `cargo test` is passed: the targets, all of which are built for
# each mutant, and behind `--` the arguments of the test programs. `out PATTERN REASON`: these files are left out.
rooms() {
    local quick='--lib --test=miri'
    # The part of the suite that is about most of the library. Rules of great numbers, and those that watch a pool of
    # threads retire, tell nothing that others do not.
    local suite='--test=conformance -- --test-threads=8 --skip thousand --skip hundreds --skip blocking'
    local core="$suite numbers:: events:: tasks:: taskset:: runtime:: workers:: pollers:: time:: streams:: udp:: unix::"
    core+=' connecting:: async_io:: waiters:: kernel:: names:: scope:: serve_on_workers:: diagnostics::'
    # Of simulated worlds: what runs many seeds comes last.
    local seeds='planted:: every_kind_does_harm threads::shared_thread_ killed_and_restarted_at_any_moment'
    seeds+=' port_reused_ is_left_out_of_the_queue priority_until_'
    local worlds="--lib --test=sim -- --skip ${seeds// / --skip }"

    out 'src/lib.rs' 'it declares modules'
    out 'src/loom/mod.rs' 'it declares modules'
    out 'src/process/windows.rs' 'compiled for Windows only'
    out 'src/process/kqueue.rs' 'compiled for macOS and the BSDs'
    out 'src/process/descriptor.rs' 'not compiled on Linux'
    out 'src/sys/datagrams.rs' 'not compiled on Linux'
    out 'src/loom/mocked.rs' 'compiled for loom only'
    out 'src/sys/windows*' 'compiled for Windows only'
    out 'src/signal/windows.rs' 'compiled for Windows only'
    out 'src/fs/not_cached.rs' 'not compiled on Linux'
    out 'src/fs/windows.rs' 'compiled for Windows only'
    out 'src/poller/backends/missing/*' 'compiled in place of backends that are not'
    out 'src/poller/backends/kqueue/*' 'declarations of other systems'
    out 'tests/kqueue/*' 'the model is for tests'
    out 'src/spans/untraced.rs' 'what it has does nothing'

    # Tested by the crate above: see `run_room`.
    room sim 'crates/polder-sim/src/* src/net/socket/custom.rs src/poller/backends/custom.rs src/kernel/* src/runtime/custom.rs src/checks.rs' \
        polder/kernel "$worlds" '--test=libc_interpose' "--lib --test=sim -- $seeds"
    room replay 'crates/polder-replay/src/*' polder-replay/libc '--lib --test=replay --test=recorded_test --test=command' '--test=libc'
    # The functions of all other files that matter in worlds only: see `in_worlds`. No file is its own.
    room worlds '' polder/kernel "$worlds" "--lib --test=sim -- $seeds"
    room async-io 'src/poller/backends/async_io.rs' async-io "$quick" "$core" '--test=one_reactor'
    room io-uring 'src/poller/backends/io_uring*' io-uring "$quick" "$core" '--test=conformance'
    # Built with `--cfg polder_kqueue_model`: see ci/kqueue.sh.
    room kqueue 'src/poller/backends/kqueue.rs' '' "$quick" "$core"
    room poller 'src/poller/*' polling "$quick" "$core" '--test=platform'
    room reactor 'src/reactor/* src/telemetry/* src/clock.rs src/slab.rs src/sync.rs src/loom/std.rs' '' "$quick" "$core"
    room scheduler 'src/scheduler/* src/event.rs' '' "$quick" "$core"
    room blocking 'src/blocking/*' '' \
        '--lib --test=no_threads' "$suite names:: tasks:: unblock::"
    room process 'src/process/*' '' "$suite process::"
    room fs 'src/fs/*' '' '--lib' "$suite files::"
    room runtime 'src/task/* src/runtime/*' '' "$quick" "$core"
    room time 'src/time/*' '' "$quick" "$core"
    room io 'src/io/*' '' "$quick" "$core memory::"
    room net 'src/net/*' async-io-compat "$quick" "$core compat:: serve:: endings::" '--test=budgets'
    room diagnostics 'src/diagnostics/*' stall-backtrace \
        '--lib -- diagnostics::' '--test=conformance -- --test-threads=8 diagnostics::' \
        '--test=stalls --test=stories --test=environment --test=backtrace --test=scrape'
    room signal 'src/signal/*' '' '--lib --test=signals' '--test=panicking_waker --test=environment'
    room sys 'src/sys/*' '' '--lib' "$core" '--test=environment'
    room spans 'src/spans/*' tracing '--test=spans'
    room testing 'src/testing.rs' '' '--test=test_macro --test=hanging_test'
}

# Functions that matter in worlds only, by their names.
in_worlds='(in_world|in_a_world|poll_outlined|\bsimulated?|permit|turn_of|exit_embedded'
in_worlds+='|poll_custom|panic_is_taken)( |$)|KernelPolicy'

# One for each of some protocols and rooms, by its name, and what tests them. A pattern that matches nothing is out of
# date.
sample=(
    'replace Parker<P>::set_attention -> bool with false'
    'replace Searcher::wake_one with \(\)'
    'replace Event::set with \(\)'
    'replace TimerHeap::reset -> bool with true'
    'replace Notifier<W>::notify -> io::Result<\(\)> with Ok\(\(\)\)'
    'delete ! in Pool::load'
    'delete ! in Parting::lies_between'
)
sample_tests='--lib --test=miri --test=signals -- --skip is_left_out_of_the_queue --skip priority_until_'

. ci/lib.sh
tool cargo-mutants 27.1.0

known=ci/mutants.txt
output="$cache/mutants"
mkdir -p "$output"

# The copy's path is new each time, but what the library depends on is built once. Mutants are not debugged, and most
# of the time goes into building them.
export CARGO_TARGET_DIR="$cache/mutants-target" CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=1

common=(--no-config --no-shuffle --jobs 1 --output "$output" --copy-vcs false)
common+=(--package polder --package polder-sim --package polder-replay)
# How long the tests may take: three times as long as without a mutant, but not less than so many seconds.
patience=60
# Tests, and what `Debug` prints.
common+=(--exclude-re 'tests::' --exclude-re '<impl .*Debug for')

names=()
declare -A files features rounds
mapfile -t unclaimed < <(git ls-files 'src/*.rs' 'crates/polder-'{sim,replay}'/src/*.rs')

room() {
    names+=("$1")
    features[$1]=$3
    claim "$1" "$2"
    rounds[$1]=$(printf '%s\n' "${@:4}")
}

out() {
    claim out "$1"
}

# claim ROOM PATTERNS: the files that match, of those that belong to no room yet.
claim() {
    local path pattern rest=() patterns
    read -ra patterns <<<"$2"
    files[$1]=${files[$1]:-}
    for path in "${unclaimed[@]}"; do
        for pattern in "${patterns[@]}"; do
            # shellcheck disable=SC2053
            if [[ $path == $pattern ]]; then
                files[$1]+=" $path"
                continue 2
            fi
        done
        rest+=("$path")
    done
    unclaimed=("${rest[@]}")
}

# choose ROOM: sets the arguments that choose its mutants: `by_file`, and `by_name`.
choose() {
    local path
    by_file=() by_name=(--exclude-re "$in_worlds")
    for path in ${files[$1]}; do by_file+=(--file "$path"); done
    case $1 in
        worlds)
            for path in ${files[out]} ${files[sim]} ${files[replay]}; do by_file+=(--exclude "$path"); done
            by_name=(--re "$in_worlds")
            ;;
        sim | replay) by_name=() ;;
    esac
}

# by_names NAME…: sets `by_name` to the arguments that choose these mutants, by their places too. (Their files as
# well, since cargo-mutants asks no pattern where it deletes a field.)
by_names() {
    local name path
    by_name=()
    for name in "$@"; do by_name+=(--re "^$(sed 's/[][\\.*^$(){}|+?]/\\&/g' <<<"$name")\$"); done
    while read -r path; do by_name+=(--file "$path"); done < <(printf '%s\n' "${@%%:*}" | sort -u)
}

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

# round TESTS ARGUMENT…: the mutants that the ARGUMENTs choose, by these tests, of the packages in `tested`. What it
# has missed is in `missed`.
round() {
    local targets target programs=()
    read -ra targets <<<"${1%% -- *}"
    [[ $1 != *' -- '* ]] || read -ra programs <<<"${1#* -- }"
    local arguments=("${common[@]}" --minimum-test-timeout "$patience" --timeout-multiplier 3 "${@:2}")
    arguments+=(--test-package "$tested")
    # As arguments of cargo's own, which choose what is built too.
    for target in "${targets[@]}"; do arguments+=(--cargo-arg="$target"); done
    rm -rf "$output/mutants.out" "$output/mutants.out.old"
    run "${arguments[@]}" -- -- "${programs[@]}"
    local what
    for what in caught timeout unviable; do cat "$output/mutants.out/$what.txt" >>"$output/$what.txt"; done
    mapfile -t missed <"$output/mutants.out/missed.txt"
}

# run_room ROOM ARGUMENT…
run_room() {
    local all tests by_file by_name tested=polder
    mapfile -t all <<<"${rounds[$1]}"
    case $1 in
        sim | worlds) tested=polder-sim ;;
        replay) tested=polder-replay ;;
    esac
    choose "$1"
    by_name+=("${@:2}")
    [ "$1" != kqueue ] || local -x RUSTFLAGS="--cfg polder_kqueue_model ${RUSTFLAGS:-}"
    for tests in "${all[@]}"; do
        echo "-- $1: $tests"
        round "$tests" --features "${features[$1]}" "${by_file[@]}" "${by_name[@]}"
        [ ${#missed[@]} != 0 ] || return 0
        # With the place in the file: a shard of the next round would be of others.
        by_file=()
        by_names "${missed[@]}"
    done
    cat "$output/mutants.out/missed.txt" >>"$output/missed.txt"
}

# What was missed and has no reason.
unexplained() {
    comm -23 <(sed 's/:[0-9]*:[0-9]*:/:/' "$output/missed.txt" | sort) <(sed -n '/^[a-z].*\.rs: /p' "$known" | sort)
}

# Prints a line for each room, and what share of all mutants they have.
list() {
    local room found covered= all by_file by_name
    printf '%-12s %8s %6s  %s\n' room mutants files features
    for room in "${names[@]}"; do
        choose "$room"
        found=$(cargo mutants "${common[@]}" --list "${by_file[@]}" "${by_name[@]}" 2>/dev/null)
        covered+=$found$'\n'
        printf '%-12s %8s %6s  %s\n' "$room" "$(wc -l <<<"$found")" "$(wc -w <<<"${files[$room]}")" "${features[$room]}"
    done
    # Of a function that stands in two rooms, or is declared twice, once.
    covered=$(sort -u <<<"$covered" | grep -cE '^(src|crates/polder-(sim|replay))/')
    all=$(cargo mutants "${common[@]}" --list 2>/dev/null | sort -u | grep -cE '^(src|crates/polder-(sim|replay))/')
    echo "$covered of $all mutants: $((covered * 100 / all)) %"
}

rooms
if [ ${#unclaimed[@]} != 0 ]; then
    echo "$0: these belong to no room: ${unclaimed[*]}" >&2
    exit 1
fi
rm -f "$output"/*.txt
for what in caught timeout unviable missed; do : >"$output/$what.txt"; done

case "${1:-}" in
    --list)
        list
        exit
        ;;
    --sample)
        named=()
        all=$(cargo mutants "${common[@]}" --list)
        for pattern in "${sample[@]}"; do
            if ! found=$(grep -E -e "$pattern" <<<"$all"); then
                echo "$0: no mutant is called \"$pattern\": a name has changed" >&2
                exit 1
            fi
            mapfile -t found <<<"$found"
            named+=("${found[@]}")
        done
        by_names "${named[@]}"
        patience=15
        tested=polder,polder-sim
        round "$sample_tests" --features polder/kernel "${by_name[@]}"
        cp "$output/mutants.out/missed.txt" "$output/"
        ;;
    *)
        chosen=()
        while [ $# != 0 ] && [ -n "${rounds[$1]:-}" ]; do
            chosen+=("$1")
            shift
        done
        [ ${#chosen[@]} != 0 ] || chosen=("${names[@]}")
        for room in "${chosen[@]}"; do run_room "$room" "$@"; done
        ;;
esac

for what in caught timeout unviable missed; do
    echo "$what: $(wc -l <"$output/$what.txt")"
done
viable=$(cat "$output"/{caught,timeout,missed}.txt | wc -l)
echo "viable: $viable"
if [ "$viable" = 0 ]; then
    echo "$0: no mutant was tested, since none compiles or none is chosen" >&2
    exit 1
fi
if [ -n "$(unexplained)" ]; then
    echo "$0: no test notices these, and $known gives no reason:" >&2
    sed 's/^/    /' <<<"$(unexplained)" >&2
    exit 1
fi
