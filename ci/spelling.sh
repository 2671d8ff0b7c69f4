#!/usr/bin/env bash
# Looks for words that are spelled wrong, in code, comments and pages. Exceptions are in _typos.toml.
set -euo pipefail
cd "$(dirname "$0")/.."

. ci/tool.sh
tool typos-cli 1.52.0
typos
