# For the other scripts, which source it.
cache="${XDG_CACHE_HOME:-$HOME/.cache}/polder-ci"

# not_run WORDS: says that a check was left out, and why. `.ci/run` names a file in NOT_RUN, and lists at its end what
# is written there. With TOOLS_REQUIRED=1, as CI's own workflow sets it, leaving something out is a failure.
not_run() {
    echo "$0: not run: $*" >&2
    [ -z "${NOT_RUN:-}" ] || echo "$0: $*" >>"$NOT_RUN"
    [ "${TOOLS_REQUIRED:-0}" = 0 ] || exit 1
}

# within SECONDS COMMAND…: with that time limit. (macOS has no `timeout`.)
within() {
    if command -v timeout >/dev/null; then timeout "$@"; else shift && "$@"; fi
}

# may_install WHAT: says that it is going to be installed. In CI (CI or INSTALL is set) that is all; otherwise it asks at
# the terminal, and fails where there is none.
may_install() {
    echo "$0: installs $*" >&2
    [ -z "${CI:-}" ] && [ "${INSTALL:-0}" = 0 ] || return 0
    local answer=
    if [ -t 0 ] && [ -t 2 ]; then
        read -r -p "$0: go on? [y/N] " answer
    else
        echo "$0: not without being asked: set INSTALL=1" >&2
    fi
    [[ $answer == [yY]* ]]
}

# as_root COMMAND…
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# need WHAT PACKAGE…: has a file, or a command, and takes it from Debian's packages where it is missing. Fails where that
# cannot be.
need() {
    local what=$1
    shift
    is_there "$what" && return
    if ! command -v apt-get >/dev/null || ! { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; }; then
        echo "$0: $what is missing; on Debian, root can install $*" >&2
        return 1
    fi
    may_install "Debian's packages $*" || return
    # Another script may be installing something, too.
    local apt=(as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300)
    local get=("${apt[@]}" install -y --no-install-recommends "$@")
    # The lists of packages may be missing, or old.
    { "${get[@]}" || { "${apt[@]}" update && "${get[@]}"; }; } && is_there "$what"
}

is_there() {
    case $1 in
        /*) [ -e "$1" ] ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

# tool CRATE VERSION: has that version of a tool from crates.io in PATH, and builds it where it is missing, into a folder
# in the user's cache. Where it cannot be had (no network, or a machine that is too slow for it), that is `not_run`, and
# the script ends well: such a machine has no verdict.
#
# The build is a plain one: for a program that runs for seconds, minutes of optimising do not pay.
tool() {
    export PATH="$cache/tools/bin:$PATH"
    # Cargo's own list of what it has installed: not every tool tells its version in the same way.
    grep -qs "^\"$1 $2 " "$cache/tools/.crates.toml" && return
    local seconds=1200
    # A target directory, a compiler or flags of the caller's are not meant for it.
    may_install "$1 $2 from crates.io into $cache/tools" && within $seconds \
        env -u CARGO_TARGET_DIR -u RUSTFLAGS -u RUSTC -u LD_LIBRARY_PATH \
        CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 \
        CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_NET_RETRY=5 \
        cargo install "$1" --version "$2" --locked --root "$cache/tools" && return
    not_run "$1 $2 can neither be found nor built here"
    exit 0
}

# component fmt|clippy: has that command of cargo's, or rustup gets it.
component() {
    cargo "$1" --version >/dev/null 2>&1 ||
        { may_install "rustup's $1" && rustup component add "${1/#fmt/rustfmt}"; }
}

# with_rustup TARGET: rustup has that target's standard library, or gets it. TOOLS=debian says no in any case.
with_rustup() {
    [ "${TOOLS:-}" != debian ] && command -v rustup >/dev/null || return 1
    grep -qx "$1" <<<"$(rustup target list --installed)" && return
    # Where it cannot be reached, rustup takes long to say so.
    grep -qx "$1" <<<"$(rustup target list)" && may_install "the target $1 into rustup's toolchain" &&
        within 90 rustup target add "$1"
}

# cargo_for TARGET CRATES COMMAND ARGUMENT…: runs cargo for a platform that this machine is not. Its standard library
# comes from rustup, or else is built from the source that Debian packages, with the compiler and the cargo of that same
# version: CRATES are the parts of it that are wanted then. Builds, a standard library among them, take their time, and
# are reused.
cargo_for() {
    local target=$1 crates=$2 command=$3
    shift 3
    case "$target" in
        # Libraries are imported by name, with mingw's tools.
        *-windows-gnu) need /usr/bin/x86_64-w64-mingw32-gcc gcc-mingw-w64-x86-64 ;;
    esac
    if with_rustup "$target"; then
        CARGO_TARGET_DIR="$cache/cross-rustup" cargo "$command" --target "$target" "$@"
    else
        need /usr/lib/rustlib/src/rust/library rustc-web cargo-web rust-web-src
        # Building the standard library is an unstable option of a stable cargo.
        CARGO_TARGET_DIR="$cache/cross-debian" RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 \
            /usr/bin/cargo "$command" -Zbuild-std="$crates" --target "$target" "$@"
    fi
}

# executable test|bench NAME [ARGUMENT…]: builds a test or a benchmark, and prints the path of its program.
executable() {
    local kind=$1 name=$2
    shift 2
    cargo "$kind" "--$kind" "$name" --no-run --message-format json "$@" |
        sed -n "s/.*\"executable\":\"\([^\"]*$name-[^\"]*\)\".*/\1/p" | tail -1
}

# run_tests COMMAND… [-- ARGUMENT…]: runs `cargo test`, which passes too where a filter matches no test. Here that is a
# failure: each filter behind `--` has to match a test that was run, and without a filter at least one has to be run.
# Wants `pipefail`, and the names of tests, which `--quiet` leaves out.
run_tests() {
    local log ran word filter status=0 before='' filters=()
    for word in "$@"; do
        case $before,$word in
            ,--) before=-- ;;
            ,*) ;;
            --skip,* | --test-threads,*) before=-- ;;
            *,-*) before=$word ;;
            *) filters+=("$word") ;;
        esac
    done
    log=$(mktemp)
    "$@" | tee "$log" || status=$?
    ran=$(sed -n -e '/ \.\.\. ignored/d' -e 's/^test \(.*\) \.\.\. .*/\1/p' "$log")
    rm -f "$log"
    [ "$status" = 0 ] || return "$status"
    [ -n "$ran" ] || {
        echo "$0: no test has run: $*" >&2
        return 1
    }
    for filter in ${filters[@]+"${filters[@]}"}; do
        [[ $ran == *"$filter"* ]] || {
            echo "$0: no test that has run is called \"$filter\": $*" >&2
            return 1
        }
    done
}
