#!/usr/bin/env bash
# What one operation costs in user mode, counted exactly:
#
#     ci/callgrind.sh N PROGRAM [ARGUMENT…]
#
# runs `PROGRAM ARGUMENT… N` and `PROGRAM ARGUMENT… 2N` under callgrind; the difference is N operations, without
# start and end. Prints four numbers of one operation: instructions, locked instructions of the program itself,
# 64-byte lines of code that are hot (one of their instructions ran at least N/2 times more), calls of
# `clock_gettime`. The kernel's work is not counted.
# (Used by ci/instructions.sh and benches/compare, which see to it that valgrind and objdump are there.)
set -euo pipefail

count=$1 program=$(realpath "$2")
shift 2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Addresses of locked instructions. (An exchange with memory is one without saying so.) Kept beside the program:
# a large one takes seconds.
locked=$program.locked
if [ ! "$locked" -nt "$program" ]; then
    objdump -d --no-show-raw-insn "$program" |
        awk '/\tlock |\txchg .*\(/ { sub(":", "", $1); print "0x" $1 }' >"$work/locked"
    mv "$work/locked" "$locked"
fi

# How often each instruction ran (object, address, count), and the clock was read.
profile() {
    valgrind --tool=callgrind --callgrind-out-file="$work/profile" --dump-instr=yes --dump-line=no \
        --compress-pos=no --compress-strings=no "$program" "$@" >"$work/said" 2>&1 || {
        cat "$work/said" >&2
        exit 1
    }
    # What the program says where it cannot run.
    if grep -m 1 '^skipped ' "$work/said" >&2; then exit 1; fi
    awk '
        /^ob=/ { object = $0 }
        /^cfn=/ { clock = /^cfn=(__)?clock_gettime(@|$)/ }
        # The cost of what was called is on the next line.
        /^calls=/ { if (clock) { sub("calls=", "", $1); reads += $1 }; clock = 0; getline; next }
        /^0x/ { count[object " " $1] += $2 }
        END { for (place in count) print place, count[place]; print "clock reads", reads + 0 }
    ' "$work/profile"
}

profile "$@" "$count" >"$work/few"
profile "$@" $((count * 2)) >"$work/many"
awk -v n="$count" -v program="$program" '
    FILENAME == ARGV[1] { locked["ob=" program " " $1] = 1; next }
    FILENAME == ARGV[2] { few[$1 " " $2] = $3; next }
    $1 == "clock" { reads = $3 - few[$1 " " $2]; next }
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
    END { printf "%.1f %.2f %d %.2f\n", instructions / n, locks / n, lines, reads / n }
' "$locked" "$work/few" "$work/many"
