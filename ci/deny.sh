#!/usr/bin/env bash
# What the library depends on: licences, sources, versions that stand twice, and known vulnerabilities,
# by deny.toml; and what polder-top does, by crates/polder-top/deny.toml. Advisories come from GitHub; where
# that cannot be reached, all but these is checked, and the script says so.
set -euo pipefail
cd "$(dirname "$0")/.."

. ci/tool.sh
tool cargo-deny 0.20.2

# packages CHECK…: of both.
packages() {
    cargo deny --all-features check "$@"
    cargo deny --manifest-path crates/polder-top/Cargo.toml --config crates/polder-top/deny.toml check "$@"
}

packages bans licenses sources
if [ "${TOOLS_REQUIRED:-0}" = 1 ] || within 30 git ls-remote -q https://github.com/rustsec/advisory-db HEAD >/dev/null 2>&1; then
    packages advisories
else
    not_run "advisories, since GitHub cannot be reached"
fi
