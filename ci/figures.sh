#!/usr/bin/env bash
# Writes docs/PERFORMANCE.md, and README.md's table of figures, from the log of a run of benches/compare:
#
#     cargo run --release --manifest-path benches/compare/Cargo.toml -- run | tee run.log
#     ci/figures.sh run.log
#
# The log has the machine, the date, the commit and the number of rounds. For one that lacks some:
#
#     ci/figures.sh LOG --machine TEXT --date 2026-11-29 --commit 4fbc811e --rounds 7
#
# Of several logs of one commit the later ones replace what the earlier ones have, as for a group that is measured anew
# (`run --only small`).
#
# A row of the page that the log lacks is taken from docs/REPORT.md, with a mark. README.md has the rows that are named
# in ROWS, without ranges.
#
#     ci/figures.sh --check
#
# writes nothing. It fails if README.md's figures are not those of the page, and says, without failing, when src/ has
# changed much since the commit of the page.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/lib.sh

if ! command -v python3 >/dev/null; then
    not_run "there is no python3"
    exit 0
fi
PYTHONUTF8=1 python3 - "$@" <<'PY'
import argparse
import math
import re
import subprocess
import sys
from pathlib import Path

PAGE, README, REPORT = Path("docs/PERFORMANCE.md"), Path("README.md"), Path("docs/REPORT.md")
# So many commits of src/ may lie between the measured commit and this one before the page counts as old.
MAX_COMMITS = 20
# A ratio to a peer from which on a result is listed as slower, and how many are listed.
SLOWER, SLOWEST = 1.05, 5

PEERS = ["polder", "tokio", "smol"]
EPOLL = {"polder": "polder-epoll"}
FILES = {"smol": "async-fs"}
# The groups of benches/compare that a user asks about.
GROUPS = {
    "echo": "Echo",
    "files": "Files",
    "http": "HTTP",
    "light": "Light load",
    "memory": "Memory",
    "micro": "Tasks",
    "proxy": "Proxy",
    "redis": "Redis protocol",
    "small": "Size",
    "udp": "UDP",
    "workers": "Several workers",
}
# Words of benches/compare, as the page has them.
PLAIN = {"one worker": "1 worker", "two workers": "2 workers", "p50": "median", "p99": "99th percentile"}
# Columns that say how, but not how fast: they are never listed as slower.
NO_COST = re.compile("sleeps|deviation|crates")
# The end of a title: where the load comes from, which depends on the machine.
GENERATOR = re.compile(r" \((wrk|own generator)\b[^)]*\)$")


class Row:
    """A row of the page. `table` and `column` are titles of the log's; `scale` divides its values."""

    def __init__(self, title, table, column, scale=1, more=False, names=(), readme=False):
        # A space that does not break.
        self.title = title + ("\u00a0↑" if more else "\u00a0↓")
        self.table, self.column, self.scale = table, column, scale
        self.names, self.readme = dict(names), readme


