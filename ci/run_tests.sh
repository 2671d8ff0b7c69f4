# For the other scripts, which source it: `run_tests COMMAND… [-- ARGUMENT…]` runs `cargo test`, which passes too where
# a filter matches no test. Here that is a failure: each filter behind `--` has to match a test that was run, and
# without a filter at least one has to be run. Wants `pipefail`, and the names of tests, which `--quiet` leaves out.
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
