#!/usr/bin/env bash
# Builds a test or a benchmark, and prints the path of its program.
#
#     ci/executable.sh test|bench NAME [ARGUMENT…]
set -euo pipefail
cd "$(dirname "$0")/.."

kind=$1 name=$2
shift 2
cargo "$kind" "--$kind" "$name" --no-run --message-format json "$@" |
    sed -n "s/.*\"executable\":\"\([^\"]*$name-[^\"]*\)\".*/\1/p" | tail -1