SLEEPERS = "micro: 1,000 tasks that sleep 20 to 30 ms again and again, for 2 s"
ROWS = {
    "Throughput": [
        Row("HTTP/1.1 (hyper), 50 connections, 1 worker: requests per second", "http: 50 connections, one worker", "requests/s", more=True),
        Row("HTTP/1.1 (hyper), 50 connections, 2 workers: requests per second", "http: 50 connections, two workers", "requests/s", more=True, readme=True),
        Row("HTTPS, 50 connections, 2 workers: requests per second", "http: HTTPS, 50 connections, two workers", "requests/s", more=True),
        Row("HTTP, a connection for each request, 2 workers: requests per second", "http: a connection for each request, 16 at a time, two workers", "requests/s", more=True),
        Row("Redis protocol, 50 connections, 1 worker: requests per second", "redis: GET and SET, 50 connections, one request in flight", "requests/s", more=True, readme=True),
        Row("TCP proxy, 50 connections, 1 worker: round trips per second", "proxy: 64 bytes to and fro, 50 connections", "requests/s", more=True),
        Row("UDP echo, 50 sockets, 1 worker: round trips per second", "udp: 64 bytes to and fro, 50 sockets", "requests/s", more=True),
    ],
    "Latency": [
        Row("HTTP, 50 connections, 1 worker: median, µs", "http: 50 connections, one worker", "p50, µs"),
        Row("HTTP, 50 connections, 1 worker: 99th percentile, µs", "http: 50 connections, one worker", "p99, µs"),
        Row("HTTP, 50 connections, 2 workers: median, µs", "http: 50 connections, two workers", "p50, µs"),
        Row("HTTP, 50 connections, 2 workers: 99th percentile, µs", "http: 50 connections, two workers", "p99, µs"),
        Row("HTTP, 200 connections, 2 workers: 99th percentile, ms", "http: 200 connections, two workers", "p99, µs", 1e3, readme=True),
        Row("HTTP, 1,000 connections, 2 workers: 99th percentile, ms", "http: 1000 connections, two workers", "p99, µs", 1e3),
        Row("a socket's event while another task of its worker computes for 100 ms: delay, ms", "workers: Beside a task that computes for 100 ms, 2 workers", "socket: waits, ms"),
        Row("a task's message to another one, while the sender computes for 100 ms: delay, ms", "workers: Beside a task that computes for 100 ms, 2 workers", "message of the task that computes: waits, ms"),
    ],
    "CPU time under light load": [
        Row("1,000 requests per second, 1 worker: CPU time of a request, µs", "light: 1,000 requests a second over 10 connections, one worker", "server CPU, ns per request", 1e3),
        Row("1,000 requests per second, 2 workers: CPU time of a request, µs", "light: 1,000 requests a second over 10 connections, 2 workers", "server CPU, ns per request", 1e3, readme=True),
        Row("10,000 requests per second, 2 workers: CPU time of a request, µs", "light: 10,000 requests a second over 50 connections, 2 workers", "server CPU, ns per request", 1e3),
        Row("a timer each 10 ms and nothing else, 2 workers: CPU time, ms per second", "light: A ticker of 10 ms, 2 workers", "CPU, µs a second", 1e3),
    ],
    "Tasks, timers and files": [
        Row("spawn a task and await it, beside 1,000 others, ns", "growth: Spawn and await, beside tasks that wait", "1,000: ns", readme=True),
        Row("set a timer and drop it, beside 1,000 others, ns", "growth: A timer, among others", "1,000: ns", readme=True),
        Row("64 pairs of tasks with channels, 2 workers: round trip, ns", "workers: Channels, 64 pairs of tasks, 2 workers", "ns per round trip", readme=True),
        Row("1,000,000 tasks spawned by another thread, 2 workers: each, ns", "workers: Storm of 1,000,000 tasks from outside, 2 workers", "ns per task"),
        Row("1,000 tasks that sleep 20 to 30 ms again and again: lateness, µs", SLEEPERS, "p50, µs"),
        Row("1,000 tasks that sleep 20 to 30 ms again and again: CPU time, ms per second", SLEEPERS, "CPU, ms", 2),
        Row("read files of 2 KiB, 32 at a time (smol: async-fs): CPU time of a file, µs", "files: Files of 2 KiB, 32 at a time", "CPU, ns each", 1e3, names=FILES),
        Row("a blocking call on another thread, awaited: CPU time, µs", "files: unblock, one after the other", "CPU, ns each", 1e3),
    ],
    "Memory and size": [
        Row("memory of an idle connection, without its buffer, bytes", "memory: 10,000 idle connections", "bytes per connection", names=EPOLL, readme=True),
        Row("a runtime with one worker, KiB", "growth: A runtime made, and a task run on it", "KiB each"),
        Row("echo server, stripped: KiB", "small: An echo server", "KiB"),
        Row("echo server: crates linked", "small: An echo server", "crates"),
        Row("echo server: seconds to compile, release profile", "small: An echo server", "seconds to compile"),
    ],
}
# Said where these are among the slower ones.
WHY = {
    SLEEPERS: "polder's timers are not rounded to a millisecond (`timer_slack`)",
    "files: 256 MiB in writes of 64 KiB": "tokio's writes are done later",
}
ABOUT = {
    "Throughput": "The load comes from another process on the same machine. With 1 worker, both have a core each; with 2, they share two.",
    "Tasks, timers and files": "tokio rounds timers up to a millisecond, which saves wake-ups; polder does so with `Builder::timer_slack`.",
    "Memory and size": "The echo server has tokio's features `io-util`, `net`, `rt`, `time`, polder's `net`, and smol whole.",
}


def number(text):
    return None if text in ("", "–") else float(text.replace(",", ""))


