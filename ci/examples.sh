#!/usr/bin/env bash
# Every public item has an example, and every public function that returns a future says what dropping it does.
#
#     ci/examples.sh
#
# It reads rustdoc's JSON of all features, and names the items that lack something.
#
# An item is a module, a type, a trait, a function, a method (a trait's own ones too), a macro, a constant, a
# static or a type alias that can be named from outside of the crate. Fields, variants, associated types,
# implementations of traits, what is `#[doc(hidden)]` and what other crates define need no example. An example is a
# code block of Rust in the item's own documentation: that of its type does not count.
#
# A function returns a future if it is `async`, if it returns `impl Future`, or a type of this crate that implements
# `Future`. Its documentation, or that of this type, has to mention cancellation (`# Cancel safety`).
#
# The JSON is unstable, which RUSTC_BOOTSTRAP permits on stable. It is that of the platform it runs on: only Linux's
# is checked.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/not_run.sh

[ "$(uname)" = Linux ] || exit 0
if ! command -v python3 >/dev/null; then
    not_run "there is no python3"
    exit 0
fi

RUSTC_BOOTSTRAP=1 cargo rustdoc --quiet --lib --all-features -- -Z unstable-options --output-format json
python3 - "${CARGO_TARGET_DIR:-target}/doc/polder.json" <<'END'
import json, re, sys

# Words after ``` that still mean Rust, which rustdoc runs or compiles.
RUST = {"rust", "no_run", "should_panic", "compile_fail", "standalone_crate"}

with open(sys.argv[1]) as file:
    document = json.load(file)
index = document["index"]


def item_of(id):
    """An item of this crate."""
    item = index.get(str(id))
    return item if item and item["crate_id"] == 0 else None


def kind_of(item):
    (kind, inner), = item["inner"].items()
    # That of a macro is its text.
    return kind, inner if isinstance(inner, dict) else {}


def is_hidden(item):
    return any("doc(hidden)" in re.sub(r"\s", "", str(it)) for it in item["attrs"])


def has_example(item):
    is_inside = False
    for line in (item["docs"] or "").splitlines():
        line = line.strip()
        if line.startswith("```"):
            is_inside = not is_inside
            if is_inside and set(re.split(r"[\s,]+", line.lstrip("`"))) - {""} <= RUST:
                return True
    return False


def mentions_cancellation(item):
    return "cancel" in (item["docs"] or "").lower()


def is_future(path):
    return path["path"].split("::")[-1] == "Future"


def is_type_that_is_future(item):
    implementations = (item_of(it) for it in kind_of(item)[1].get("impls", []))
    traits = (kind_of(it)[1]["trait"] for it in implementations if it)
    return any(it and is_future(it) for it in traits)


def lacks_cancellation(item, function):
    if mentions_cancellation(item):
        return False
    output = function["sig"]["output"] or {}
    if function["header"]["is_async"]:
        return True
    if any(is_future(it["trait_bound"]["trait"]) for it in output.get("impl_trait", []) if "trait_bound" in it):
        return True
    type = item_of(output["resolved_path"]["id"]) if "resolved_path" in output else None
    return bool(type) and is_type_that_is_future(type) and not mentions_cancellation(type)


count = 0
problems = []
seen = set()


def check(item, name):
    global count
    count += 1
    kind, inner = kind_of(item)
    place = "{}:{}".format(item["span"]["filename"], item["span"]["begin"][0])
    if not has_example(item):
        problems.append(f"{place}: {name} has no example")
    if kind == "function" and lacks_cancellation(item, inner):
        problems.append(f"{place}: {name} does not say what dropping its future does")


def visit(id, path, exported_as=None):
    item = item_of(id)
    if not item or is_hidden(item) or item["id"] in seen:
        return
    kind, inner = kind_of(item)
    if kind == "use":
        if not inner["is_glob"]:
            visit(inner["id"], path, inner["name"])
        elif target := item_of(inner["id"]):
            for child in kind_of(target)[1]["items"]:
                visit(child, path)
        return
    seen.add(item["id"])
    name = "::".join(filter(None, [path, exported_as or item["name"]]))
    check(item, name)
    # The methods, of which those that other crates' traits have are not listed here.
    children = inner.get("items", []) if kind == "trait" else []
    for implementation in map(item_of, inner.get("impls", [])):
        if implementation and not is_hidden(implementation):
            block = kind_of(implementation)[1]
            children += block["items"] if block["trait"] is None else []
    for child in map(item_of, children):
        is_public = child["visibility"] == "public" or kind == "trait"
        if is_public and not is_hidden(child) and kind_of(child)[0] != "assoc_type":
            check(child, f"{name}::{child['name']}")
    if kind == "module":
        for child in inner["items"]:
            visit(child, name)


try:
    visit(document["root"], "")
except (AttributeError, KeyError, TypeError) as error:
    sys.exit(f"ci/examples.sh: format {document.get('format_version')} of rustdoc's JSON is not as expected: {error!r}")
for problem in sorted(problems):
    print(problem, file=sys.stderr)
if problems:
    sys.exit(f"ci/examples.sh: {len(problems)} things are missing, of {count} public items")
print(f"{count} public items, all with examples")
END
