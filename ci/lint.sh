#!/usr/bin/env bash
# Scripts that parse, formatting, imports that point down, the width of comments, the page of unsafe code,
# lints, and documentation without a broken link.
set -euo pipefail
cd "$(dirname "$0")/.."

# Comments of at most 100 columns: rustfmt's stable options leave them as they are. Files that are yet to
# be brought there are in ci/wide.txt; one that no longer needs to be is a failure as well.
comments_fit() {
    local wide
    wide=$(find src tests examples benches interop -name target -prune -o -name '*.rs' -print0 |
        LC_ALL=C.UTF-8 xargs -0 grep -nE '^.{101,}' /dev/null | grep -E '^[^:]+:[0-9]+: *//' || true)
    diff -u --label ci/wide.txt --label "files with wide comments" \
        <(grep -v '^#' ci/wide.txt) <(sed -n 's/:.*//p' <<<"$wide" | LC_ALL=C sort -u) || {
        echo "$0: comments are wider than 100 columns (+), or no longer (-)" >&2
        return 1
    }
}

for script in .ci/run ci/*.sh; do
    bash -n "$script"
done

cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
cargo clippy --version >/dev/null 2>&1 || rustup component add clippy

cargo fmt --check
ci/layers.sh
comments_fit
ci/unsafe.sh --check
cargo clippy --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --all-features