def shown(value, scale=1):
    """With three significant digits: runs differ by more. Exact where it is a small whole number."""
    if scale == 1 and value == int(value) and abs(value) < 1000:
        return f"{value:.0f}"
    value /= scale
    if not value:
        return "0"
    digits = min(2 - math.floor(math.log10(abs(value))), 2)
    return f"{round(value, digits):,.{max(digits, 0)}f}"


class Cell:
    def __init__(self, value, low=None, high=None, ratio=None, quartiles=None):
        self.value, self.low, self.high = value, low, high
        self.ratio, self.quartiles = ratio, quartiles

    def text(self, scale=1):
        text = shown(self.value, scale)
        if self.low is not None and shown(self.low, scale) != shown(self.high, scale):
            # Behind the dash a word joiner: no line ends there.
            text += f"<br><sub>{shown(self.low, scale)}–\u2060{shown(self.high, scale)}</sub>"
        return text


def cells(head, line):
    """The values of a row by their columns' titles. Behind a value there may be its range, a ratio, a range. (On the page
    the latter is below the ratio.)"""
    found, cell = {}, None
    for title, text in zip(head[1:], line[1:]):
        span = [number(part) for part in text.split(" – ")] if " – " in text else None
        if title.startswith("ratio to "):
            if below := re.fullmatch(r"(\S+)<br><sub>(\S+)–(\S+)</sub>", text):
                text, cell.quartiles = below[1], [number(below[2]), number(below[3])]
            cell.ratio = number(text)
        elif title in ("min – max", "quartiles"):
            if cell.ratio is not None:
                cell.quartiles = span
            elif span:
                cell.low, cell.high = span
        else:
            cell = found[title] = Cell(number(text))
    return {title: cell for title, cell in found.items() if cell.value is not None}


def read_log(text):
    """The tables, by title, program and column, the lines of the head, and the greatest number of rounds."""
    tables, head_lines, rounds = {}, {}, 0
    title = head = None
    for line in re.sub(r"\r?\x1b\[K", "\n", text).splitlines():
        if progress := re.match(r"\[.*round \d+ of (\d+)", line):
            rounds = max(rounds, int(progress[1]))
            continue
        if line.startswith("["):
            continue
        if of := re.match(r"  \(medians of (\d+) rounds\)", line):
            rounds = max(rounds, int(of[1]))
        if pair := re.match(r"(Processor|Cores|Kernel|Compiler|Date|[a-z-]+): (\S.*)", line):
            head_lines.setdefault(pair[1], pair[2])
        if not line.startswith(" "):
            title, head = (GENERATOR.sub("", line), None) if re.match(r"[a-z]+: ", line) else (None, None)
        elif title and line.strip() and not line.strip().startswith("("):
            parts = [part for part in re.split(r"\s{2,}", line.strip())]
            if head is None:
                head = [""] + parts
                tables[title] = {}
            else:
                tables[title][parts[0]] = cells(head, parts)
    return tables, head_lines, rounds


def read_report(text):
    """The tables of docs/REPORT.md, named as in a log, and where they were measured."""
    groups = {"Small": "small", "Memory of idle connections": "memory", "Growth": "growth"}
    tables, facts, group, title, head = {}, {}, None, None, None
    for line in text.splitlines():
        if line.startswith("## "):
            group, title = groups.get(line[3:]), None
        elif line.startswith("### "):
            title, head = GENERATOR.sub("", f"{group}: {re.sub(r' [(]`.*', '', line[4:])}"), None
        elif line.startswith("|") and not line.startswith("|--"):
            parts = [part.strip() for part in line.strip("|").split("|")]
            if group and title:
                if head is None:
                    head = parts
                    tables[title] = {}
                else:
                    tables[title][parts[0]] = cells(head, parts)
            elif len(parts) == 2:
                facts[parts[0]] = parts[1]
    return tables, facts


def behind(cell, peer, more):
    """How many times worse than the peer's, if the quartiles of both ratios to the yardstick are apart."""
    if None in (cell.ratio, cell.quartiles, peer.ratio, peer.quartiles) or not peer.value or not cell.value:
        return 0
    apart = cell.quartiles[1] < peer.quartiles[0] if more else cell.quartiles[0] > peer.quartiles[1]
    return (peer.value / cell.value if more else cell.value / peer.value) if apart else 0


