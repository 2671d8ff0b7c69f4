#!/usr/bin/env bash
# A program's numbers, read by Prometheus: the test in tests/scrape.rs, which starts it and asks it what it has
# read, with which types; and promtool, which has nothing to say of the text.
#
# Prometheus is taken from Debian's package where it is missing. That is not installed: it would start it as a
# service.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
find_prometheus() {
    if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
        dirname "$(command -v prometheus)"
        return
    fi
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || return
    (
        cd "$work"
        # The lists of packages may be missing, or old.
        apt-get download prometheus || { as_root apt-get update && apt-get download prometheus; }
        dpkg -x prometheus_*.deb .
    ) >&2 || return
    echo "$work/usr/bin"
}

folder=$(find_prometheus) || {
    not_run "a scrape by Prometheus, which is not here, and cannot be had"
    exit 0
}
cargo test --test scrape --no-run
POLDER_PROMETHEUS=$folder timeout 120 cargo test --test scrape
