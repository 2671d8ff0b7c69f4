//! The goals that were set on an AMD EPYC (Zen 4, two cores, in a virtual machine).

use super::Against::{Itself, Program};
use super::Bound::AtMost;
use super::{Against, Goal};

pub const GOALS: &[Goal] = &[
    goal(
        "pairs",
        "tcp-1",
        "TCP, one pair, to raw",
        "cpu",
        "polder-epoll",
        Program("raw"),
        1.05,
    ),
    goal(
        "pairs",
        "tcp-50",
        "TCP, 50 pairs, to raw",
        "cpu",
        "polder-epoll",
        Program("raw"),
        1.03,
    ),
    goal(
        "pairs",
        "tcp-500",
        "TCP, 500 pairs, to raw",
        "cpu",
        "polder-epoll",
        Program("raw"),
        1.07,
    ),
    goal(
        "echo",
        "connect-16",
        "Connect, echo, close: server CPU, to raw",
        "cpu",
        "polder-epoll",
        Program("raw"),
        1.04,
    ),
    goal(
        "micro",
        "spawn",
        "Spawn and await one, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.6,
    ),
    goal(
        "micro",
        "spawn-many",
        "Spawn 10,000, then await, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.3,
    ),
    goal(
        "micro",
        "yield-self",
        "Yield by a wake, one task, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.85,
    ),
    goal(
        "micro",
        "yield-many",
        "yield_now, 100 tasks, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.6,
    ),
    goal(
        "micro",
        "channel",
        "Ping-pong over async-channel, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.95,
    ),
    goal(
        "micro",
        "timer",
        "Timer made, polled, dropped, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.6,
    ),
    goal(
        "micro",
        "timer-reset",
        "Timer reset and polled among 10,000, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.9,
    ),
    goal(
        "micro",
        "timers",
        "100,000 timers: CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.9,
    ),
    goal(
        "micro",
        "naps",
        "1,000 tasks that sleep 1 to 2 ms: CPU, to tokio",
        "cpu",
        "polder-slack",
        Program("tokio"),
        1.0,
    ),
    goal(
        "micro",
        "naps",
        "1,000 tasks that sleep 1 to 2 ms: lateness, to tokio",
        "p50",
        "polder-slack",
        Program("tokio"),
        0.5,
    ),
    goal(
        "http",
        "http-1-50",
        "HTTP, 50 connections: server CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.95,
    ),
    goal(
        "http",
        "http-2-50",
        "Two workers: HTTP, 50 connections: server CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.95,
    ),
    goal(
        "http",
        "http-2-50",
        "Two workers: HTTP, 50 connections: p50, to tokio",
        "p50",
        "polder",
        Program("tokio"),
        1.05,
    ),
    goal(
        "http",
        "http-2-200",
        "Two workers: HTTP, 200 connections: server CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.95,
    ),
    goal(
        "http",
        "http-2-200",
        "Two workers: HTTP, 200 connections: p50, to tokio",
        "p50",
        "polder",
        Program("tokio"),
        1.05,
    ),
    goal(
        "http",
        "http-2-1000",
        "Two workers: HTTP, 1,000 connections: server CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.95,
    ),
    goal(
        "http",
        "http-2-1000",
        "Two workers: HTTP, 1,000 connections: p50, to tokio",
        "p50",
        "polder",
        Program("tokio"),
        1.05,
    ),
    goal(
        "http",
        "http-8-200",
        "Eight workers: HTTP, 200 connections: server CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.0,
    ),
    goal(
        "http",
        "http-16-200",
        "Sixteen workers: HTTP, 200 connections: server CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.0,
    ),
    goal(
        "http",
        "connect-2-16",
        "Two workers: HTTP, a connection for each request: server CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.0,
    ),
    goal(
        "http",
        "https-2-50",
        "Two workers: HTTPS, 50 connections: server CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.0,
    ),
    goal(
        "http",
        "handshake-2-16",
        "Two workers: HTTPS, a handshake for each request: server CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.0,
    ),
    goal(
        "light",
        "w2-rate-1000",
        "Two workers, 1,000 requests a second: server CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.05,
    ),
    goal(
        "light",
        "w2-rate-1000",
        "Two workers, 1,000 requests a second: sleeps per request",
        "sleeps",
        "polder",
        Itself,
        1.2,
    ),
    goal(
        "light",
        "w4-rate-1000",
        "Four workers, 1,000 requests a second: server CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.05,
    ),
    goal(
        "light",
        "w2-rate-10000",
        "Two workers, 10,000 requests a second: server CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.0,
    ),
    goal(
        "light",
        "w2-ticker-10",
        "Two workers, a ticker of 10 ms: CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.1,
    ),
    goal(
        "light",
        "w2-ticker-10",
        "Two workers, a ticker of 10 ms: sleeps a second",
        "sleeps",
        "polder",
        Itself,
        130.0,
    ),
    goal(
        "light",
        "w4-ticker-10",
        "Four workers, a ticker of 10 ms: CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.1,
    ),
    goal(
        "light",
        "w4-ticker-10",
        "Four workers, a ticker of 10 ms: sleeps a second",
        "sleeps",
        "polder",
        Itself,
        130.0,
    ),
    goal(
        "redis",
        "w2-pipelined-1",
        "Like Redis: server CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.97,
    ),
    goal(
        "redis",
        "w2-pipelined-16",
        "Like Redis, pipelined by 16: server CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.0,
    ),
    goal(
        "proxy",
        "copy-64",
        "Proxy, 64 bytes: its CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.0,
    ),
    goal(
        "proxy",
        "copy-2000",
        "Proxy, 2,000 bytes: its CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.0,
    ),
    goal(
        "udp",
        "echo-50",
        "UDP echo: server CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.95,
    ),
    goal(
        "workers",
        "w2-echo-200",
        "Two workers: echo, 200 connections: CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.95,
    ),
    goal(
        "workers",
        "w2-channels-1",
        "Two workers: channels, one pair: CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.5,
    ),
    goal(
        "workers",
        "w2-channels-64",
        "Two workers: channels, 64 pairs: CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.9,
    ),
    goal(
        "workers",
        "w2-mpmc-8",
        "Two workers: one channel, 8 and 8 tasks: CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.0,
    ),
    goal(
        "workers",
        "w2-wakes-64",
        "Two workers: wakes, 64 pairs: CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.95,
    ),
    goal(
        "workers",
        "w2-storm-1000000",
        "Two workers: storm: CPU, to smol",
        "cpu",
        "polder",
        Program("smol"),
        1.0,
    ),
    goal(
        "workers",
        "w2-uneven-1000",
        "Two workers: uneven tasks: CPU, to smol",
        "cpu",
        "polder",
        Program("smol"),
        1.0,
    ),
    goal(
        "workers",
        "w2-burst-300",
        "Burst of 300 busy tasks: from spawn to first poll, to tokio",
        "first",
        "polder",
        Program("tokio"),
        1.0,
    ),
    goal(
        "workers",
        "w4-channels-64",
        "Four workers: channels, 64 pairs: CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.0,
    ),
    goal(
        "workers",
        "w4-wakes-64",
        "Four workers: wakes, 64 pairs: CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.0,
    ),
    goal(
        "workers",
        "w8-channels-64",
        "Eight workers: channels, 64 pairs: CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.0,
    ),
    goal(
        "workers",
        "w16-channels-64",
        "Sixteen workers: channels, 64 pairs: CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.0,
    ),
    goal(
        "workers",
        "w2-made-1",
        "Runtimes with two workers, made and dropped: CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.0,
    ),
    goal(
        "workers",
        "w4-made-1",
        "Runtimes with four workers, made and dropped: CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.0,
    ),
    goal(
        "files",
        "small-1",
        "Files of 2 KiB, one after the other: CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.4,
    ),
    goal(
        "files",
        "small-32",
        "Files of 2 KiB, 32 at a time: CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.35,
    ),
    goal(
        "files",
        "small-32",
        "Files of 2 KiB, 32 at a time: CPU, to async-fs",
        "cpu",
        "polder",
        Program("async-fs"),
        0.35,
    ),
    goal(
        "files",
        "large-1",
        "256 MiB in reads of 64 KiB: time, to async-fs",
        "ns",
        "polder",
        Program("async-fs"),
        1.0,
    ),
    goal(
        "files",
        "cold-32",
        "Reads of 4 KiB that the disk is asked for, 32 at a time: CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.6,
    ),
    goal(
        "files",
        "synced-32",
        "Files of 2 KiB written and synced, 32 at a time: CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.8,
    ),
    goal(
        "files",
        "append-1",
        "256 MiB in writes of 64 KiB: CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        0.9,
    ),
    goal(
        "files",
        "unblock-1",
        "unblock, one after the other: CPU, to tokio",
        "cpu",
        "polder",
        Program("tokio"),
        1.0,
    ),
    goal(
        "files",
        "unblock-64",
        "unblock, by 64 tasks: time, to smol",
        "ns",
        "polder",
        Program("smol"),
        1.0,
    ),
    goal(
        "memory",
        "gone-10000",
        "Bytes still allocated for each of 10,000 connections that have gone",
        "bytes",
        "polder-epoll",
        Itself,
        8.0,
    ),
    goal(
        "small",
        "echo",
        "An echo server, stripped: KiB",
        "kib",
        "polder",
        Itself,
        640.0,
    ),
];