def difference(ratio, peer, more):
    if more:
        return f"{100 - 100 / ratio:.0f} % fewer than {peer}"
    return f"{ratio:.1f} times {peer}'s" if ratio >= 1.5 else f"{100 * ratio - 100:.0f} % more than {peer}"


def slower(tables):
    """Rows of the results in which polder is furthest behind a peer: one of each workload, whatever its numbers."""
    rows = {(row.table, row.column): row for rows in ROWS.values() for row in rows}
    worst = {}
    for title, programs in tables.items():
        group, name = title.split(": ", 1)
        if group not in GROUPS:
            continue
        polder = programs.get("polder") or programs.get("polder-epoll") or {}
        for column, cell in polder.items():
            # And where rounds differ that much, a median says little.
            if NO_COST.match(column) or cell.high and cell.high > 10 * cell.low:
                continue
            row = rows.get((title, column))
            names = {peer: row.names.get(peer, peer) if row else peer for peer in PEERS[1:]}
            found = {peer: programs.get(own, {}).get(column) for peer, own in names.items()}
            found = {peer: other for peer, other in found.items() if other}
            more = column == "requests/s"
            ratio, peer = max(((behind(cell, other, more), peer) for peer, other in found.items()), default=(0, ""))
            workload = group, re.sub(r"(, )?\b(one|two|\d+) workers?$|[\d.,]+", "", name)
            if ratio < max(SLOWER, worst.get(workload, [0])[0]):
                continue
            if row:
                what, scale = row.title, row.scale
            else:
                what, scale = f"{GROUPS[group]}, {name}: {column}", 1
                for word, plain in PLAIN.items():
                    what = re.sub(rf"\b{word}\b", plain, what)
                what += "\u00a0↑" if more else "\u00a0↓"
            values = " | ".join(shown(other.value, scale) if other else "–" for other in [cell, *(found.get(peer) for peer in PEERS[1:])])
            why = f": {WHY[title]}" if title in WHY else ""
            worst[workload] = ratio, f"| {what} | {values} | {difference(ratio, peer, more)}{why} |"
    return [text for _, text in sorted(worst.values(), reverse=True)[:SLOWEST]]


def write(options):
    text = "\n".join(Path(log).read_text() for log in options.logs)
    tables, head, rounds = read_log(text)
    logs = " ".join(options.logs)
    if not tables:
        sys.exit(f"ci/figures.sh: {logs} has no tables of benches/compare")
    for what in ["Processor: .*"] + ([] if options.commit else ["polder: .* [(]commit .*"]):
        if len(others := set(re.findall(f"^{what}$", text, re.M))) > 1:
            sys.exit(f"ci/figures.sh: not of one run: {', '.join(sorted(others))}")
    commit = options.commit or (re.search(r"commit ([0-9a-f]+)", head.get("polder", "")) or [None, None])[1]
    date = options.date or head.get("Date")
    machine = options.machine
    if not machine and "Processor" in head:
        processor = re.sub(r"\((R|TM)\)| Processor| CPU", "", head["Processor"])
        machine = f"{processor}, {head['Cores']} cores, {head['Kernel']}, {head['Compiler'].split(' (')[0]}"
    rounds = options.rounds or rounds
    facts_of_run = {"machine": machine, "date": date, "commit": commit, "rounds": rounds}
    if absent := [name for name, value in facts_of_run.items() if not value]:
        sys.exit(f"ci/figures.sh: {logs} does not say {', '.join(absent)}: pass --{' --'.join(absent)}")
    peers = "".join(f", {name} {head[name]}" for name in ("tokio", "smol") if name in head)
    origin = f"Medians of {rounds} rounds. {machine}; polder at commit {commit}{peers}; {date}."
    report, facts = read_report(REPORT.read_text() if REPORT.exists() else "")

    page = [
        "# Performance",
        "",
        "polder, tokio and smol: the same programs, in one run. ↓ less is better, ↑ more is better. "
        "Below a figure: the least and the most of the rounds.",
        "",
        origin,
        "",
        "This page is written by `ci/figures.sh` from the output of `benches/compare`. [REPORT.md](REPORT.md) has more "
        "programs and runtimes, how each is measured, and how to repeat it. Times depend on the machine: compare the columns "
        "of a row, and measure your own program.",
    ]
    used, readme = {}, []
    for chapter, rows in ROWS.items():
        lines = []
        for row in rows:
            names = [row.names.get(name, name) for name in PEERS]
            own, reported = ([source.get(row.table, {}).get(name, {}).get(row.column) for name in names] for source in (tables, report))
            values, mark = (own, "") if own[0] or not reported[0] else (reported, " ¹")
            if values[0] is None:
                print(f"ci/figures.sh: {logs} has no \"{row.table}\", {row.column}", file=sys.stderr)
                continue
            if mark:
                for name, value in zip(names, values):
                    if value:
                        used.setdefault(row.table, {}).setdefault(name, {})[row.column] = value
            title = row.title[:-2] + mark.replace(" ", "\u00a0") + row.title[-2:]
            lines.append(f"| {title} | " + " | ".join(value.text(row.scale) if value else "–" for value in values) + " |")
            if row.readme:
                readme.append(lines[-1])
        if not lines:
            continue
        page += ["", f"## {chapter}", ""]
        if chapter in ABOUT:
            page += [ABOUT[chapter], ""]
        page += ["|  | polder | tokio | smol |", "|---|--:|--:|--:|"] + lines
    if used:
        page += ["", f"¹ from [REPORT.md](REPORT.md): {facts.get('Processor', '?')}, polder {facts.get('polder', '?')}."]
    page += ["", "## Where is polder slower?", ""]
    page += ["The results furthest behind tokio or smol, one of each program, where most rounds agree.", ""]
    for table, programs in used.items():
        for name, columns in programs.items():
            tables.setdefault(table, {}).setdefault(name, {}).update(columns)
    page += ["|  | polder | tokio | smol | difference |", "|---|--:|--:|--:|---|"] + slower(tables)
    PAGE.write_text("\n".join(page) + "\n")
    write_readme(readme, origin)


