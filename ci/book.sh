#!/usr/bin/env bash
# Builds README.md and the pages of docs/ as a book, by mdBook, into target/book (`book.toml`).
#
#     ci/book.sh [-d FOLDER]
#
# mdBook knows docs/ alone. So it calls `ci/book.sh pages`, which puts README.md first, and makes links that lead out of
# docs/ links to the repository, whose address is Cargo.toml's `repository`.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh

if [ "${1:-}" != pages ]; then
    tool mdbook 0.5.4
    exec mdbook build "$@"
fi

# As mdBook asks whether this is for a kind of output: it is, for all.
[ "${2:-}" != supports ] || exit 0
# Standard input is the book.
PYTHONUTF8=1 python3 -c "$(
    cat <<'PY'
import json
import re
import sys
from os.path import normpath
from pathlib import Path

REPOSITORY = re.search(r'^repository = "(.*)"', Path("Cargo.toml").read_text(), re.M)[1]
LINK = re.compile(r'(\]\(|^\[[^]]+\]: |src=")([^)#"\s]+)', re.M)


def links(text, folder):
    """The text, which is in that folder, with the links of the book."""

    def link(found):
        path = Path(normpath(f"{folder}/{found[2]}"))
        if not path.exists():
            return found[0]
        if path.parts[:1] == ("docs",):
            return found[1] + str(path.relative_to("docs"))
        return f"{found[1]}{REPOSITORY}/{'tree' if path.is_dir() else 'blob'}/HEAD/{path}"

    return LINK.sub(link, text)


book = json.load(sys.stdin)[1]
# (No page of docs/SUMMARY.md is below another.)
for item in book["items"]:
    if page := item.get("Chapter"):
        page["content"] = links(page["content"], "docs")
first = {"name": "polder", "content": links(Path("README.md").read_text(), "."), "number": None, "sub_items": []}
first |= {"path": "README.md", "source_path": None, "parent_names": []}
book["items"].insert(0, {"Chapter": first})
json.dump(book, sys.stdout)
PY
)"
