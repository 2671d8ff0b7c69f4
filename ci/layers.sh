#!/usr/bin/env bash
# Imports point down: a module of src/ names only modules below it, or beside it.
#
#     ci/layers.sh [--edges]
#
# Read are `crate::module` and what stands at the crate's root, in `use` and in the middle of code.
# Tests (of loom too) and comments may name whom they like. With --edges it prints which module names
# which, and how often.
#
# Files of the simulator, crates/polder-sim, of crates/polder-replay and of the poller must not import each
# other in a circle, but for the one that is named below. There each file imports a name from the file that defines it.
set -euo pipefail
cd "$(dirname "$0")/.."

# From the top down, a level a line. Those on one level may name each other, but for the last level,
# whose modules know nothing but themselves and what is right of them on the line.
# (The files of `event` and `signal` need no runtime; `event` stands with what a user awaits, and
# `signal` below what waits for SIGUSR1. Of the scheduler `event` uses the budget of its waiter.
# `blocking` makes tasks, which hold its calls.)
levels='
net fs process io time event testing checks
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
        split("block_on spawn spawn_local Handle Runtime TaskSet future", root, " ")
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

# Fails if files of a folder import each other in a circle: `no_circle crate's folder [module] [allowed]`.
# `allowed` is an import that would close one.
no_circle() {
    (cd "$1" && find "${2:-.}" -name '*.rs' ! -name '*tests.rs' | LC_ALL=C sort) |
        sed 's|^\./||' | (cd "$1" && xargs awk -v folder="$1" -v room="${2:-}" -v allowed="${3:-}" '
    # Returns the module of a file: world::tcp for world/tcp.rs, world for world/mod.rs.
    function module(file) {
        sub(/(\/mod)?\.rs$/, "", file)
        gsub("/", "::", file)
        return file
    }
    # Notes that this file imports the file with the longest beginning of a path.
    function import(path,    to, first) {
        gsub(/[ \n]/, "", path)
        sub(/(::)?(self|\*)?$/, "", path)
        first = path
        sub(/::.*/, "", first)
        if (first == "super") {
            to = from
            while (sub(/^super(::|$)/, "", path)) if (!sub(/::[a-z_]+$/, "", to)) to = ""
            path = to "::" path
            sub(/^::/, "", path)
        } else if (first == "crate") {
            sub(/^crate(::|$)/, "", path)
        } else if (first in imported) {
            sub(/^[a-z_]+/, imported[first], path)
        } else if ((from "::" first) in is_module) {
            path = from "::" path
        } else {
            return
        }
        # What follows in the file may begin with the name of a module that it imports.
        if (path in is_module) {
            first = path
            sub(/.*::/, "", first)
            imported[first] = path
        }
        if (room != "" && path !~ "^" room "(::|$)") return
        while (path != "" && !(path in is_module)) if (!sub(/::[A-Za-z0-9_]+$/, "", path)) path = ""
        if (path == "") {
            print folder "/" FILENAME ":" FNR ": name the file that defines it" | "cat >&2"
            bad++
        } else if (path != from && from " " path != allowed) {
            edges[from " " path] = 1
        }
    }
    # The same for each path of a tree, a::{b, c::{d, e}}.
    function tree(prefix, text,    i, c, depth, item, open) {
        text = text ","
        for (i = 1; i <= length(text); i++) {
            c = substr(text, i, 1)
            if (c == "{" && !depth++) { open = item; item = ""; continue }
            if (c == "}" && !--depth) { tree(prefix open, item); item = ""; open = "-"; continue }
            if (c == "," && !depth) {
                gsub(/^[ \n]+|[ \n]+$/, "", item)
                sub(/ as .*/, "", item)
                if (item != "") import(prefix item)
                item = open = ""
                continue
            }
            item = item c
        }
    }
    BEGIN { for (i = 1; i < ARGC; i++) is_module[module(ARGV[i])] = 1 }
    FNR == 1 { from = module(FILENAME); is_inner = 0; use = ""; split("", imported) }
    FILENAME == "lib.rs" || /^ *\/\// { next }
    # An inner module: that of the tests has no rules, and the paths of others begin elsewhere.
    /^(pub(\([a-z]+\))? )?mod [a-z_]+ \{$/ { is_inner = 1; is_test = /mod tests/; next }
    /^\}/ { is_inner = 0 }
    is_inner && is_test { next }
    !is_inner && /^(pub(\([a-z]+\))? )?use / { use = " "; sub(/^(pub(\([a-z]+\))? )?use /, "") }
    use != "" {
        use = use $0
        if (/;$/) { sub(/;$/, "", use); sub(/^ /, "", use); tree("", use); use = "" }
        next
    }
    {
        sub(/ \/\/ .*/, "")
        gsub(/"[^"]*"/, "")
        gsub(/pub\(in [a-z_:]+\)/, "")
        while (match($0, /([$A-Za-z0-9_]|::)+/)) {
            path = substr($0, RSTART, RLENGTH)
            $0 = substr($0, RSTART + RLENGTH)
            if (path ~ /^(crate|super|self)::/ && !(is_inner && path !~ /^crate/)) import(path)
            else if (!is_inner && path ~ /^[a-z_]+::/) import(path)
        }
    }
    END {
        if (bad) exit 1
        for (edge in edges) print edge
    }
') | tsort >/dev/null || {
        echo "files of $1/${2:-} import each other in a circle" >&2
        exit 1
    }
}

# A world has the plan of its faults, and the plan's actions are functions of the world.
no_circle crates/polder-sim/src '' 'state plan'
no_circle src poller
no_circle crates/polder-replay/src
