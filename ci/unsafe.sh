#!/usr/bin/env bash
# Writes docs/UNSAFE.md: every `unsafe` of the library, by the reason for it.
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
find src -name '*.rs' | LC_ALL=C sort | xargs awk -v errors="$work/errors" '
    function reason(text) {
        if (text ~ /spawn_local_on|new_at|spawn_unchecked|Runnable/) return "task"
        if (text ~ /borrow_raw|LentDescriptor|Io::lent|from_raw_fd|from_raw_socket|IoSafe|\.add_with_mode/) return "io"
        if (text ~ /libc::|CStr::from_ptr|WSA|ioctlsocket|select\(|zeroed|MaybeUninit|rustix|impl S(end|ync) for Buffer|low_level::register/) return "kernel"
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
    FNR == 1 { comment = ""; kept = "" }
    /^ *\/\/[\/!]/ { if (comment == "") next }
    /^ *\/\/ / {
        words = $0
        sub(/^ *\/\/ */, "", words)
        comment = (words ~ /^SAFETY:/ || comment == "") ? words : comment " " words
        next
    }
    comment ~ /SAFETY:/ { kept = comment; kept_at = FNR }
    { comment = "" }
    {
        for (i = 2; i <= waiting; i++) pending_text[i] = pending_text[i] " " $0
    }
    /(^|[^a-z_])unsafe (fn|trait) / || /async unsafe fn / {
        name = $0
        sub(/.*unsafe (fn|trait) /, "", name)
        sub(/[^A-Za-z_0-9].*/, "", name)
        print "duty\t" FILENAME "\t`" name "`"
        next
    }
    /(^|[^a-z_])unsafe (impl|\{)/ || /(^|[^a-z_])unsafe$/ {
        if (kept == "" || FNR - kept_at > 4) {
            print FILENAME ":" FNR ": no SAFETY comment is near" >errors
            next
        }
        # What the block does stands here and on the next lines.
        text = kept " " $0
        for (i = 0; i < 3 && $0 !~ /}/; i++) {
            if ((getline) <= 0) break
            text = text " " $0
            if ($0 ~ /^ *}/) break
        }
        why = reason(text)
        if (why == "") print FILENAME ":" FNR ": to which reason does this belong? " text >errors
        print why "\t" FILENAME "\t" first(kept)
    }
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

Every `unsafe` in `src/`, tests within it included, by the reason for it. Written by `ci/unsafe.sh`, and checked by `ci/lint.sh`:
a place that belongs to none of these reasons, or has no `// SAFETY:` comment, fails there. The words are the beginnings of these comments.
END
    table kernel "Calls of the kernel" \
        "System calls that no safe wrapper has, and memory that the kernel fills." "why it is sound"
    table io "I/O safety" \
        "Descriptors that are known by number, or lent for longer than a borrow can say." "why it is sound"
    table task "async-task" \
        "A task's scheduling function and lifetime are promised to async-task, which cannot check them." "why it is sound"
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
