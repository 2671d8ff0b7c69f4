#!/usr/bin/env bash
# Writes the table of rules and backends into docs/PLATFORM.md, from what the suite says as it runs:
#
#     ci/rules.sh [--check]
#
# With --check it changes nothing, and fails where the table is not what it should be. The columns
# are the backends of the machine that it runs on: Linux, for the table that is kept, and with kqueue, as
# ci/kqueue.sh --rules has it; and the simulated world, for which it says how many of a rule's tests run there.
set -euo pipefail
cd "$(dirname "$0")/.."

page=docs/PLATFORM.md
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

# A test that runs alone would have no thread of its own, and so no name.
POLDER_RULES="$work/passed" cargo test --all-features --test conformance --test signals --test shutdown -- --test-threads=2
POLDER_RULES="$work/passed" cargo test -p polder-sim --test conformance -- --test-threads=2
cargo test --quiet --all-features --test conformance -- --list --format terse |
    sed -n 's/: test$//p' >"$work/tests"

awk -F'\t' -v tests="$work/tests" -v passed="$work/passed" '
    # Adds a footnote to the rule, once for the same words.
    function note(words) {
        if (!(words in number)) {
            notes[++count] = words
            number[words] = count
        }
        mark = mark "[^" number[words] "]"
    }
    function cell_of(column) {
        if (backend[column] != world) return asked + alone && on[column] == asked ? "✓" : "–"
        if (!on[column]) return "–"
        return on[column] == shown ? "✓" : on[column] "/" shown
    }
    function finish(  column, row) {
        if (rule == "") return
        row = "| " rule " | " title mark " |"
        for (column = 1; column <= columns; column++)
            row = row " " cell_of(column) " |"
        print row
    }
    # A test that is noted for no backend needs none, and has passed: the suite has.
    function show(test,  column, asks) {
        shown++
        for (column = 1; column <= columns; column++) {
            if (!((backend[column], test) in ok)) continue
            on[column]++
            if (backend[column] != world) asks = 1
        }
        if (asks) asked++
        else if (test in listed) alone++
    }
    BEGIN {
        world = "simulated"
        while ((getline line <tests) > 0) {
            all[++many] = line
            listed[line]
        }
        while ((getline line <passed) > 0) {
            split(line, field, "\t")
            if (field[3] != "ok") continue
            if (field[1] != world && !(field[1] in seen)) {
                seen[field[1]]
                backend[++columns] = field[1]
            }
            ok[field[1], field[2]]
        }
        backend[++columns] = world
        row = "| rule | |"
        rest = "|---|---|"
        for (column = 1; column <= columns; column++) {
            row = row " " backend[column] " |"
            rest = rest ":-:|"
        }
        print row
        print rest
    }
    /^#/ || /^$/ { next }
    /^[^ ]/ {
        finish()
        rule = $0; sub(/ .*/, "", rule)
        title = $0; sub(/^[^ ]* /, "", title)
        mark = ""; shown = asked = alone = 0; split("", on)
        next
    }
    { entry = substr($0, 3) }
    entry ~ /^note: / { note(substr(entry, 7)); next }
    entry ~ /^(in part|not yet): / { note(entry); next }
    entry ~ /\*$/ {
        prefix = substr(entry, 1, length(entry) - 1)
        for (i = 1; i <= many; i++) if (index(all[i], prefix) == 1) show(all[i])
        next
    }
    { sub(/^(signals|shutdown)::/, "", entry); show(entry) }
    END {
        finish()
        if (count) print ""
        for (i = 1; i <= count; i++) {
            words = notes[i]
            print "[^" i "]: " toupper(substr(words, 1, 1)) substr(words, 2) "."
        }
    }
' tests/conformance/rules.txt >"$work/table"

awk -v table="$work/table" '
    /^<!-- rules: end/ { inside = 0 }
    !inside { print }
    /^<!-- rules: begin/ {
        inside = 1
        while ((getline line <table) > 0) print line
    }
' "$page" >"$work/page"

if [ "${1:-}" = --check ]; then
    diff -u "$page" "$work/page"
else
    cat "$work/page" >"$page"
fi
