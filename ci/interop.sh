#!/usr/bin/env bash
# The programs in interop/ with real clients, and other people's crates inside polder. What the clients
# are is installed first, where apt-get or Homebrew can. INTEROP_CLIENTS has a missing one be an error.
set -euo pipefail
cd "$(dirname "$0")/.."

missing() {
    command -v curl >/dev/null || echo curl
    command -v openssl >/dev/null || echo openssl
    command -v wrk >/dev/null || echo wrk
    python3 -c 'import websockets' 2>/dev/null ||
        /usr/bin/python3 -c 'import websockets' 2>/dev/null || echo python3-websockets
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Names without spaces.
packages=$(missing)
if [ -n "$packages" ] && command -v apt-get >/dev/null; then
    as_root apt-get update
    # shellcheck disable=SC2086
    as_root apt-get install -y --no-install-recommends $packages
elif [ -n "$packages" ]; then
    for package in $packages; do
        case $package in
            python3-websockets)
                python3 -m pip install --user --break-system-packages websockets ;;
            *) brew install "$package" ;;
        esac
    done
fi

# Its build is reused, and a checkout of the repository does not end it.
export CARGO_TARGET_DIR="${XDG_CACHE_HOME:-$HOME/.cache}/polder-ci/interop-target"
export INTEROP_CLIENTS=1

cd interop
cargo fmt --check
cargo clippy --all-targets -- -D warnings
cargo test
