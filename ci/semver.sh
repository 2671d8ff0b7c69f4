#!/usr/bin/env bash
# The public interface, compared with that of the last tag `v*`: what breaks it needs a version that says
# so. Before the first tag there is nothing to compare with.
set -euo pipefail
cd "$(dirname "$0")/.."

baseline=$(git -c versionsort.suffix=- tag --list 'v*' --sort=-version:refname --merged HEAD | head -1)
if [ -z "$baseline" ]; then
    echo "$0: there is no tag v* yet, and so no baseline"
    exit 0
fi

. ci/tool.sh
tool cargo-semver-checks 0.51.0
cargo semver-checks --package polder --baseline-rev "$baseline" --all-features
cargo semver-checks --package polder-sim --baseline-rev "$baseline"
