# How to build for a platform that this machine is not: for ci/cross.sh and ci/windows.sh, which
# source this.
#
# A target's standard library comes from rustup, or else is built from the source that Debian
# packages, with the compiler and the cargo of that same version. TOOLS=debian does that in any case.

. ci/debian.sh

# Builds, a standard library among them, take their time, and are reused.
cache="${XDG_CACHE_HOME:-$HOME/.cache}/polder-ci"

# Where it cannot be reached, rustup takes long to say so. (macOS has no `timeout`.)
briefly() {
    if command -v timeout >/dev/null; then timeout 90 "$@"; else "$@"; fi
}

with_rustup() {
    [ "${TOOLS:-}" != debian ] && command -v rustup >/dev/null || return 1
    grep -qx "$1" <<<"$(rustup target list --installed)" && return
    grep -qx "$1" <<<"$(rustup target list)" && briefly rustup target add "$1"
}

# cargo_for TARGET CRATES COMMAND ARGUMENT…: runs cargo. CRATES are the parts of the standard library that
# are wanted where it has to be built.
cargo_for() {
    local target=$1 crates=$2 command=$3
    shift 3
    case "$target" in
        # Libraries are imported by name, with mingw's tools.
        *-windows-gnu) need /usr/bin/x86_64-w64-mingw32-gcc gcc-mingw-w64-x86-64 ;;
    esac
    if with_rustup "$target"; then
        CARGO_TARGET_DIR="$cache/cross-rustup" cargo "$command" --target "$target" "$@"
    else
        need /usr/lib/rustlib/src/rust/library rustc-web cargo-web rust-web-src
        # Building the standard library is an unstable option of a stable cargo.
        CARGO_TARGET_DIR="$cache/cross-debian" RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 \
            /usr/bin/cargo "$command" -Zbuild-std="$crates" --target "$target" "$@"
    fi
}