/// Returns why a goal is missed, if something is known.
pub fn why(group: &str, workload: &str) -> &'static str {
    match (group, workload) {
        ("light", "w2-ticker-10" | "w4-ticker-10") => TICKER,
        ("light", "w2-rate-1000" | "w4-rate-1000") => LIGHT,
        ("light", _) => PLACED,
        ("http", "http-2-1000" | "http-2-200") => FAIR,
        ("http", "https-2-50" | "handshake-2-16") => TLS,
        ("http", _) => HTTP,
        ("redis", _) => REDIS,
        ("udp", _) => UDP,
        ("workers", "w2-mpmc-8" | "w2-uneven-1000") => SPREAD,
        ("workers", "w8-channels-64" | "w16-channels-64") => CHANNELS,
        ("workers", "w2-made-1" | "w4-made-1") => MADE,
        ("files", "append-1") => APPEND,
        ("files", "small-32") => SMALL_FILES,
        ("files", "unblock-1") => UNBLOCK,
        ("small", _) => SMALL,
        // These rows have goals for both processors.
        _ => super::xeon::why(group, workload),
    }
}

const TICKER: &str = "\
Of 110 sleeps a second 100 are the ticker's, and ten the monitor's (tokio: 104). What a sleep costs depends on the core on which the \
kernel wakes the thread: in three runs of five to seven rounds polder took 1.17, 1.03 and 0.98 of tokio's CPU time with two workers, and the \
quartiles lie on both sides of the goal. While the monitor was an idle worker that looked each 11.2 ms, it was 190 sleeps and 1.5 to 2.3 of \
tokio's CPU time.";

