#!/usr/bin/env bash
# Scripts that parse, workflows, links, plain English, README's figures, formatting, imports that point down, budgets of lines, the width
# of comments, the page of unsafe code, lints, what the documentation of each public item needs, and no broken link in it.
set -euo pipefail
cd "$(dirname "$0")/.."

# Comments of at most 100 columns: rustfmt's stable options leave them as they are. Tables and the hidden
# lines of examples cannot be broken.
comments_fit() {
    local wide
    wide=$(find src tests examples benches interop crates -name target -prune -o -name '*.rs' -print0 |
        LC_ALL=C.UTF-8 xargs -0 grep -nE '^.{101,}' /dev/null | grep -E '^[^:]+:[0-9]+: *//' |
        grep -vE '^[^:]+:[0-9]+: *//[/!] +[#|]' || true)
    if [ -n "$wide" ]; then
        echo "$0: comments are wider than 100 columns:" >&2
        echo "$wide" >&2
        return 1
    fi
}

for script in .ci/run ci/*.sh; do
    bash -n "$script"
done

cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
cargo clippy --version >/dev/null 2>&1 || rustup component add clippy

ci/actions.sh
ci/links.sh
ci/prose.sh
ci/figures.sh --check
cargo fmt --all --check
ci/layers.sh
ci/lines.sh --check
comments_fit
ci/unsafe.sh --check
cargo clippy --all-targets -- -D warnings
cargo clippy -p polder-sim -p polder-stack --all-targets -- -D warnings
ci/documented.sh
PACKAGE=polder-sim ci/documented.sh
RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --all-features -p polder -p polder-sim
