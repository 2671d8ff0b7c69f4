#!/usr/bin/env bash
# The oldest compiler that Cargo.toml promises (`rust-version`) builds everything and passes the
# tests. It comes from rustup, or else, on Debian 12, from the packages of the same version,
# unpacked into a folder of their own: nothing is installed. TOOLS=debian takes those in any case.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
cache="${XDG_CACHE_HOME:-$HOME/.cache}/polder-ci"
debian="$cache/debian-rustc-$version"

# Its build is reused, and must not displace that of the usual compiler.
export CARGO_TARGET_DIR="$cache/msrv-target"

# Where it cannot be reached, rustup takes long to say so. (macOS has no `timeout`.)
briefly() {
    if command -v timeout >/dev/null; then timeout 90 "$@"; else "$@"; fi
}

with_rustup() {
    [ "${TOOLS:-}" != debian ] && command -v rustup >/dev/null || return 1
    rustup run "$version" rustc -V 2>/dev/null && return
    briefly rustup toolchain install "$version" --profile minimal &&
        rustup run "$version" rustc -V
}

# The usual cargo with the old compiler: cargo asks it for its version, and takes dependencies that
# it can build.
unpack() {
    [ -x "$debian/usr/bin/rustc" ] && return
    rm -rf "$debian.new"
    mkdir -p "$debian.new/packages"
    (
        cd "$debian.new/packages"
        # apt's own user could not write here.
        apt-get -o APT::Sandbox::User=root download libllvm19 "rustc-web=$version.*" \
            "libstd-rust-web-$version=$version.*" "libstd-rust-web-dev=$version.*"
        for package in *.deb; do
            dpkg -x "$package" ..
        done
    )
    rm -r "$debian.new/packages"
    rm -rf "$debian"
    mv "$debian.new" "$debian"
}

if with_rustup; then
    cargo=(rustup run "$version" cargo)
elif command -v apt-get >/dev/null; then
    unpack
    lib="$debian/usr/lib"
    export LD_LIBRARY_PATH="$lib/$(uname -m)-linux-gnu:$lib/llvm-19/lib"
    export RUSTC="$debian/usr/bin/rustc"
    "$RUSTC" -V
    cargo=(cargo)
else
    echo "ci/msrv.sh: neither rustup nor apt-get has Rust $version" >&2
    exit 1
fi

# Documentation's examples are left to the usual compiler: this one takes minutes for them.
"${cargo[@]}" build --examples
"${cargo[@]}" test --lib --tests
