#!/usr/bin/env bash
# What one operation costs in user mode, counted exactly: instructions, locked instructions, and the 64-byte
# lines of code that are touched each time. Compared with ci/instructions.txt:
#
#     ci/instructions.sh [--write | --short]
#     ci/instructions.sh --of N PROGRAM [ARGUMENT…]
#
# --write writes the file anew; --short leaves out what the feature kernel costs, which takes a build of its own.
# benches/instructions.rs is run with N and with 2 N operations. The figures hold for one
# compiler and one kind of processor, which the file names: elsewhere they are shown and not compared.
#
# --of counts one operation of any program, for benches/compare: it runs `PROGRAM ARGUMENT… N` and `PROGRAM ARGUMENT… 2N`
# under callgrind; the difference is N operations, without start and end. It prints four numbers of one operation:
# instructions, locked instructions of the program itself, 64-byte lines of code that are hot (one of their instructions
# ran at least N/2 times more), calls of `clock_gettime`. The kernel's work is not counted.
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
. ci/lib.sh

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

# of N PROGRAM ARGUMENT…
of() {
    local count=$1 locked
    program=$(cd "$here" && realpath "$2")
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
}

if [ "${1:-}" = --of ]; then
    of "${@:2}"
    exit
fi

# What it allocates, and asks of the kernel: optimised, since builds without optimisation box each task's future.
cargo test --release --test budgets

file=ci/instructions.txt
need valgrind valgrind && need objdump binutils || {
    not_run "instructions, since there is no valgrind or no objdump here, and none can be had"
    exit 0
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
program=$(executable bench instructions)

# In a pool an idle worker watches the others by the clock, more often per wake on a slower machine. Each read of the
# clock comes with this number of instructions, which are subtracted. (Measured: 906 instructions a wake with 0.04 reads
# of the clock, 911 with 0.06, 916 with 0.09, 921 with 0.12.)
PER_WATCH=180

# The figures of one kind of operation.
count() {
    local figures
    figures=$(ci/instructions.sh --of "$2" "$program" "$1")
    read -r instructions locks lines reads <<<"$figures"
    [ "$1" != wakes ] || instructions=$(awk "BEGIN { print $instructions - $PER_WATCH * $reads }")
    printf '%-8s %8.1f %8.2f %8d\n' "$1" "$instructions" "$locks" "$lines"
}

{
    echo "# User instructions, locked instructions and hot 64-byte lines of code of one operation, on epoll: written"
    echo "# by ci/instructions.sh --write, with this compiler for this target:"
    echo "# $(rustc -vV | sed -n 's/^release: /rustc /p; s/^host: //p' | sort -r | paste -sd' ')"
    for kind in tcp unix spawn yield timer reset; do
        count "$kind" 1000
    done
    # Two wakes in a pool of two workers. (So many that how the threads begin does not count.)
    count wakes 20000
} >"$work/figures"

if [ "${1:-}" = --write ]; then
    cp "$work/figures" "$file"
    cat "$file"
    exit
fi
cat "$work/figures"
compare() {
    if [ "$(sed -n 3p "$work/figures")" != "$(sed -n 3p "$file")" ]; then
        echo "$0: not compared: the figures in $file are those of $(sed -n '3s/^# //p' "$file")"
        return
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
        return 1
    }
}
compare
[ "${1:-}" != --short ] || exit 0
# The seam with no kernel installed: two per cent of a round trip, of a yield and of timers, four of a spawn. Of a
# round trip it is 40 of 2,294: whether the socket is another kernel's is asked four times. Asked once, before the loop
# of the attempts, the descriptor is kept in a register, and both builds cost more (2,323 and 2,345). Of a spawn's 34
# none is the seam's own code: the compiler does not inline a task's poll, which notes the panic that a task has ended
# with. (Inlined by force it costs each round trip 21.) Where the compiler is another one, it divides the code otherwise.
program=$(executable bench instructions --features kernel)
for kind in tcp unix spawn yield timer reset; do
    count "$kind" 1000
done | tee "$work/sim" | sed 's/$/   with the feature kernel/'
awk -v is_known="$([ "$(sed -n 3p "$work/figures")" != "$(sed -n 3p "$file")" ] || echo 1)" '
    /^#/ { next }
    NR == FNR { kernel[$1] = $2; next }
    {
        per_cent = is_known ? ($1 == "spawn" ? 4 : 2) : 6
        if ($2 > kernel[$1] * (1 + per_cent / 100)) {
            print $1 ": " $2 " instructions with the feature kernel, more than " per_cent " per cent above " kernel[$1]
            bad = 1
        }
    }
    END { exit bad }
' "$work/figures" "$work/sim" || {
    echo "$0: the feature kernel costs an operation too much" >&2
    exit 1
}
