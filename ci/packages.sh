#!/usr/bin/env bash
# What is published, and what it promises to those who depend on it:
#
#     ci/packages.sh manifests [--release]
#     ci/packages.sh build [--adapters]
#     ci/packages.sh minimal [--short]
#     ci/packages.sh semver
#     ci/packages.sh deny
#
# `manifests`: each package is called polder or polder-…, and has a description, keywords, categories, a minimal Rust, an
# address of its documentation and its repository, a README and both licences. With --release it fails as long as the
# address of the repository in Cargo.toml is a placeholder: a release begins with this.
#
# `build`: the packages in the order in which they are published, each built from what is in it: those of the workspace,
# or the adapters, on the polder that is here.
#
# `minimal`: the oldest versions of dependencies that Cargo.toml allows will do: everything compiles with them. (Theirs of
# theirs are the newest, since what other crates promise of theirs is not ours to keep.) For Windows and macOS too, where
# rustup has their standard libraries. --short: the library alone, on this machine.
#
# `semver`: the public interface, compared with that of the last tag `v*`: what breaks it needs a version that says so.
# Before the first tag there is nothing to compare with.
#
# `deny`: licences, sources, versions that stand twice, and known vulnerabilities of what the library depends on, by
# deny.toml; and of polder-top, by crates/polder-top/deny.toml. Advisories come from GitHub; where that cannot be reached,
# all but these is checked, and the script says so.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh

# The adapters are in the workspace of interop.
manifests() {
    local problems work
    if ! command -v python3 >/dev/null; then
        not_run "there is no python3"
        return
    fi
    work=$(mktemp)
    {
        cargo metadata --format-version 1 --no-deps
        cargo metadata --format-version 1 --no-deps --manifest-path interop/Cargo.toml
    } >"$work"
    problems=$(python3 - "$work" "${1:-}" <<'END'
import json, os, subprocess, sys

packages = {}
for line in open(sys.argv[1]):
    document = json.loads(line)
    for package in document["packages"]:
        if package["publish"] is None:
            packages[package["name"]] = package
repositories = set()
for name, package in sorted(packages.items()):
    folder = os.path.dirname(package["manifest_path"])
    if name != "polder" and not name.startswith("polder-"):
        print(f"{name}: a package is called polder-…")
    for key in ("description", "documentation", "keywords", "categories", "license", "readme", "repository", "rust_version"):
        if not package[key]:
            print(f"{name}: no {key}")
    if package["documentation"] != f"https://docs.rs/{name}":
        print(f"{name}: its documentation is at https://docs.rs/{name}")
    repositories.add(package["repository"])
    listed = subprocess.run(
        ["cargo", "package", "--list", "--allow-dirty", "--manifest-path", package["manifest_path"]],
        capture_output=True, text=True,
    )
    if listed.returncode != 0:
        print(f"{name}: {listed.stderr.strip()}")
    for file in ("README.md", "LICENSE-MIT", "LICENSE-APACHE"):
        if file not in listed.stdout.split("\n"):
            print(f"{name}: no {file} in the package")
        elif os.path.getsize(os.path.join(folder, file)) < 200:
            print(f"{name}: {file} is no text: a link that was not followed?")
if len(repositories) != 1:
    print("the repository has several addresses: Cargo.toml and interop/Cargo.toml differ")
if sys.argv[2] == "--release" and any(".invalid/" in it for it in repositories):
    print("`repository` is a placeholder: fill it in, in Cargo.toml and interop/Cargo.toml")
END
    )
    rm -f "$work"
    if [ -n "$problems" ]; then
        echo "$problems" >&2
        echo "$0: the packages cannot be published like this" >&2
        return 1
    fi
    echo "the manifests of all packages are complete"
}

build() {
    local dirty=()
    [ "${TOOLS_REQUIRED:-0}" = 1 ] || dirty=(--allow-dirty)
    if [ "${1:-}" = --adapters ]; then
        cargo package --workspace --exclude interop --manifest-path interop/Cargo.toml \
            --config "patch.crates-io.polder.path='$PWD'" ${dirty[@]+"${dirty[@]}"}
        return
    fi
    cargo package --workspace ${dirty[@]+"${dirty[@]}"}
}

minimal() {
    # A copy, since another Cargo.lock would have the usual build start anew.
    local work="$cache/minimal" installed target
    rm -rf "$work"
    mkdir -p "$work"
    cp -R Cargo.toml README.md crates docs src tests examples benches "$work"
    rm -rf "$work"/{benches/{compare,simulators},crates/polder-{async-rs,hickory,hyper,quinn,tokio,top,tor,zbus}}
    cd "$work"
    export CARGO_TARGET_DIR="$cache/minimal-target"

    # Only the resolver's option is not stable; what compiles is the toolchain that is there.
    RUSTC_BOOTSTRAP=1 cargo update -Z direct-minimal-versions
    cargo tree --depth 1 --edges normal,build --all-features --prefix none
    if [ "${1:-}" = --short ]; then
        cargo check --all-features --lib
        cargo check -p polder-sim -p polder-replay
        return
    fi
    cargo check --all-features --all-targets
    cargo check --no-default-features

    installed=$(rustup target list --installed 2>/dev/null || true)
    for target in x86_64-pc-windows-gnu aarch64-apple-darwin; do
        if grep -qx "$target" <<<"$installed"; then
            cargo check --all-features --all-targets --target "$target"
        else
            not_run "the oldest dependencies for $target, which rustup has not installed"
        fi
    done
}

semver() {
    local baseline
    baseline=$(git -c versionsort.suffix=- tag --list 'v*' --sort=-version:refname --merged HEAD | head -1)
    if [ -z "$baseline" ]; then
        echo "$0: there is no tag v* yet, and so no baseline"
        return
    fi

    tool cargo-semver-checks 0.51.0
    cargo semver-checks --package polder --baseline-rev "$baseline" --all-features
    cargo semver-checks --package polder-sim --baseline-rev "$baseline"
    cargo semver-checks --package polder-replay --baseline-rev "$baseline"
}

# denied CHECK…: of both.
denied() {
    cargo deny --all-features check "$@"
    cargo deny --manifest-path crates/polder-top/Cargo.toml --config crates/polder-top/deny.toml check "$@"
}

deny() {
    tool cargo-deny 0.20.2

    denied bans licenses sources
    if [ "${TOOLS_REQUIRED:-0}" = 1 ] || within 30 git ls-remote -q https://github.com/rustsec/advisory-db HEAD >/dev/null 2>&1; then
        denied advisories
    else
        not_run "advisories, since GitHub cannot be reached"
    fi
}

case "${1:-}" in
    manifests | build | minimal | semver | deny) "$@" ;;
    *)
        echo "usage: $0 manifests | build | minimal | semver | deny [ARGUMENT…]" >&2
        exit 2
        ;;
esac
