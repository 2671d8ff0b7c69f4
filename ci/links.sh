#!/usr/bin/env bash
# Links between the pages: each leads to a file, and to a heading where it names one. And the book
# (`book.toml`) has all pages of docs/.
set -euo pipefail
cd "$(dirname "$0")/.."

pages=$(git ls-files -co --exclude-standard '*.md')
broken=0

# A heading as GitHub and mdBook name it in links.
anchors() {
    sed -n 's/^##* *//p' "$1" | tr '[:upper:]' '[:lower:]' | tr -d "\`*,.:;()?!'\"/&" | tr ' ' '-'
}

for page in $pages; do
    while IFS= read -r link; do
        file=${link%%#*}
        target=$(dirname "$page")/$file
        [ -n "$file" ] || target=$page
        if [ ! -e "$target" ]; then
            echo "$0: $page: there is no $file" >&2
            broken=1
        elif [[ "$link" == *#* ]] && ! grep -qxF -e "${link#*#}" <<<"$(anchors "$target")"; then
            echo "$0: $page: $target has no heading #${link#*#}" >&2
            broken=1
        fi
    done < <(sed '/^ *```/,/^ *```/d' "$page" | grep -oE '\]\([^)[:space:]]+\)' | sed 's/^](//; s/)$//' |
        grep -vE '^[a-z]+:' || true)
done

for page in docs/*.md; do
    page=${page#docs/}
    if [ "$page" != SUMMARY.md ] && ! grep -qF "($page)" docs/SUMMARY.md; then
        echo "$0: docs/SUMMARY.md does not have $page" >&2
        broken=1
    fi
done
exit $broken
