#!/usr/bin/env bash
# Type-checks the library, its tests and the examples for platforms that this machine is not:
#
#     ci/cross.sh [TARGET…]
#
# A target's standard library comes from rustup, or else is type-checked too, from the source that
# Debian packages. TOOLS=debian does that in any case.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=("$@")
if [ ${#targets[@]} = 0 ]; then
    targets=(aarch64-apple-darwin x86_64-unknown-freebsd)
fi

# A standard library takes its time; the build is reused.
cache="${XDG_CACHE_HOME:-$HOME/.cache}/polder-ci"

# Where it cannot be reached, rustup takes long to say so. (macOS has no `timeout`.)
briefly() {
    if command -v timeout >/dev/null; then timeout 90 "$@"; else "$@"; fi
}

with_rustup() {
    [ "${TOOLS:-}" != debian ] && command -v rustup >/dev/null || return 1
    rustup target list --installed | grep -qx "$1" || briefly rustup target add "$1"
}

# Debian's compiler, its cargo, and the standard library's source, all of one version.
debian() {
    [ -x /usr/bin/rustc ] && [ -x /usr/bin/cargo ] && [ -d /usr/lib/rustlib/src/rust/library ] &&
        return
    command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || {
        echo "ci/cross.sh: rustup has no $1; Debian's rustc-web, cargo-web and rust-web-src would do" >&2
        return 1
    }
    apt-get update
    apt-get install -y --no-install-recommends rustc-web cargo-web rust-web-src
}

for target in "${targets[@]}"; do
    echo "-- $target"
    if with_rustup "$target"; then
        CARGO_TARGET_DIR="$cache/cross-rustup" cargo check --all-targets --target "$target"
    else
        debian "$target"
        # Building the standard library is an unstable option of a stable cargo.
        CARGO_TARGET_DIR="$cache/cross-debian" RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 \
            /usr/bin/cargo check --all-targets -Zbuild-std=std --target "$target"
    fi
done
