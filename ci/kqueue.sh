#!/usr/bin/env bash
# The kqueue backend, executed on Linux: over a model of kqueue(2), tests/kqueue/model.rs.
#
#     ci/kqueue.sh [--short | --faults | --rules [--check]] [TESTS…]
#
# Runs all of `cargo test` (the suite on each backend of this machine, kqueue among them and with one, two and four
# workers; the examples as programs; the documentation; what the manuals say of kevent, asked of the model), then
# fuzzers and soak on kqueue, the suite in a storm of signals, and the faults; and the suite on kqueue alone, as each
# of the systems has it. With --short it runs what takes about three minutes: the library's own tests, and of the
# conformance suite what is about pollers, sockets and time, as two systems have it. TESTS are arguments of the
# conformance suite, which alone is run then. With --faults it breaks the backend on purpose, in one place after the
# other, and a rule has to fail each time. With --rules it runs ci/rules.sh, whose table has a column for kqueue then.
# The environment variable POLDER_KQUEUE_MODEL names the system (FreeBSD without it).
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh

mode=
case "${1:-}" in
    --short | --faults | --rules)
        mode=$1
        shift ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

export CARGO_TARGET_DIR="$cache/kqueue"
export RUSTFLAGS="--cfg polder_kqueue_model ${RUSTFLAGS:-}"
export RUSTDOCFLAGS="--cfg polder_kqueue_model ${RUSTDOCFLAGS:-}"

# fault NAME SED RULE: breaks the backend in a copy of the tree, and has a test of the rule fail on kqueue.
fault() {
    local name=$1 sed=$2 rule=$3 tree="$work/tree" backend=src/poller/backends/kqueue.rs
    if [ ! -d "$tree" ]; then
        mkdir "$tree"
        tar --exclude=target --exclude=./.git -c . | tar -C "$tree" -x
    fi
    sed -E "$sed" "$backend" >"$tree/$backend"
    if cmp -s "$backend" "$tree/$backend"; then
        echo "$0: $name: there is nothing to break" >&2
        return 1
    fi
    (cd "$tree" && cargo test --test conformance --no-run)
    if (cd "$tree" && timeout 300 cargo test --test conformance -- "$rule") >"$work/log" 2>&1 ||
        ! grep -q '^on kqueue' "$work/log"; then
        cat "$work/log" >&2
        echo "$0: $name: $rule has not failed on kqueue" >&2
        return 1
    fi
    echo "$0: $name: found by"
    sed -n 's/^test \(.*\) \.\.\. FAILED$/    \1/p' "$work/log"
}

faults() {
    fault 'no EV_CLEAR' 's/Mode::OneShot | Mode::Edge => EV_CLEAR,/Mode::OneShot => EV_CLEAR, Mode::Edge => 0,/' pollers::readiness::rule_10
    fault 'EV_EOF of the write filter is taken for the end of reading' \
        's/_ => Ready::WRITABLE,/_ if is_end => Ready::WRITABLE | Ready::CLOSED,\n        &/' pollers::readiness::rule_02
    fault 'NOTE_TRIGGER is lost' 's/change\.fflags = trigger;/change.fflags = 0 * trigger;/' \
        pollers::notification::rule_18_a_notification_before_the_wait_is_kept
}

case $mode in
    --rules)
        ci/rules.sh "$@"
        grep -q '^| rule | |.* kqueue |' docs/PLATFORM.md
        exit ;;
    --faults)
        faults
        exit ;;
esac

# Whatever else this does, it has not passed without the backend.
present=pollers::backends::the_model_of_kqueue_is_among_the_backends
cargo test --test conformance --no-run
run_tests cargo test --test conformance -- --exact "$present"

# as SYSTEM TESTS…: runs these tests of the suite on kqueue as the system has it, and what the manuals say of it.
as() {
    echo "==== kqueue as $1 has it"
    POLDER_KQUEUE_MODEL=$1 run_tests timeout -k 10 300 cargo test --lib -- backends::kqueue
    POLDER_KQUEUE_MODEL=$1 POLDER_RULES_ON=kqueue run_tests timeout -k 10 900 cargo test --test conformance -- "${@:2}"
}

# Each test has a deadline of its own; the limits are for what would get round it.
if [ $# != 0 ]; then
    run_tests timeout -k 10 900 cargo test --test conformance -- "$@"
    exit
fi
if [ "$mode" = --short ]; then
    cargo test --lib --no-run
    run_tests timeout -k 10 300 cargo test --lib
    # Those that differ most.
    for system in netbsd darwin; do
        as "$system" pollers:: events:: tasks:: time:: streams:: udp:: unix:: waiters:: connecting:: numbers:: \
            --skip thousand --skip million
    done
    exit
fi
cargo test --no-run
timeout 2400 cargo test
for system in netbsd openbsd darwin; do
    as "$system"
done
POLDER_BACKEND=kqueue ci/stress.sh fuzz
POLDER_BACKEND=kqueue ci/stress.sh soak
ci/stress.sh storm
faults
