#!/usr/bin/env bash
# The oldest compilers that are promised (`rust-version`):
#
#     ci/msrv.sh [library | packages | --short]
#
# `library`: that of Cargo.toml builds everything and passes the tests. It comes from rustup, or else, on
# Debian 12, from the packages of the same version, unpacked into a folder of their own: nothing is
# installed. TOOLS=debian takes those in any case.
#
# `--short`: it checks everything, and passes the unit tests.
#
# `packages`: interop, the adapters, polder-top and the packages in benches state one of their own, which compiles them, if rustup has it.
#
# Without an argument, both.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh

# stated FOLDER: the version that its Cargo.toml states.
stated() {
    local version
    version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$1/Cargo.toml")
    if [ -z "$version" ]; then
        echo "$0: $1/Cargo.toml states no rust-version" >&2
        return 1
    fi
    echo "$version"
}

version=$(stated .)
debian="$cache/debian-rustc-$version"

# Its build is reused, and must not displace that of the usual compiler.
export CARGO_TARGET_DIR="$cache/msrv-target"

has_version() {
    [ "${TOOLS:-}" != debian ] && command -v rustup >/dev/null || return 1
    rustup run "$version" rustc -V 2>/dev/null && return
    # Where it cannot be reached, rustup takes long to say so.
    may_install "Rust $version by rustup" && within 90 rustup toolchain install "$version" --profile minimal &&
        rustup run "$version" rustc -V
}

# The usual cargo with the old compiler: cargo asks it for its version, and takes dependencies that
# it can build.
unpack() {
    [ -x "$debian/usr/bin/rustc" ] && return
    may_install "Debian's Rust $version into $debian"
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

# A toolchain of that version that is installed, whatever its last number: `1.95` has no name of that
# kind where `1.95.0` was installed.
installed() {
    { rustup toolchain list 2>/dev/null || true; } | sed -n "s/^\(${1//./\\.}\(\.[0-9]*\)\{0,1\}-[^ ]*\).*/\1/p" | head -1
}

packages() {
    local folder wanted toolchain
    for folder in interop crates/polder-{async-rs,hickory,hyper,quinn,tokio,top,tor,zbus} benches/compare benches/simulators; do
        wanted=$(stated "$folder")
        toolchain=$(installed "$wanted")
        if [ -z "$toolchain" ]; then
            not_run "$folder with Rust $wanted, which rustup has not installed"
            continue
        fi
        echo "-- $folder: $toolchain"
        (cd "$folder" && CARGO_TARGET_DIR="$cache/msrv-packages" rustup run "$toolchain" cargo check --all-targets)
    done
}

case "${1:-}" in
    packages)
        packages
        exit
        ;;
    library | --short) ;;
    '') packages ;;
    *)
        echo "usage: $0 [library | packages | --short]" >&2
        exit 2
        ;;
esac

if has_version; then
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

"${cargo[@]}" check -p polder-sim -p polder-stack -p polder-replay
if [ "${1:-}" = --short ]; then
    "${cargo[@]}" check --all-targets
    "${cargo[@]}" test --lib
    exit
fi
# Documentation's examples are left to the usual compiler: this one takes minutes for them.
"${cargo[@]}" build --examples
"${cargo[@]}" test --lib --tests