const LIGHT: &str = "\
1.01 sleeps a request. What is beyond tokio's is the monitor's. The experiment, seven rounds, two workers, Xeon: without a monitor 0.87 of \
tokio's CPU time, with its clock of processor time alone 0.85, with an inspection each 100 ms alone 0.90, with both 0.95 to 0.98. While the \
monitor was an idle worker that looked each 11.2 ms, it was 1.40 to 1.62, at 1.09 sleeps a request. A task behind one that computes is \
found within 12 ms; tokio looks at nothing, and such a task waits until the other has ended.";

const PLACED: &str = "\
Depends on the core on which the kernel wakes a worker, and is bimodal: one worker, which it wakes on another core than the generator's, takes \
30 µs a request in both programs (the row of one worker); two take 6, and between the two where it changes within a round. In six more rounds of the same day it was \
0.88 of tokio's CPU time (0.84 to 0.93), with one of the six at 15.7 µs.";

const HTTP: &str = "\
Most of a request is the kernel's, and hyper's and rustls' code is the same in both programs. A request takes 6,450 user instructions \
with one worker and 6,650 with two (tokio: 6,560 and 6,770; valgrind), and both make the same system calls.";

const FAIR: &str = "\
As for the other rows of HTTP. The median is later, and the 99th percentile earlier than tokio's in the same rounds. Each connection \
asks again when it is answered, so the mean latency is the number of connections divided by the rate (Little's law), of which polder has the \
higher one: with 1,000 connections 8.3 ms at a median of 5.9 (tokio: 9.0 at 4.5), with 200 1.34 at 1.03 (1.43 at 0.95). So polder's \
requests wait for less time, and more equally; for an earlier median at this rate others would have to wait for longer. Tried: 16 and \
1,024 events and tasks at a time instead of 64 and 256: the median at 1,000 connections 1.20 and 1.14 of tokio's (from 1.12), at 200 1.32 and \
1.30 (from 1.28), the 99th percentile at 50 1.38 and 1.66 (from 1.46); five rounds, so none of it is the batch.";

