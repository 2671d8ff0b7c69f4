#!/usr/bin/env bash
# Builds the tests for Windows and runs them under Debian's wine, so that the backend of completion
# ports is executed, and not only compiled:
#
#     ci/windows.sh [--short | TEST…]
#
# --short: the unit tests, and some rules of the conformance suite.
# See `cargo_for` in ci/lib.sh for where the standard library comes from.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh

target=x86_64-pc-windows-gnu

# What wine 8 itself cannot do, by test, with the reason. Windows runs these: see
# .github/workflows/ci.yml.
skipped=(
    # A reset reads as an end of file: its server takes the error from the socket when it polls.
    streams::ends::a_reply_comes_before_the_reset_that_follows_it
    streams::ends::errors_are_told_and_the_loop_goes_on
    pollers::readiness::rule_08_reply_before_reset_read_first
    streams::listeners::zero_linger_resets_on_close
    memory::reset_is_an_error_and_passed_on
    streams::listeners::listener_close_resets_queue_refuses_rest

    # What waits in a listener's queue hears nothing when that is closed, and waits for ever.
    serve::accepted_are_served_while_stopping

    # A connection that was reset in the queue is an error of `accept` (WSAENOTCONN).
    streams::listeners::aborted_in_queue_harms_nobody

    # TCP_KEEPIDLE and its like are not there.
    streams::keepalive::keepalive_off_until_set_reads_back
    streams::keepalive::keepalive_bad_times_change_nothing

    # CopyFileEx does not report its progress, from which the standard library counts bytes.
    files::a_tree_is_made_listed_copied_and_removed

    # SIG_GET, with which a signal's handler is asked for, is set as the handler, and then called.
    a_signal_before_the_first_poll_is_told
    signal_before_listener_not_told
    signal_without_waiter_keeps_process
    dropping_a_listener_leaves_the_other
    each_signal_is_told_to_whoever_waits_for_it
    listeners_in_two_runtimes_get_signal
    signals_coalesce_per_kind
    two_listeners_both_get_one_signal
)

need /usr/bin/wine wine wine64

export WINEPREFIX="$cache/wine" WINEDEBUG=-all
# Nobody is asked to install what no test needs.
export WINEDLLOVERRIDES="mscoree,mshtml=;winedbg.exe=d"

# A folder of Windows' own. Its server stays for a while, and would hold on to our output.
end_wine() {
    "$(command -v wineserver || echo /usr/lib/wine/wineserver)" -k >/dev/null 2>&1 || true
}
trap end_wine EXIT
mkdir -p "$cache"
timeout 180 wine wineboot -i >"$cache/wineboot.log" 2>&1 </dev/null

# Rust's standard library takes random numbers from a library that wine 8 lacks; older Windows has
# the same under another name.
need /usr/bin/x86_64-w64-mingw32-gcc gcc-mingw-w64-x86-64
x86_64-w64-mingw32-gcc -Wall -O2 -shared -x c - -ladvapi32 \
    -o "$WINEPREFIX/drive_c/windows/system32/bcryptprimitives.dll" <<'END'
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID buffer, ULONG length);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE buffer, SIZE_T length)
{
    while (length > 0) {
        ULONG part = length > 0x10000000 ? 0x10000000 : (ULONG)length;
        if (!SystemFunction036(buffer, part))
            return FALSE;
        buffer += part;
        length -= part;
    }
    return TRUE;
}
END

export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER="timeout 600 wine"
programs=(--lib --tests)
if [ "${1:-}" = --short ]; then
    programs=(--lib --test conformance)
    shift
    # (Their names are in the unit tests' too.)
    set -- pollers:: poller:: events:: event:: tasks:: task:: time:: streams:: sys:: scheduler:: --skip thousand "$@"
fi
arguments=()
for test in "${skipped[@]}"; do
    arguments+=(--skip "$test")
done
run() {
    cargo_for "$target" std,panic_abort,test test "${programs[@]}" -- "${arguments[@]}" "$@"
}
# What fails twice is ours; a failure that does not come again is taken for wine's.
run "$@" || {
    echo "-- once more"
    run "$@"
}
