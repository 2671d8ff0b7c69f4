#!/bin/sh
# Runs cargo, or a script that does, so that tests have counters of their edges, and polder, which runs them, has none:
#
#     ci/edges.sh cargo test -p polder-sim --test edges
#
# cargo calls this again, as the compiler's wrapper.
if [ -z "${RUSTC_WORKSPACE_WRAPPER:-}" ]; then
    export RUSTC_WORKSPACE_WRAPPER="$PWD/ci/edges.sh" RUSTFLAGS='--cfg polder_edges'
    export LLVM_PROFILE_FILE=/dev/null CARGO_TARGET_DIR=target/edges
    exec "$@"
fi
case " $* " in
    *" --test "*) exec "$@" -C instrument-coverage ;;
    *) exec "$@" ;;
esac
