#!/usr/bin/env bash
# Counts the lines of code of src/ by room, compares them with a budget, and writes the sentences of README.md and
# docs/DESIGN.md that have these numbers.
#
#     ci/lines.sh [--check]
#
# Prints a line for each room. With --check it changes nothing, and fails where a sentence is out of date. Blank
# lines, comments and modules of tests do not count. A budget is a limit with 3 % of room. One that is exceeded is an
# error: remove code, or raise it here and say in the commit what the new lines are worth.
set -euo pipefail
cd "$(dirname "$0")/.."

# `core` is what one reads to know how a task waits for a socket on Linux.
budgets='
core      8630
scheduler 3780
library   28700
process   850
worlds    13500
replay    3075
'

# The room and the lines of code of each file.
count() {
    find src crates/polder-sim/src crates/polder-replay/src \( -name timeline -o -name linearizable -o -name power_loss \) -prune -o -name '*.rs' ! -name libc_answers.rs ! -name '*_tests.rs' -print | LC_ALL=C sort | xargs awk '
        FNR == 1 { is_test = depth = 0; test_is_next = 0 }
        { text = $0; gsub(/^[ \t]+|[ \t]+$/, "", text) }
        text == "" || text ~ /^\/\// { next }
        is_test {
            depth += gsub(/\{/, "{", text) - gsub(/\}/, "}", text)
            is_test = depth > 0
            next
        }
        text ~ /^#\[cfg\((test|all\(test|all\(loom|loom|any\(test)/ { test_is_next = 1; next }
        test_is_next && text ~ /^#\[/ { next }
        test_is_next {
            test_is_next = 0
            if (text ~ /^(pub(\([a-z]+\))? )?mod [a-z_]+ \{/) {
                is_test = depth = 1
                next
            }
        }
        { lines[FILENAME]++ }
        END { for (file in lines) print lines[file], file }'
}

counted=$(count)
# sum PATTERN [EXCEPT]: the lines of the files whose path matches.
sum() {
    awk -v pattern="$1" -v except="${2:-^$}" '$2 ~ pattern && $2 !~ except { lines += $1 } END { print lines + 0 }' <<<"$counted"
}

worlds='^crates/polder-sim/src/'
replay='^crates/polder-replay/src/'
core='^src/(scheduler|reactor|poller|task)/'
# The backends, but for epoll and what it uses.
others='^src/poller/backends/(async_io|io_uring|kqueue|fd_table|long_timeout|poll|polling|select|custom|table)(\.rs|/)'
# The lines of a budget. (macOS has a bash without arrays by name.)
lines() {
    case $1 in
        core) sum "$core" "$others" ;;
        scheduler) sum '^src/scheduler/' ;;
        library) sum . "$worlds|$replay|^src/process/" ;;
        process) sum '^src/process/' ;;
        worlds) sum "$worlds" ;;
        replay) sum "$replay" ;;
    esac
}

awk '{ split($2, part, "/"); lines[part[1] == "src" ? part[2] : part[2] "/" part[4]] += $1 } END { for (room in lines) printf "%6d %s\n", lines[room], room }' \
    <<<"$counted" | sort -rn

status=0
while read -r name budget; do
    [ -n "$name" ] || continue
    now=$(lines "$name")
    echo "$name: $now of $budget"
    if [ "$now" -gt "$budget" ]; then
        echo "$0: $name exceeds its budget" >&2
        status=1
    fi
done <<<"$budgets"

# rounded N: to hundreds, with a comma.
rounded() {
    awk -v n="$1" 'BEGIN { n = int((n + 50) / 100) * 100; printf "%d,%03d", n / 1000, n % 1000 }'
}
# says FILE BEFORE NUMBER: the number after BEFORE in FILE is this one.
says() {
    local found
    found=$(grep -oE "$2[0-9,]+" "$1" | grep -oE '[0-9,]+$' | head -n 1 || true)
    if [ -z "$found" ]; then
        echo "$0: $1 does not say \"$2…\"" >&2
        status=1
    elif [ "$found" = "$3" ]; then
        return
    elif [ "$check" ]; then
        echo "$0: $1 says \"$2$found\", but it is $3: run ci/lines.sh" >&2
        status=1
    else
        sed -i -E "s/($2)$found/\1$3/" "$1"
    fi
}

check=$([ "${1:-}" != --check ] || echo yes)
all=$(sum "$core")
says README.md 'The core \(scheduler, reactor, task, one poller\) is ' "$(rounded "$(lines core)")"
says docs/DESIGN.md 'and `task`: about ' "$(rounded "$all")"
says docs/DESIGN.md 'without tests and comments, or ' "$(rounded "$(lines core)")"
says docs/DESIGN.md 'another ' "$(rounded $(($(sum .) - all)))"
says docs/DESIGN.md 'lines, including ' "$(rounded "$(lines worlds)")"
says docs/DESIGN.md 'simulated world and ' "$(rounded "$(sum '^src/diagnostics/')")"
exit "$status"
