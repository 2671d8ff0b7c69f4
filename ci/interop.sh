#!/usr/bin/env bash
# The adapters to other crates, the programs in interop/ with real clients, and other people's crates inside polder, some
# with their real servers. What these need is installed first, where apt-get or Homebrew can. A missing client is an
# error; a missing server is left out, and reported.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh

# here NAME: a program, or Python's package.
here() {
    case $1 in
        websockets)
            python3 -c 'import websockets' 2>/dev/null || /usr/bin/python3 -c 'import websockets' 2>/dev/null ;;
        postgres)
            # Its programs are in a folder of their version, which is not in PATH.
            for folder in /usr/lib/postgresql/*/bin /opt/homebrew/opt/postgresql@*/bin; do
                PATH="$PATH:$folder"
            done
            command -v postgres >/dev/null && command -v initdb >/dev/null ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

updated=
install() {
    local package
    case $1 in
        websockets) package=python3-websockets ;;
        dbus-send) package=dbus-bin ;;
        postgres) package=postgresql ;;
        *) package=$1 ;;
    esac
    may_install "$package" || return
    if command -v apt-get >/dev/null; then
        [ -n "$updated" ] || as_root apt-get update
        updated=1
        as_root apt-get install -y --no-install-recommends "$package"
    else
        case $1 in
            websockets) python3 -m pip install --user --break-system-packages websockets ;;
            redis-server) brew install redis ;;
            rabbitmq-server) brew install rabbitmq ;;
            postgres) brew install postgresql@17 ;;
            dbus-daemon | dbus-send) brew install dbus ;;
            *) brew install "$1" ;;
        esac
    fi
}

# What has to be there; the tests leave out the others, and say so.
INTEROP_CLIENTS=
for name in curl openssl wrk websockets; do
    here $name || install $name
    INTEROP_CLIENTS="$INTEROP_CLIENTS $name"
done
for name in redis-server postgres nats-server rabbitmq-server dbus-daemon dbus-send; do
    if here $name || install $name && here $name; then
        INTEROP_CLIENTS="$INTEROP_CLIENTS $name"
    else
        not_run "what needs $name, which cannot be installed"
    fi
done
export INTEROP_CLIENTS

# Libraries of other loops, which the programs in_glib and in_libuv need: pkg-config's name, and Debian's.
here pkg-config || install pkg-config || true
features=
for library in 'glib glib-2.0 libglib2.0-dev glib' 'libuv libuv libuv1-dev libuv'; do
    read -r feature name debian brew <<< "$library"
    package=$debian
    command -v apt-get >/dev/null || package=$brew
    if pkg-config --exists $name 2>/dev/null ||
        install $package && pkg-config --exists $name 2>/dev/null; then
        features="$features $feature"
    else
        not_run "the program in_$feature: $package cannot be installed"
    fi
done

# Its build is reused, and a checkout of the repository does not end it.
export CARGO_TARGET_DIR="${XDG_CACHE_HOME:-$HOME/.cache}/polder-ci/interop-target"

cd interop
cargo fmt --all --check
cargo clippy --workspace --all-targets --features "$features" -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --exclude interop
cargo test --workspace --features "$features"
# The world of all crates, with every seed twice; and its seeds once more in another process.
WORLD_SEEDS=60 POLDER_SIM_VERIFY=1 timeout 300 cargo test --workspace --features "$features" --test world
