#!/usr/bin/env bash
# Imports point down: a module of src/ names only modules below it, or beside it.
#
#     ci/layers.sh [--edges]
#
# Read are `crate::module` and what stands at the crate's root, in `use` and in the middle of code.
# Tests (of loom too) and comments may name whom they like. With --edges it prints which module names
# which, and how often.
set -euo pipefail
cd "$(dirname "$0")/.."

# From the top down, a level a line. Those on one level may name each other, but for the last level,
# whose modules know nothing but themselves and what is right of them on the line.
# (The files of `event` and `signal` need no runtime; `event` stands with what a user awaits, and
# `signal` below what waits for SIGUSR1. Of the scheduler `event` uses the budget of its waiter.
# `blocking` makes tasks, which hold its calls.)
levels='
net fs io time event testing checks
runtime
diagnostics
signal task blocking
scheduler
reactor
telemetry
clock
poller
sys spans sync slab kernel loom
'

find src -name '*.rs' ! -path src/lib.rs | LC_ALL=C sort | xargs env LEVELS="$levels" awk -v edges="${1:-}" '
    BEGIN {
        lines = split(ENVIRON["LEVELS"], line, "\n")
        for (i = 1; i <= lines; i++) {
            modules = split(line[i], name, " ")
            if (modules) depth++
            for (j = 1; j <= modules; j++) {
                level[name[j]] = depth
                place[name[j]] = j
            }
        }
        # What is here again at the root.
        split("block_on spawn spawn_local spawn_named spawn_local_named Handle Runtime TaskSet future", root, " ")
        for (i in root) module_of[root[i]] = "runtime"
        split("Task FallibleTask unblock", root2, " ")
        for (i in root2) module_of[root2[i]] = "task"
        module_of["Timer"] = "time"
        module_of["Async"] = "io"
        module_of["Backend"] = "poller"
        module_of["stream"] = "-"
    }
    FNR == 1 {
        split(FILENAME, part, "/")
        from = part[2]
        sub(/\.rs$/, "", from)
        skipping = test = 0
        if (!(from in level)) {
            print FILENAME ": the module " from " has no level in ci/layers.sh"
            bad++
        }
    }
    # A module of tests: to the brace that closes it.
    skipping { if ($0 == close_at) skipping = 0; next }
    /^ *\/\// { next }
    /#\[cfg\(/ { test = /[(, ]test[,)]/ || (/loom/ && !/not\(loom\)/); next }
    test && /^ *(pub(\([a-z]+\))? )?mod [a-z_]+ \{$/ {
        close_at = $0
        sub(/[^ ].*/, "}", close_at)
        skipping = 1
        test = 0
        next
    }
    !/^ *#\[/ { test = 0 }
    # All names of `use crate::{a::…, b};` (rustfmt puts one that is too long on lines of its own).
    /crate::\{/ {
        print FILENAME ":" FNR ": name one module in each `use`, so that this check can read it"
        bad++
    }
    {
        rest = $0
        sub(/ \/\/ .*/, "", rest)
        while (match(rest, /crate::[A-Za-z_]+/)) {
            before = RSTART > 1 ? substr(rest, RSTART - 1, 1) : ""
            to = substr(rest, RSTART + 7, RLENGTH - 7)
            rest = substr(rest, RSTART + RLENGTH)
            if (before ~ /[A-Za-z_$]/) continue
            if (to in module_of) to = module_of[to]
            if (to == "-" || to == from) continue
            count[from " -> " to]++
            if (!(to in level)) {
                print FILENAME ":" FNR ": what is crate::" to "?"
                bad++
            } else if (level[to] < level[from] || level[to] == level[from] && level[to] == depth && place[to] < place[from]) {
                print FILENAME ":" FNR ": " from " is below " to " and names it"
                bad++
            }
        }
    }
    END {
        if (edges != "") for (edge in count) print count[edge] "\t" edge | "sort -k2"
        close("sort -k2")
        if (bad) {
            print bad " imports that do not point down" | "cat >&2"
            exit 1
        }
    }
'
