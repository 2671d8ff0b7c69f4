# For the other scripts, which source it: `need WHAT PACKAGE…` has a file, or a command, and takes it from
# Debian's packages where it is missing. Fails where that cannot be.
need() {
    local what=$1
    shift
    is_there "$what" && return
    local sudo=()
    [ "$(id -u)" = 0 ] || sudo=(sudo)
    if ! command -v apt-get >/dev/null || ! command -v "${sudo[@]-true}" >/dev/null; then
        echo "$0: $what is missing; on Debian, root can install $*" >&2
        return 1
    fi
    # Another script may be installing something, too.
    local apt=(${sudo[@]+"${sudo[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300)
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
