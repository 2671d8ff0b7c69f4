#!/usr/bin/env bash
# Writes README's table of figures: of the lines with which docs/PERFORMANCE.md opens those whose first cell README
# has. benches/compare runs this when it has written that page, so both are of the same run. With
#
#     ci/figures.sh --check
#
# nothing is written, and it fails if the tables differ.
set -euo pipefail
cd "$(dirname "$0")/.."

written=$(mktemp)
trap 'rm -f "$written"' EXIT
# The page's table is its first one; README's is the one with the same columns.
awk -F ' *[|] *' -v script="$0" '
    FNR == NR {
        if (/^[|]/ && !is_over) {
            if (!columns) columns = NF
            row[$2] = $0
            is_in = 1
        } else if (is_in) {
            is_over = 1
        }
        next
    }
    /^[|]/ && $2 == "" && $3 == "polder" && NF == columns { is_table = 1 }
    !/^[|]/ { is_table = 0 }
    !is_table { print; next }
    !($2 in row) {
        print script ": docs/PERFORMANCE.md opens with no line \"" $2 "\", which README.md has" > "/dev/stderr"
        status = 1
    }
    { lines++; print row[$2] }
    END {
        if (lines < 3) {
            print script ": README.md has no table of figures" > "/dev/stderr"
            status = 1
        }
        exit status
    }' docs/PERFORMANCE.md README.md >"$written"
if [ "${1:-}" != --check ]; then
    cp "$written" README.md
elif ! diff README.md "$written" >&2; then
    echo "$0: README.md's figures are not those of docs/PERFORMANCE.md: run ci/figures.sh" >&2
    exit 1
fi
