#!/usr/bin/env bash
# Every public item has an example, and says how it fails and what dropping its future does.
#
#     [PACKAGE=polder-sim] ci/documented.sh [TARGET]
#
# It reads rustdoc's JSON of all features, for this machine or for TARGET, and names the items that lack something.
#
# An item is a module, a type, a trait, a function, a method (a trait's own ones too), a macro, a constant, a
# static or a type alias that can be named from outside of the crate. Fields, variants, associated types,
# implementations of traits, what is `#[doc(hidden)]` and what other crates define need nothing. There are no
# exceptions from these rules:
#
# - Each item has an example: a code block of Rust in its own documentation. That of its type does not count.
# - A function whose return type has a `Result` in it has `# Errors`.
# - A function that is `async`, or returns `impl Future` or `impl Stream`, has `# Cancel safety`.
# - A type that implements `Future`, `IntoFuture` or `Stream` has `# Cancel safety`, and `# Errors` if it yields a `Result`.
# - No section is empty, and sections with the same purpose have the same name: see SECTIONS.
#
# clippy asks for `# Panics` and `# Safety`: see the head of src/lib.rs.
#
# The JSON is unstable, which RUSTC_BOOTSTRAP permits on stable.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh

[ "$(uname)" = Linux ] || exit 0
if ! command -v python3 >/dev/null; then
    not_run "there is no python3"
    exit 0
fi

target=${1:-} package=${PACKAGE:-polder}
RUSTC_BOOTSTRAP=1 cargo rustdoc --quiet -p "$package" --lib --all-features ${target:+--target "$target"} \
    -- -Z unstable-options --output-format json
python3 - "${CARGO_TARGET_DIR:-target}/$target/doc/${package//-/_}.json" <<'END'
import json, re, sys

# Words after ``` that still mean Rust, which rustdoc runs or compiles.
RUST = {"rust", "no_run", "should_panic", "compile_fail", "standalone_crate"}
SECTIONS = {"Cancel safety", "Errors", "Examples", "Panics", "Platforms", "Safety"}
# A heading that begins so is one of these.
LIKE_A_SECTION = re.compile("#+ (cancel|error|example|panic|platform|safe)", re.IGNORECASE)
FUTURES = {"Future", "IntoFuture", "Stream"}

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


def sections_of(item):
    """The lines below each heading, the first ones below "", and whether there is an example."""
    sections = {"": []}
    heading, is_code, has_example = "", False, False
    for line in map(str.strip, (item["docs"] or "").splitlines()):
        if line.startswith("```"):
            is_code = not is_code
            has_example |= is_code and set(re.split(r"[\s,]+", line.lstrip("`"))) - {""} <= RUST
        if not is_code and re.match("#+ ", line):
            heading = line + " (again)" * (line in sections)
            sections[heading] = []
        elif line:
            sections[heading].append(line)
    return sections, has_example


def last_name(path):
    return path["path"].split("::")[-1]


def names_in(part):
    """The names of the types and traits in a type."""
    if isinstance(part, dict):
        if isinstance(part.get("path"), str):
            yield last_name(part)
        part = list(part.values())
    for inner in part if isinstance(part, list) else []:
        yield from names_in(inner)


def outcome_of(item):
    """Whether it is a future or returns one, and whether there is a `Result`."""
    kind, inner = kind_of(item)
    if kind == "function":
        names = set(names_in(inner["sig"]["output"]))
        return inner["header"]["is_async"] or bool(names & FUTURES), "Result" in names
    implementations = [kind_of(it)[1] for it in map(item_of, inner.get("impls", [])) if it]
    own = [it for it in implementations if it["trait"] and not it["blanket_impl"]]
    futures = [it for it in own if last_name(it["trait"]) in FUTURES]
    associated = [kind_of(item_of(id))[1].get("type") for it in futures for id in it["items"]]
    return bool(futures), "Result" in names_in(associated)


count = 0
problems = []
seen = set()


def check(item, name):
    global count
    count += 1
    sections, has_example = sections_of(item)
    is_future, has_result = outcome_of(item)
    found = []
    if not has_example:
        found.append("lacks an example")
    if has_result and "# Errors" not in sections:
        found.append("lacks `# Errors`: it returns a `Result`")
    if is_future and "# Cancel safety" not in sections:
        found.append("lacks `# Cancel safety`: it is a future, or returns one")
    for heading, lines in sections.items():
        if heading and not lines:
            found.append(f"has nothing below `{heading}`")
        if LIKE_A_SECTION.match(heading) and heading.removeprefix("# ") not in SECTIONS:
            found.append(f"has `{heading}`, which is not among the names of sections in ci/documented.sh")
    place = "{}:{}".format(item["span"]["filename"], item["span"]["begin"][0])
    problems.extend(f"{place}: {name} {it}" for it in found)


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
    sys.exit(f"ci/documented.sh: format {document.get('format_version')} of rustdoc's JSON is not as expected: {error!r}")
for problem in sorted(problems):
    print(problem, file=sys.stderr)
if problems:
    sys.exit(f"ci/documented.sh: {len(problems)} problems, in {count} public items")
print(f"{count} public items, all documented")
END
