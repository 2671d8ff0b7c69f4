#!/usr/bin/env bash
# Writes docs/UNSAFE.md: every `unsafe` of the library and of the packages in crates/, by the reason for it.
#
#     ci/unsafe.sh [--check]
#
# With --check it changes nothing, and fails where the page is not what it should be. A block without a
# `// SAFETY:` comment, or one that belongs to no reason below, is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

page=docs/UNSAFE.md
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

# Tells a block by its first lines and its comment. Rows: reason, file, kind, what the comment begins with.
find src crates -name '*.rs' | LC_ALL=C sort | xargs awk -v errors="$work/errors" '
    function reason(text) {
        if (text ~ /ManuallyDrop::drop|Box::from_raw\(new\)|&\*new|Arc::as_ptr|Ordering::Acquire\)\.as_ref/) return "fork"
        if (text ~ /transmute/) return "scope"
        if (text ~ /spawn_local_in|task::new\(|unsafe fn new<F>|new\(shared, affinity|allocate\(|spawn_unchecked|Runnable|TaskRef|self\.header|(T|Box)::from_raw/) return "task"
        if (text ~ /borrow_raw|sys::lend|Io::borrowed|from_raw_fd|from_raw_socket|IoSafe|poller\.register|\.add_with_mode/) return "io"
        if (text ~ /libc::|CStr::from_ptr|WSA|ioctlsocket|[gs]etsockopt\(|select\(|zeroed|MaybeUninit|assume_init|from_raw_parts|kevent\(|rustix|submission\(\)|impl S(end|ync) for (Epoll)?Buffer|low_level::register|asm!|pre_exec\(|WaitForSingleObject/) return "kernel"
        if (text ~ /__llvm_profile/) return "counters"
        if (text ~ /Waker::from_raw/) return "waker"
        return ""
    }
    # The first sentence, as far as it goes.
    function first(text) {
        sub(/^.*SAFETY: */, "", text)
        if (match(text, /\. /)) text = substr(text, 1, RSTART - 1)
        sub(/\.$/, "", text)
        gsub(/\|/, "\\|", text)
        return text
    }
    # All of one file, of which `line` has the lines.
    function file(    i, j, code, comment, kept, kept_at, name, text, why, words) {
        comment = kept = ""
        for (i = 1; i <= lines; i++) {
            if (line[i] ~ /^ *\/\/[\/!]/ && comment == "") continue
            if (line[i] ~ /^ *\/\/ /) {
                words = line[i]
                sub(/^ *\/\/ */, "", words)
                comment = (words ~ /^SAFETY:/ || comment == "") ? words : comment " " words
                continue
            }
            if (comment ~ /SAFETY:/) { kept = comment; kept_at = i }
            comment = ""
            code = line[i]
            sub(/^ *\/\/.*/, "", code)
            sub(/ \/\/ .*/, "", code)
            # One line may have several.
            while (match(code, /(^|[^A-Za-z_0-9])unsafe([^A-Za-z_0-9]|$)/)) {
                code = substr(code, RSTART + RLENGTH)
                if (code ~ /^(fn|trait) /) {
                    name = code
                    sub(/^(fn|trait) /, "", name)
                    sub(/[^A-Za-z_0-9].*/, "", name)
                    print "duty\t" path "\t`" name "`"
                    continue
                }
                # A declaration: its calls are counted. And the name of a function, in an attribute.
                if (code ~ /^(extern |no_mangle\))/) continue
                if (code !~ /^(impl|\{|$)/) {
                    print path ":" i ": what kind of `unsafe` is this?" >errors
                    continue
                }
                if (kept == "" || i - kept_at > 4) {
                    print path ":" i ": no SAFETY comment is near" >errors
                    continue
                }
                # What the block does stands here and on the next lines, which are read again.
                text = kept " " line[i]
                for (j = i + 1; j <= i + 3 && j <= lines && line[j - 1] !~ /}/; j++)
                    text = text " " line[j]
                why = reason(text)
                if (why == "") print path ":" i ": to which reason does this belong? " text >errors
                print why "\t" path "\t" first(kept)
            }
        }
    }
    FNR == 1 {
        if (lines) file()
        path = FILENAME
    }
    { line[lines = FNR] = $0 }
    END { file() }
' >"$work/rows"
if [ -s "$work/errors" ]; then
    cat "$work/errors" >&2
    exit 1
fi

# section REASON: its rows, a file each.
section() {
    awk -F'\t' -v reason="$1" '
        $1 == reason {
            if (!($2 in count)) order[++files] = $2
            count[$2]++
            if (!(($2, $3) in seen)) {
                seen[$2, $3]
                words[$2] = words[$2] (words[$2] == "" ? "" : "; ") $3
            }
        }
        END {
            for (i = 1; i <= files; i++)
                print "| `" order[i] "` | " count[order[i]] " | " words[order[i]] " |"
        }
    ' "$work/rows"
}

total() {
    awk -F'\t' -v reason="$1" '$1 == reason { n++ } END { print n + 0 }' "$work/rows"
}

table() {
    echo
    echo "## $2: $(total "$1")"
    echo
    echo "$3"
    echo
    echo "| file | places | $4 |"
    echo "|---|--:|---|"
    section "$1"
}

{
    cat <<'END'
# Unsafe code

Every `unsafe` in `src/` and `crates/`, tests within included, by the reason for it. Written by `ci/unsafe.sh`, and checked by `ci/lint.sh`:
a place that belongs to none of these reasons, or has no `// SAFETY:` comment, fails there. The words are the beginnings of these comments.
END
    table kernel "Calls of the kernel" \
        "System calls that no safe wrapper has, and memory that the kernel fills." "why it is sound"
    table io "I/O safety" \
        "Descriptors that are known by number, or lent for longer than a borrow can say." "why it is sound"
    table task "async-task" \
        "A task's scheduling function and lifetime are promised to async-task, which cannot check them." "why it is sound"
    table scope "Tasks that borrow" \
        "A scope erases the lifetime of what its tasks borrow, and waits for them." "why it is sound"
    table fork "Children of fork" \
        "Statics that neither wait nor are freed, and what a child does not drop since it is its parent's." "why it is sound"
    table counters "Counters of edges" \
        "Coverage counters of the program, which its own instructions change: only with \`--cfg polder_edges\`." "why it is sound"
    table waker "Wakers" \
        "Wakers of tests with functions of their own." "why it is sound"
    table duty "Duties of callers" \
        "Functions and traits that are unsafe to call or to implement; their documentation says what is asked." "what"
} >"$work/page"

if [ "${1:-}" = --check ]; then
    diff -u "$page" "$work/page" || {
        echo "$0: run it without --check" >&2
        exit 1
    }
else
    cat "$work/page" >"$page"
fi
