# For the other scripts, which source it: `debian COMMAND PACKAGE` has COMMAND, and takes it from Debian's
# PACKAGE where it is missing. Fails where that cannot be.
debian() {
    command -v "$1" >/dev/null && return
    command -v apt-get >/dev/null || return 1
    local sudo=()
    [ "$(id -u)" = 0 ] || sudo=(sudo)
    ${sudo[@]+"${sudo[@]}"} apt-get update &&
        ${sudo[@]+"${sudo[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$2" &&
        command -v "$1" >/dev/null
}
