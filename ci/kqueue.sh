#!/usr/bin/env bash
# The kqueue backend, executed on Linux: over libkqueue, which implements kqueue(2) there.
#
#     ci/kqueue.sh [--short | --rules [--check]] [TESTS…]
#
# Runs all of `cargo test` (the suite on each backend of this machine, kqueue among them and with one, two and four
# workers; the examples as programs; the documentation), then fuzzers and soak on kqueue, and the suite in a storm of
# signals. With --short it runs what takes about three minutes: the library's own tests and the conformance suite.
# TESTS are arguments of the conformance suite, which alone is run then. With --rules it runs ci/rules.sh, whose table
# has a column for kqueue then.
#
# libkqueue's source is POLDER_LIBKQUEUE, an archive or a checkout, or else is cloned. What is built of it stays in
# the cache. Where it cannot be had this fails, with status 3, and where it cannot be built.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/debian.sh

commit=f966089
cache="${XDG_CACHE_HOME:-$HOME/.cache}/polder-ci"
mode=
case "${1:-}" in
    --short | --rules)
        mode=$1
        shift ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# unpack INTO: puts the source there.
unpack() {
    local from=${POLDER_LIBKQUEUE:-}
    mkdir "$1"
    if [ -z "$from" ]; then
        need git git &&
            git clone --quiet https://github.com/mheily/libkqueue "$work/clone" &&
            git -C "$work/clone" archive "$commit" | tar -C "$1" -x
    elif [ -d "$from" ]; then
        tar -C "$from" --exclude=./.git -c . | tar -C "$1" -x
    else
        case $from in
            *.xz) need xz xz-utils ;;
        esac
        tar -C "$1" --strip-components=1 -xf "$from"
    fi
}

# What is built depends on the source and on what is put beside it here.
unpack "$work/source" || {
    echo "$0: the source of libkqueue cannot be had: neither from POLDER_LIBKQUEUE nor from GitHub" >&2
    exit 3
}
cp ci/libkqueue/shim.c "$work/source/"
key=$( (cd "$work/source" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 cat && cat "$OLDPWD/ci/kqueue.sh") | sha256sum | cut -c1-16)
library="$cache/libkqueue-$key/libkqueue.a"
if [ ! -f "$library" ]; then
    need cmake cmake
    need make make
    need cc gcc
    echo 'target_sources(objlib PRIVATE shim.c)' >>"$work/source/CMakeLists.txt"
    # The two calls are the shim's: see there.
    {
        cmake -S "$work/source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release \
            -DENABLE_TESTING=NO -DENABLE_SHARED=NO \
            -DCMAKE_C_FLAGS='-Dgetsockopt=polder_getsockopt -Depoll_wait=polder_epoll_wait' &&
            cmake --build "$work/build" --target kqueue_static
    } >"$work/log" 2>&1 || {
        tail -n 30 "$work/log" >&2
        echo "$0: libkqueue cannot be built" >&2
        exit 1
    }
    mkdir -p "$(dirname "$library")"
    mv "$work/build/libkqueue.a" "$library"
fi

export CARGO_TARGET_DIR="$cache/kqueue"
export RUSTFLAGS="--cfg polder_libkqueue -C link-arg=$library ${RUSTFLAGS:-}"
export RUSTDOCFLAGS="--cfg polder_libkqueue -C link-arg=$library ${RUSTDOCFLAGS:-}"

if [ "$mode" = --rules ]; then
    ci/rules.sh "$@"
    grep -q '^| rule | |.* kqueue |' docs/PLATFORM.md
    exit
fi

# Whatever else this does, it has not passed without the backend.
present=pollers::backends::libkqueue_is_among_the_backends
cargo test --test conformance --no-run
cargo test --quiet --test conformance -- --exact "$present" | tee "$work/present"
grep -q '^test result: ok. 1 passed' "$work/present" || {
    echo "$0: $present did not run" >&2
    exit 1
}

# Each test has a deadline of its own; the limits are for what would get round it.
if [ $# != 0 ]; then
    timeout 900 cargo test --test conformance -- "$@"
    exit
fi
if [ "$mode" = --short ]; then
    timeout 300 cargo test --lib
    timeout 900 cargo test --test conformance
    exit
fi
timeout 2400 cargo test
POLDER_BACKEND=kqueue ci/fuzz.sh
POLDER_BACKEND=kqueue ci/soak.sh
ci/storm.sh
