#!/usr/bin/env bash
# Runs clippy on the library, its tests and the examples for platforms that this machine is not, builds the
# documentation for them, which has to be complete (`ci/documented.sh`), and accepts no warning:
#
#     ci/cross.sh [--short | TARGET…]
#
# --short: of some targets the library alone, without its documentation.
# See `cargo_for` in ci/lib.sh for where their standard libraries come from. Debian's compiler has neither clippy nor
# rustdoc: what it compiles is type-checked.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh

# Those that are like another one but for their poller's details.
alike=()
if [ "${1:-}" = --short ]; then
    alike=(x86_64-unknown-{freebsd,netbsd,openbsd,illumos})
    shift
fi
targets=("$@")
if [ ${#targets[@]} = 0 ]; then
    targets=(
        aarch64-apple-darwin
        x86_64-unknown-freebsd
        x86_64-unknown-netbsd
        x86_64-unknown-openbsd
        x86_64-unknown-illumos
        x86_64-pc-windows-gnu
    )
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT

for target in "${targets[@]}"; do
    start=$SECONDS
    echo "-- $target"
    parts=std,test what=--all-targets
    [[ " ${alike[*]-} " != *" $target "* ]] || parts=std what=--lib
    check=check
    ! with_rustup "$target" || { component clippy && check=clippy; }
    CARGO_TERM_COLOR=never cargo_for "$target" "$parts" "$check" "$what" 2>&1 | tee "$log"
    # Elsewhere it is empty, and its command says so.
    CARGO_TERM_COLOR=never cargo_for "$target" "$parts" "$check" "$what" -p polder-replay 2>&1 | tee -a "$log"
    case "$target" in
        # Their kqueue is ours; what the polling crate makes of it is a feature.
        *-apple-* | *-freebsd)
            CARGO_TERM_COLOR=never cargo_for "$target" "$parts" "$check" --lib --features polling 2>&1 | tee -a "$log" ;;
    esac
    # Those of the standard library, where it is built too, are not ours.
    if grep -qE '^warning: `(polder|polder-sim|polder-stack|polder-replay)`' "$log"; then
        echo "$0: there are warnings for $target" >&2
        exit 1
    fi
    if [ ${#alike[@]} = 0 ] && with_rustup "$target"; then
        RUSTDOCFLAGS="-D warnings" cargo_for "$target" std doc --no-deps --all-features
        CARGO_TARGET_DIR="$cache/cross-rustup" ci/documented.sh "$target"
    fi
    echo "-- $target: $((SECONDS - start)) s"
done
