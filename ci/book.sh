#!/usr/bin/env bash
# Builds the pages of docs/ as a book, by mdBook, into target/book (`book.toml`).
#
#     ci/book.sh [-d FOLDER]
#
# A link that leads out of docs/ has no place in the book: mdBook calls `ci/book.sh links`, which makes it a link to
# the repository, whose address is Cargo.toml's `repository`.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh

if [ "${1:-}" != links ]; then
    tool mdbook 0.5.4
    exec mdbook build "$@"
fi

# As mdBook asks whether this is for a kind of output: it is, for all.
[ "${2:-}" != supports ] || exit 0
# In the program are `"`, and standard input is the book.
PYTHONUTF8=1 python3 -c "$(
    cat <<'PY'
import json
import re
import sys
from pathlib import Path

REPOSITORY = re.search(r'^repository = "(.*)"', Path("Cargo.toml").read_text(), re.M)[1]


def address(link):
    path = link[2].split("#")[0]
    return f"{link[1]}{REPOSITORY}/{'tree' if Path(path).is_dir() else 'blob'}/HEAD/{link[2]}"


def walk(node):
    if isinstance(node, dict):
        return {
            key: re.sub(r"(\]\(|^\[[^]]+\]: )\.\./([^)\s]+)", address, value, flags=re.M) if key == "content" else walk(value)
            for key, value in node.items()
        }
    return [walk(value) for value in node] if isinstance(node, list) else node


json.dump(walk(json.load(sys.stdin)[1]), sys.stdout)
PY
)"
