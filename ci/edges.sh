#!/bin/sh
# Runs the compiler for cargo, so that tests have counters of their edges, and polder, which runs them, has none:
#
#     LLVM_PROFILE_FILE=/dev/null RUSTC_WORKSPACE_WRAPPER=$PWD/ci/edges.sh RUSTFLAGS='--cfg polder_edges' \
#         CARGO_TARGET_DIR=target/edges cargo test --features sim --test edges
case " $* " in
    *" --test "*) exec "$@" -C instrument-coverage ;;
    *) exec "$@" ;;
esac
