#!/usr/bin/env bash
# Writes docs/terminal.svg: one program on three backends, as a terminal shows it. What is in it is what the
# programs have printed. And docs/top.svg: what polder-top shows of the lines in crates/polder-top/tests/program.jsonl. With
#
#     ci/picture.sh --lines
#
# these are taken anew first, of the program crates/polder-top/examples/program.rs. And with
#
#     ci/picture.sh --report
#
# only docs/report.png: what Chromium shows of the page of crates/polder-sim/examples/simulated.rs, when it has found its bug.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" = --report ]; then
    cargo build --quiet --release -p polder-sim --example simulated
    work=$(mktemp -d)
    trap 'rm -r "$work"' EXIT
    said=$(RUST_BACKTRACE=0 "${CARGO_TARGET_DIR:-target}/release/examples/simulated" --bug 2>&1 || true)
    page=$(sed -n 's/^  timeline: //p' <<<"$said" | tail -n 1)
    # The moment of the needed loss. In a frame, as Chromium takes no picture of a page that has scrolled.
    at=$(sed -n 's/^ *\([0-9]*\)\.\([0-9]*\) s .* is lost$/\1\2000/p' <<<"$said" | head -n 1)
    style='border: 0; width: 860px; height: 600px'
    echo "<body style=\"margin: 0\"><iframe src=\"file://$page#t=$((10#$at))\" style=\"$style\">" >"$work/frame.html"
    chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --allow-file-access-from-files \
        --window-size=860,600 --virtual-time-budget=20000 --screenshot="$work/report.png" "file://$work/frame.html"
    mv "$work/report.png" docs/report.png
    exit
fi

cargo build --quiet --release --example echo
echo="${CARGO_TARGET_DIR:-target}/release/examples/echo"
lines=()

# Runs the server on a backend, has a client say hello, and stops it.
serve() {
    lines+=("$ POLDER_BACKEND=$1 echo")
    local said reply
    coproc server { POLDER_BACKEND=$1 exec "$echo" 127.0.0.1:0 2>&1; }
    local pid=$server_PID out=${server[0]}
    IFS= read -r said <&"$out"
    lines+=("$said")
    said=${said#listening on }
    said=${said%% *}
    exec {client}<>"/dev/tcp/${said%:*}/${said##*:}"
    echo hello >&"$client"
    IFS= read -r reply <&"$client"
    [ "$reply" = hello ]
    exec {client}>&-
    for _ in connected closed; do
        IFS= read -r said <&"$out"
        lines+=("$said")
    done
    kill -INT "$pid"
    IFS= read -r said <&"$out" && lines+=("^C$said")
    wait "$pid" || true
    lines+=("")
}

for backend in epoll poll select; do
    serve "$backend"
done
lines+=("$ POLDER_BACKEND=iocp echo")
lines+=("$(POLDER_BACKEND=iocp "$echo" 2>&1 || true)")

height=$((${#lines[@]} * 18 + 60))
{
    echo "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 880 $height\" role=\"img\" aria-label=\"One program on three backends\">"
    echo "  <rect width=\"880\" height=\"$height\" rx=\"8\" fill=\"#16222d\"/>"
    x=18
    for colour in e06c5a e0b15a 6ab06f; do
        echo "  <circle cx=\"$x\" cy=\"18\" r=\"5\" fill=\"#$colour\"/>"
        x=$((x + 18))
    done
    echo "  <g font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, monospace\" font-size=\"13\">"
    y=50
    for line in "${lines[@]}"; do
        text=${line//&/&amp;}
        text=${text//</&lt;}
        case "$line" in
            '$ '*) colour=8fd0ff ;;
            *) colour=d8e4ec ;;
        esac
        [ -z "$text" ] || echo "    <text xml:space=\"preserve\" x=\"18\" y=\"$y\" fill=\"#$colour\">$text</text>"
        y=$((y + 18))
    done
    echo "  </g>"
    echo "</svg>"
} >docs/terminal.svg

lines=crates/polder-top/tests/program.jsonl
if [ "${1:-}" = --lines ]; then
    # They are those of the ninth second: what looks like a fault is known by then.
    cargo build --quiet --release -p polder-top --example program
    socket=$(mktemp -u)
    POLDER_TOP=$socket "${CARGO_TARGET_DIR:-target}/release/examples/program" 12 &
    until [ -S "$socket" ]; do sleep 0.1; done
    python3 - "$socket" <<'END' >$lines
import socket, sys
stream = socket.socket(socket.AF_UNIX)
stream.connect(sys.argv[1])
lines = stream.makefile()
# Places as in a package by itself, which are shorter.
kept = [lines.readline().replace("crates/polder-top/", "") for _ in range(9)][7:]
sys.stdout.writelines(kept)
END
    wait
fi
cargo run --quiet -p polder-top --example picture >docs/top.svg.new
mv docs/top.svg.new docs/top.svg
