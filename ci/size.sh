#!/usr/bin/env bash
# How large a small program is: the echo server of benches/compare/small/polder, stripped, with the feature `net`
# alone and with the default features, and how many crates are linked into it. Compared with ci/size.txt, so that what
# was gained stays:
#
#     ci/size.sh [--write]    the latter writes the file anew
#
# A figure holds for one compiler and one target, which the file names: elsewhere sizes are shown and not compared. What
# most of the bytes are, and what is the standard library's: `nm --size-sort -S -C` of a build with
# CARGO_PROFILE_RELEASE_STRIP=false.
set -euo pipefail
cd "$(dirname "$0")/.."

file=ci/size.txt
program=benches/compare/small/polder
target=$PWD/target/size
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The figures of the program with these features. (What is measured is what a user gets: no flags of this machine's.)
measure() {
    local name=$1 crates
    shift
    (cd "$program" && env -u RUSTFLAGS cargo build --quiet --release --target-dir "$target" "$@")
    crates=$(cd "$program" && cargo tree --edges normal,no-proc-macro --prefix none "$@" | sed 's/ (.*//' | sort -u | wc -l)
    printf '%-8s %8d %4d\n' "$name" "$(wc -c <"$target/release/echo-polder")" $((crates - 1))
}

{
    echo "# Bytes of a stripped echo server, and the crates in it, by its features: written by ci/size.sh --write, with this"
    echo "# compiler for this target:"
    echo "# $(rustc -vV | sed -n 's/^host: //p'), rustc $(rustc -vV | sed -n 's/^release: //p')"
    measure net
    measure default --features polder/default
} >"$work/figures"

if [ "${1:-}" = --write ]; then
    cp "$work/figures" "$file"
    cat "$file"
    exit
fi
cat "$work/figures"
same=1
if [ "$(sed -n 3p "$work/figures")" != "$(sed -n 3p "$file")" ]; then
    echo "$0: sizes not compared: those in $file are those of $(sed -n '3s/^# //p' "$file")"
    same=0
fi
# Another target has other crates.
if [ "$(sed -n '3s/,.*//p' "$work/figures")" != "$(sed -n '3s/,.*//p' "$file")" ]; then
    exit 0
fi
# Two per cent for other versions of dependencies, and for how the compiler divides the code.
awk -v same="$same" '
    /^#/ { next }
    NR == FNR { size[$1] = $2; crates[$1] = $3; next }
    {
        if (same && $2 > size[$1] * 1.02) { print $1 ": " $2 " bytes, were " size[$1]; bad = 1 }
        if (same && $2 < size[$1] * 0.98) print $1 ": " $2 " bytes, were " size[$1] ": better; write it down (--write)"
        if ($3 > crates[$1]) { print $1 ": " $3 " crates, were " crates[$1]; bad = 1 }
    }
    END { exit bad }
' "$file" "$work/figures" || {
    echo "$0: a small program has become larger than $file says" >&2
    exit 1
}
