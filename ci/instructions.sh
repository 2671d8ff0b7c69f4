#!/usr/bin/env bash
# What one operation costs in user mode, counted exactly: instructions, locked instructions, and the 64-byte
# lines of code that are touched each time. Compared with ci/instructions.txt:
#
#     ci/instructions.sh [--write]    the latter writes the file anew
#
# Callgrind runs benches/instructions.rs with N and with 2 N operations; the difference is N of them, without
# start and end. A line of code is hot if one of its instructions ran at least N/2 times more. The kernel's
# work is not counted. The figures hold for one compiler and one kind of processor, which the file names:
# elsewhere they are shown and not compared.
set -euo pipefail
cd "$(dirname "$0")/.."

file=ci/instructions.txt
. ci/debian.sh
. ci/not_run.sh
debian valgrind valgrind && debian objdump binutils || {
    not_run "instructions, since there is no valgrind or no objdump here, and none can be had"
    exit 0
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
program=$(cargo bench --bench instructions --no-run --message-format json |
    sed -n 's/.*"executable":"\([^"]*instructions-[^"]*\)".*/\1/p' | tail -1)

# Addresses of locked instructions. (An exchange with memory is one without saying so.)
objdump -d --no-show-raw-insn "$program" |
    awk '/\tlock |\txchg .*\(/ { sub(":", "", $1); print "0x" $1 }' >"$work/locked"

# How often each instruction ran: object, address, count.
profile() {
    valgrind --tool=callgrind --callgrind-out-file="$work/profile" --dump-instr=yes --dump-line=no \
        --compress-pos=no --compress-strings=no "$program" "$1" "$2" >"$work/said" 2>&1 || {
        cat "$work/said" >&2
        exit 1
    }
    awk '
        /^ob=/ { object = $0 }
        /^calls=/ { getline; next } # The cost of what was called.
        /^0x/ { count[object " " $1] += $2 }
        END { for (place in count) print place, count[place] }
    ' "$work/profile"
}

# The figures of one kind of operation.
count() {
    profile "$1" "$2" >"$work/few"
    profile "$1" $(($2 * 2)) >"$work/many"
    awk -v kind="$1" -v n="$2" -v program="$program" '
        FILENAME ~ /locked$/ { locked["ob=" program " " $1] = 1; next }
        FILENAME ~ /few$/ { few[$1 " " $2] = $3; next }
        {
            place = $1 " " $2
            more = $3 - few[place]
            instructions += more
            if (place in locked) locks += more
            if (more >= n / 2) {
                # 64 bytes: all but the last six bits.
                digits = length($2)
                high = int((index("0123456789abcdef", substr($2, digits - 1, 1)) - 1) / 4)
                line = $1 " " substr($2, 1, digits - 2) " " high
                if (!(line in seen)) { seen[line] = 1; lines++ }
            }
        }
        END { printf "%-8s %8.1f %8.2f %8d\n", kind, instructions / n, locks / n, lines }
    ' "$work/locked" "$work/few" "$work/many"
}

{
    echo "# User instructions, locked instructions and hot 64-byte lines of code of one operation, on epoll: written"
    echo "# by ci/instructions.sh --write, with this compiler for this target:"
    echo "# $(rustc -vV | sed -n 's/^release: /rustc /p; s/^host: //p' | sort -r | paste -sd' ')"
    for kind in tcp unix spawn yield timer; do
        count "$kind" 1000
    done
} >"$work/figures"

if [ "${1:-}" = --write ]; then
    cp "$work/figures" "$file"
    cat "$file"
    exit
fi
cat "$work/figures"
if [ "$(sed -n 3p "$work/figures")" != "$(sed -n 3p "$file")" ]; then
    echo "$0: not compared: the figures in $file are those of $(sed -n '3s/^# //p' "$file")"
    exit 0
fi
# One per cent, and where a line of code falls on another boundary, a few of those.
awk '
    /^#/ { next }
    NR == FNR { want[$1] = $2; locks[$1] = $3; lines[$1] = $4; next }
    function worse(what, is, was, by) {
        if (is > was + by) { print $1 ": " what " " is ", was " was; bad = 1 }
        else if (is < was - by) print $1 ": " what " " is ", was " was ": better; write it down (--write)"
    }
    {
        worse("instructions", $2, want[$1], want[$1] / 100)
        worse("locked instructions", $3, locks[$1], 0.1)
        worse("hot lines", $4, lines[$1], 3 + lines[$1] / 20)
    }
    END { exit bad }
' "$file" "$work/figures" || {
    echo "$0: an operation costs more than $file says" >&2
    exit 1
}
