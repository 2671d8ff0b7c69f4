# For the other scripts, which source it: `tool CRATE VERSION` has that version of a tool from
# crates.io in PATH, and builds it where it is missing. Where it cannot be had (no network, or a machine
# that is too slow for it), that is `not_run`, and the script ends well: such a machine has no verdict.
#
# The build is a plain one: for a program that runs for seconds, minutes of optimising do not pay.
. ci/not_run.sh
cache="${XDG_CACHE_HOME:-$HOME/.cache}/polder-ci"
export PATH="$cache/tools/bin:$PATH"

# (macOS has no `timeout`.)
within() {
    if command -v timeout >/dev/null; then timeout "$@"; else shift && "$@"; fi
}

tool() {
    # Cargo's own list of what it has installed: not every tool tells its version in the same way.
    grep -qs "^\"$1 $2 " "$cache/tools/.crates.toml" && return
    local seconds=1200
    # A target directory, a compiler or flags of the caller's are not meant for it.
    within $seconds env -u CARGO_TARGET_DIR -u RUSTFLAGS -u RUSTC -u LD_LIBRARY_PATH \
        CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 \
        CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_NET_RETRY=5 \
        cargo install "$1" --version "$2" --locked --root "$cache/tools" && return
    not_run "$1 $2 can neither be found nor built here"
    exit 0
}
