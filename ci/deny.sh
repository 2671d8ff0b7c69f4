#!/usr/bin/env bash
# What the library depends on: licences, sources, versions that stand twice, and known vulnerabilities,
# by deny.toml. Advisories come from GitHub; where that cannot be reached, all but these is checked, and
# the script says so.
set -euo pipefail
cd "$(dirname "$0")/.."

. ci/tool.sh
tool cargo-deny 0.20.2

cargo deny --all-features check bans licenses sources
if [ "${TOOLS_REQUIRED:-0}" = 1 ] || within 30 git ls-remote -q https://github.com/rustsec/advisory-db HEAD >/dev/null 2>&1; then
    cargo deny --all-features check advisories
else
    not_run "advisories, since GitHub cannot be reached"
fi
