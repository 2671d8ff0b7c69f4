#!/usr/bin/env bash
# The suite as other machines run it, on Linux for x86-64:
#
#     ci/machines.sh [--short | MACHINE] [TEST…]
#
#     i686       32 bits; runs natively
#     musl       another C library; runs natively
#     aarch64    weakly ordered memory             } emulated by qemu, which the kernel is told of in a
#     armv7      the same with 32 bits             } namespace of its own (binfmt_misc, since Linux 6.7):
#     s390x      bytes the other way round         } so whatever a test starts is emulated too
#
# All of them, one after the other; --short: i686 with few of the rules, and s390x with the unit tests and seeds. Emulated tests take ten times as
# long: there the rules of great numbers, and those of a process's resources, are left out. TESTS are arguments of the
# conformance suite, which alone is run then.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh

# Of both: what needs no whole minute, and no more than an emulator's speed.
few_rules=(numbers:: events:: pollers::)
emulated_rules=(numbers:: events:: tasks:: taskset:: pollers:: time:: streams:: udp:: unix::
    --skip runtime:: --skip thousand --skip million --skip hundred --skip blocking)

# Tests that need what the emulator may lack (ci/machines/probe.c), each after the name of that.
emulated_needs=(
    select numbers::rule_21_descriptors_beyond_fd_setsize
    select streams::listeners::many_connections_all_echo
    seccomp pollers::backends::refused_ring_skipped_or_explained
    multicast udp::multicast_reaches_those_who_joined
)

# describe MACHINE: its target, its linker, its loader of programs, its emulator, and Debian's packages with these.
describe() {
    linker='' loader='' emulator='' packages=()
    case $1 in
        i686)
            target=i686-unknown-linux-gnu linker=i686-linux-gnu-gcc loader=/lib/ld-linux.so.2
            packages=(gcc-i686-linux-gnu libc6-dev-i386-cross libc6-i386 lib32gcc-s1)
            ;;
        musl) target=x86_64-unknown-linux-musl ;;
        aarch64)
            target=aarch64-unknown-linux-gnu linker=aarch64-linux-gnu-gcc emulator=aarch64
            packages=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)
            ;;
        armv7)
            target=armv7-unknown-linux-gnueabihf linker=arm-linux-gnueabihf-gcc emulator=arm
            packages=(gcc-arm-linux-gnueabihf libc6-dev-armhf-cross qemu-user-static)
            ;;
        s390x)
            target=s390x-unknown-linux-gnu linker=s390x-linux-gnu-gcc emulator=s390x
            packages=(gcc-s390x-linux-gnu libc6-dev-s390x-cross qemu-user-static)
            ;;
        *)
            echo "$0: no machine is called $1" >&2
            exit 2
            ;;
    esac
}

# in_namespace EMULATOR COMMAND…: runs it where the kernel has that machine's programs started by qemu. It is told
# them by the first bytes of an ELF file: word size, byte order, executable or shared object, architecture.
in_namespace() {
    local emulator=$1 magic mask
    shift
    mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
    case $emulator in
        aarch64) magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00' ;;
        arm) magic='\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x28\x00' ;;
        s390x)
            magic='\x7fELF\x02\x02\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x16'
            mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff'
            ;;
    esac
    RULE=":polder:M::$magic:$mask:/usr/bin/qemu-$emulator-static:F" unshare --map-root-user --mount bash -c '
        mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc || exit
        printf %s "$RULE" >/proc/sys/fs/binfmt_misc/register || exit
        exec "$@"' bash "$@"
}

# run MACHINE [TEST…]
run() {
    local machine=$1 target linker loader emulator packages file variable start=$SECONDS
    shift
    describe "$machine"
    with_rustup "$target" || {
        not_run "$machine, since there is no standard library for $target"
        return 0
    }
    for file in ${linker:+"/usr/bin/$linker"} ${loader:+"$loader"} ${emulator:+"/usr/bin/qemu-$emulator-static"}; do
        need "$file" "${packages[@]}" || {
            not_run "$machine, since there is no $file"
            return 0
        }
    done
    local within=(env)
    if [ -n "$emulator" ]; then
        within=(in_namespace "$emulator" env)
        "${within[@]}" true || {
            not_run "$machine, since the kernel cannot be told of its emulator"
            return 0
        }
        # Where the machine's own C library lies.
        within+=("QEMU_LD_PREFIX=/usr/${linker%-gcc}")
    fi
    # Nobody debugs it, and five machines take five times the room.
    local build=("CARGO_TARGET_DIR=$cache/machines" CARGO_PROFILE_DEV_DEBUG=0)
    if [ -n "$linker" ]; then
        variable=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$target")_LINKER
        build+=("$variable=$linker")
    fi
    local rules=("$@")
    if [ "$short" = 1 ]; then
        rules=("${few_rules[@]}")
    elif [ $# = 0 ] && [ -n "$emulator" ]; then
        rules=("${emulated_rules[@]}")
    fi
    if [ -n "$emulator" ]; then
        local probe="$cache/machines/probe-$emulator" place
        mkdir -p "$cache/machines"
        "$linker" -O2 -static ci/machines/probe.c -o "$probe"
        for ((place = 0; place < ${#emulated_needs[@]}; place += 2)); do
            # One that aborts may dump core beside the project.
            (cd "$cache" && "/usr/bin/qemu-$emulator-static" "$probe" "${emulated_needs[place]}") >/dev/null 2>&1 || {
                echo "-- $machine: qemu has no ${emulated_needs[place]}: without ${emulated_needs[place + 1]}"
                rules+=(--skip "${emulated_needs[place + 1]}")
            }
        done
    fi
    echo "-- $machine"
    local cargo=(cargo test --all-features --target "$target") worlds=(cargo test -p polder-sim --target "$target")
    # Each test has a deadline of its own; the limits are for what would get round it.
    local suite=(--test conformance) seeds=(--test fingerprints)
    if [ "$short" = 1 ]; then
        if [ -n "$emulator" ]; then suite=(); else seeds=(); fi
    fi
    timeout 1200 env "${build[@]}" "${cargo[@]}" --lib "${suite[@]}" --no-run
    [ ${#seeds[@]} = 0 ] || timeout 1200 env "${build[@]}" "${worlds[@]}" "${seeds[@]}" --no-run
    [ $# != 0 ] || "${within[@]}" "${build[@]}" timeout 600 "${cargo[@]}" --lib
    # The same seeds have the same runs on every machine.
    [ $# != 0 ] || [ ${#seeds[@]} = 0 ] || run_tests "${within[@]}" "${build[@]}" timeout 600 "${worlds[@]}" "${seeds[@]}"
    [ ${#suite[@]} = 0 ] || run_tests "${within[@]}" "${build[@]}" timeout 1800 "${cargo[@]}" "${suite[@]}" -- ${rules[@]+"${rules[@]}"}
    echo "-- $machine: $((SECONDS - start)) s"
}

short=0
case ${1:-} in
    --short)
        short=1
        for machine in i686 s390x; do run "$machine"; done
        ;;
    '') for machine in i686 musl aarch64 armv7 s390x; do run "$machine"; done ;;
    *) run "$@" ;;
esac