const TLS: &str = "\
A handshake is 1,349,000 user instructions (tokio: 1,344,000; valgrind, two workers), and with tokio's TLS (`polder-tokio-rustls`) as many; a \
request over TLS, eight at a time, is 12,700 (12,900). What polder has more of are switches. Its `block_on`, which accepts here, has a \
poller of its own, so the kernel wakes that thread for each connection, and it takes the processor from a worker that computes: a \
handshake has 1.9 `accept4`, each second of which finds nothing, 1.3 `epoll_pwait` and 1.4 switches to another thread (tokio: 1.2, 0.3 \
and 0.8; on a busy machine), and 1.1 sleeps (0.35). The experiment: if a task of the workers accepts, in both programs, both have 0.05 \
sleeps, and a handshake is 1.003 of tokio's CPU time (from 1.048), a request 0.985 (from 1.028); without the monitor of then they are 1.032 and 1.002: \
five rounds, Xeon.";

const REDIS: &str = "\
polder executes fewer instructions than tokio, and makes as many system calls. Pipelined by 16, with two workers, 16 requests are \
20,370 user instructions (tokio: 20,550; valgrind), and, on a busy machine, one `recvfrom`, one `sendto`, 0.034 `epoll_pwait` \
(0.044), 0.021 `futex` (0.022), and 0.053 switches to another thread (0.049). The experiments, seven rounds, Xeon: with the monitor of then \
switched off, one request in flight is 0.96 of tokio's CPU time (from 1.01), and 16 are 1.08 (from 1.14); with 16 events at a time instead of \
64, 0.99 and 0.93.";

const UDP: &str = "\
Threads that block, without a runtime (`blocking`), take 0.85 of tokio's CPU time in the same rounds: for 0.95 a runtime would have to take \
a third less than polder, tokio and smol do, which are equal.";

const SPREAD: &str = "\
Within the spread: the quartiles lie on both sides of the goal.";

const CHANNELS: &str = "\
As for the same row with two and four workers: with async-task changed in those two places it is 1.05 of tokio's CPU time with eight \
workers (from 1.12) and 1.06 with sixteen (from 1.12; seven rounds, Xeon).";

const MADE: &str = "\
By strace, polder's runtime with two workers is made and dropped with 56 system calls, and tokio's with 51. polder's are two epolls and two \
eventfds to tokio's one: the workers share one, and the thread that calls `block_on` has its own; tokio makes 8 calls of futex(2) \
to polder's 1. And 67,200 user instructions (tokio: 47,300), of which nearly half are malloc's and free's in both. An epoll and an eventfd \
more cost 0.01 of tokio's CPU time (nine rounds, Xeon: 1.022 from 1.011), so the second pair is not what it lacks.";

const APPEND: &str = "\
A write is done when it completes: each waits for a thread and back. tokio's and async-fs's report success when they have copied the bytes, \
write behind, and report an error by a later call; so the next write overlaps. compio, whose writes are done when they complete, too, takes \
1.4 of tokio's CPU time and 1.7 of the time in the same rounds. `tokio-flush` waits for each write as polder does, and takes 0.93 of \
tokio's, so waiting is not all: each hop of polder's wakes an idle core. The experiment: on one core (`taskset -c 0`) polder takes 0.90 of tokio's \
CPU time, and 0.91 of `tokio-flush`'s (16.1 µs, 17.8 and 17.7; two runs). (ext4 refuses `RWF_NOWAIT` for buffered writes, so none can be made in place.)";

const SMALL_FILES: &str = "\
std's functions on one thread, without any runtime, take 0.36 of async-fs's CPU time in the same rounds.";

const UNBLOCK: &str = "\
A call is two wake-ups of a sleeping thread, and depends on where the kernel runs the two threads: on one core a call takes 2 µs of CPU \
time, on two cores 20 to 38 (the smallest and largest of polder's rounds), since each then wakes an idle core. \
The experiment is the row on one core: 0.43 of tokio's CPU time (nine rounds, Xeon).";

const SMALL: &str = "\
By symbols, 193 KB of the code are polder's, 178 print a backtrace and 151 are other parts of the standard library. What this server links and does \
not run: poll, select and the choice of a backend by name (22), names and their threads (12), forks (5), diagnostics (3), back-off and \
several waiters of a socket (8). Each is reached by a variable of the environment, a host name in the program's text, a fork or a \
signal; without all of them, and the 17 of copies that several code generation units have of a function, with their tables, it would still have 655 KiB.";

/// A goal of which less is better.
const fn goal(
    group: &'static str,
    workload: &'static str,
    what: &'static str,
    key: &'static str,
    program: &'static str,
    against: Against,
    most: f64,
) -> Goal {
    Goal {
        group,
        workload,
        what,
        key,
        program,
        against,
        bound: AtMost(most),
    }
}
