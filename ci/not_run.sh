# For the other scripts, which source it: `not_run WORDS` says that a check was left out, and why. `.ci/run`
# names a file in NOT_RUN, and lists at its end what is written there. With TOOLS_REQUIRED=1, as CI's own
# workflow sets it, leaving something out is a failure.
not_run() {
    echo "$0: not run: $*" >&2
    [ -z "${NOT_RUN:-}" ] || echo "$0: $*" >>"$NOT_RUN"
    [ "${TOOLS_REQUIRED:-0}" = 0 ] || exit 1
}