def medians(line):
    return re.sub(r"<br><sub>.*?</sub>", "", line)


def readme_parts():
    """README.md before the table's rows, its rows, the line about the machine, and the rest."""
    lines = README.read_text().splitlines()
    head = next((at for at, line in enumerate(lines) if line.startswith("|  | polder | tokio")), None)
    if head is None:
        sys.exit("ci/figures.sh: README.md has no table of figures")
    end = next(at for at in range(head, len(lines) + 1) if at == len(lines) or not lines[at].startswith("|"))
    origin = next((at for at in range(end, len(lines)) if lines[at].startswith("Medians of ")), None)
    if origin is None:
        sys.exit("ci/figures.sh: README.md does not say where its figures were measured (\"Medians of …\")")
    after = next(at for at in range(origin, len(lines) + 1) if at == len(lines) or not lines[at])
    return lines[: head + 2], lines[head + 2 : end], lines[end:origin], " ".join(lines[origin:after]), lines[after:]


def write_readme(rows, origin):
    before, _, between, _, after = readme_parts()
    README.write_text("\n".join(before + [medians(row) for row in rows] + between + [origin] + after) + "\n")


def check():
    page = PAGE.read_text()
    _, rows, _, origin, _ = readme_parts()
    known = {medians(line) for line in page.splitlines() if line.startswith("|")}
    wrong = [row for row in rows if row not in known]
    for row in wrong:
        print(f"ci/figures.sh: docs/PERFORMANCE.md does not have README.md's line {row}", file=sys.stderr)
    if origin not in page:
        print("ci/figures.sh: README.md's figures are of another run than docs/PERFORMANCE.md", file=sys.stderr)
    commit = re.search(r"at commit ([0-9a-f]+)", page)[1]
    count = subprocess.run(["git", "rev-list", "--count", f"{commit}..HEAD", "--", "src"], capture_output=True, text=True)
    if count.returncode == 0 and int(count.stdout) > MAX_COMMITS:
        print(f"ci/figures.sh: note: {count.stdout.strip()} commits of src/ since the figures ({commit}): measure again")
    sys.exit(bool(wrong) or origin not in page)


parser = argparse.ArgumentParser(prog="ci/figures.sh")
parser.add_argument("logs", metavar="log", nargs="*")
parser.add_argument("--check", action="store_true")
for name in ("machine", "date", "commit", "rounds"):
    parser.add_argument(f"--{name}")
options = parser.parse_args()
if options.check:
    check()
elif options.logs:
    write(options)
else:
    parser.error("which log?")
PY
