//! The goals that were set on an Intel Xeon (in a virtual machine), and why those are missed that
//! are.

use super::Against::{Itself, Program};
use super::Bound::{self, AtLeast, AtMost};
use super::Goal;

const fn pairs(workload: &'static str, what: &'static str, most: f64) -> Goal {
    Goal {
        group: "pairs",
        workload,
        what,
        key: "cpu",
        program: "polder-epoll",
        against: Program("raw"),
        bound: AtMost(most),
    }
}

/// A goal for user-mode instructions of a round trip over TCP.
const fn counted(workload: &'static str, what: &'static str, key: &'static str, most: f64) -> Goal {
    Goal {
        group: "instructions",
        workload,
        what,
        key,
        program: "polder",
        against: Itself,
        bound: AtMost(most),
    }
}

/// A goal relative to tokio's current-thread scheduler.
const fn micro(workload: &'static str, what: &'static str, most: f64) -> Goal {
    Goal {
        group: "micro",
        workload,
        what,
        key: "cpu",
        program: "polder",
        against: Program("tokio"),
        bound: AtMost(most),
    }
}

/// A goal for several workers, relative to the same number of tokio's.
const fn workers(workload: &'static str, what: &'static str, most: f64) -> Goal {
    Goal {
        group: "workers",
        workload,
        what,
        key: "ns",
        program: "polder",
        against: Program("tokio"),
        bound: AtMost(most),
    }
}

/// A goal in milliseconds, for two workers.
const fn waits(workload: &'static str, key: &'static str, what: &'static str, most: f64) -> Goal {
    Goal {
        group: "workers",
        workload,
        what,
        key,
        program: "polder",
        against: Itself,
        bound: AtMost(most),
    }
}

/// A goal for HTTP, relative to tokio.
const fn http(workload: &'static str, what: &'static str, key: &'static str, bound: Bound) -> Goal {
    Goal {
        group: "http",
        workload,
        what,
        key,
        program: "polder",
        against: Program("tokio"),
        bound,
    }
}

const fn echo(workload: &'static str, what: &'static str, key: &'static str, bound: Bound) -> Goal {
    Goal {
        group: "echo",
        workload,
        what,
        key,
        program: "polder-epoll",
        against: Program("raw"),
        bound,
    }
}

pub const GOALS: &[Goal] = &[
    pairs("tcp-1", "TCP, one pair, to raw", 1.05),
    pairs("tcp-50", "TCP, 50 pairs, to raw", 1.05),
    pairs("tcp-500", "TCP, 500 pairs, to raw", 1.05),
    pairs("unix-1", "Unix, one pair, to raw", 1.10),
    pairs("unix-50", "Unix, 50 pairs, to raw", 1.08),
    pairs("unix-500", "Unix, 500 pairs, to raw", 1.10),
    counted("tcp-1", "TCP, one pair: instructions", "count", 1_800.0),
    counted("tcp-50", "TCP, 50 pairs: instructions", "count", 1_400.0),
    counted("tcp-1", "TCP, one pair: locked instructions", "locks", 20.0),
    counted("tcp-1", "TCP, one pair: hot lines of code", "lines", 100.0),
    echo(
        "small-50",
        "Echo, 50 connections: requests, to raw",
        "rate",
        AtLeast(0.98),
    ),
    echo(
        "small-50",
        "Echo, 50 connections: server CPU, to raw",
        "cpu",
        AtMost(1.02),
    ),
    echo(
        "small-50",
        "Echo, 50 connections: p99, to raw",
        "p99",
        AtMost(1.0),
    ),
    echo(
        "small-1000",
        "Echo, 1,000 connections: requests, to raw",
        "rate",
        AtLeast(1.0),
    ),
    echo(
        "small-1000",
        "Echo, 1,000 connections: server CPU, to raw",
        "cpu",
        AtMost(1.05),
    ),
    echo(
        "connect-16",
        "Connect, echo, close: server CPU, to raw",
        "cpu",
        AtMost(1.03),
    ),
    echo(
        "huge-4",
        "1 MiB to and fro, 4 connections: server CPU, to raw",
        "cpu",
        AtMost(1.03),
    ),
    micro("spawn", "Spawn and await one, to tokio", 0.43),
    micro("spawn-many", "Spawn 10,000, then await, to tokio", 0.23),
    micro("yield-self", "Yield by a wake, one task, to tokio", 0.85),
    micro("yield-many", "yield_now, 100 tasks, to tokio", 0.7),
    micro("timer", "Timer made, polled, dropped, to tokio", 0.17),
    micro(
        "timer-reset",
        "Timer reset and polled among 10,000, to tokio",
        0.9,
    ),
    micro("timeout", "Timeout that does not fire, to tokio", 0.9),
    micro("timers", "100,000 timers: CPU, to tokio", 0.9),
    Goal {
        group: "micro",
        workload: "service",
        what: "1,000 tasks that sleep for 2 s, as late as tokio's: CPU, to tokio",
        key: "cpu",
        program: "polder-slack",
        against: Program("tokio"),
        bound: AtMost(1.0),
    },
    micro("wake", "Wake-up across threads, to tokio", 0.9),
    Goal {
        group: "small",
        workload: "echo",
        what: "An echo server, stripped: KiB",
        key: "kib",
        program: "polder",
        against: Itself,
        bound: AtMost(660.0),
    },
    Goal {
        group: "memory",
        workload: "idle-10000",
        what: "Memory per idle connection beyond the buffer, bytes",
        key: "bytes",
        program: "polder-epoll",
        against: Itself,
        bound: AtMost(400.0),
    },
    http(
        "http-1-50",
        "HTTP, 50 connections: p99, to tokio",
        "p99",
        AtMost(1.0),
    ),
    http(
        "http-1-50",
        "HTTP, 50 connections: server CPU, to tokio",
        "cpu",
        AtMost(1.0),
    ),
    http(
        "http-2-50",
        "Two workers: HTTP, 50 connections: p99, to tokio",
        "p99",
        AtMost(0.9),
    ),
    http(
        "http-2-200",
        "Two workers: HTTP, 200 connections: requests, to tokio",
        "rate",
        AtLeast(1.0),
    ),
    http(
        "http-2-200",
        "Two workers: HTTP, 200 connections: server CPU, to tokio",
        "cpu",
        AtMost(1.0),
    ),
    http(
        "http-2-200",
        "Two workers: HTTP, 200 connections: p99, to tokio",
        "p99",
        AtMost(0.9),
    ),
    workers(
        "w2-echo-200",
        "Two workers: echo, 200 connections, to tokio",
        0.95,
    ),
    workers(
        "w2-channels-1",
        "Two workers: channels, one pair, to tokio",
        0.47,
    ),
    workers(
        "w2-channels-64",
        "Two workers: channels, 64 pairs, to tokio",
        0.95,
    ),
    workers(
        "w2-wakes-64",
        "Two workers: wakes, 64 pairs, to tokio",
        0.97,
    ),
    workers("w2-storm-1000000", "Two workers: storm, to tokio", 0.65),
    workers(
        "w2-uneven-1000",
        "Two workers: uneven tasks, to tokio",
        0.85,
    ),
    workers(
        "w4-echo-200",
        "Four workers: echo, 200 connections, to tokio",
        1.0,
    ),
    workers(
        "w4-channels-1",
        "Four workers: channels, one pair, to tokio",
        1.0,
    ),
    workers(
        "w4-channels-64",
        "Four workers: channels, 64 pairs, to tokio",
        1.0,
    ),
    workers(
        "w4-wakes-64",
        "Four workers: wakes, 64 pairs, to tokio",
        1.0,
    ),
    workers("w4-storm-1000000", "Four workers: storm, to tokio", 1.0),
    workers(
        "w4-uneven-1000",
        "Four workers: uneven tasks, to tokio",
        1.0,
    ),
    waits(
        "w2-beside-100",
        "itself",
        "Beside one that computes: its own message, ms",
        1.0,
    ),
    waits(
        "w2-beside-100",
        "thread",
        "Beside one that computes: a thread's message, ms",
        0.15,
    ),
    waits(
        "w2-beside-100",
        "socket",
        "Beside one that computes: a socket, ms",
        0.15,
    ),
    waits(
        "w2-beside-100",
        "timer",
        "Beside one that computes: a timer, ms",
        1.0,
    ),
    waits(
        "w2-hole-200",
        "socket",
        "All asleep, and the woken one computes: a socket, ms",
        1.0,
    ),
    waits(
        "w2-hole-200",
        "timer",
        "All asleep, and the woken one computes: a timer, ms",
        1.0,
    ),
    waits(
        "w2-burst-300",
        "first",
        "Burst of 300 busy tasks: from spawn to first poll, at most, ms",
        2.0,
    ),
];

/// Returns why a goal is missed if it is. Empty if nothing is known.
pub fn why(group: &str, workload: &str) -> &'static str {
    match (group, workload) {
        ("pairs", workload) if workload.starts_with("unix") => UNIX,
        ("pairs" | "instructions", _) => WAKES,
        ("micro", "spawn" | "spawn-many") => SPAWN,
        ("micro", "yield-self" | "yield-many") => YIELD,
        ("micro", "channel") => CHANNEL,
        ("micro", "timer" | "timer-reset" | "timeout") => TIMER,
        ("micro", "timers" | "service") => TIMERS,
        ("memory", _) => MEMORY,
        ("echo", "connect-16") => CONNECT,
        ("echo", "huge-4") => HUGE,
        ("echo", _) => ECHO,
        ("small", _) => SMALL,
        ("micro", "wake") => ACROSS,
        ("workers", "w2-beside-100") => BESIDE,
        ("http", _) => HTTP,
        ("workers", "w2-channels-64" | "w4-channels-64") => CHANNELS,
        ("workers", "w2-wakes-64" | "w4-wakes-64") => WAKES_OF_SEVERAL,
        ("workers", "w2-burst-300") => BURST,
        ("workers", _) => WORKERS,
        _ => "",
    }
}

// Measurements (callgrind, and perf's clock where instructions are not conclusive) for rows that
// are missed. Their figures are from the machine and the commit on which they were written; the
// tables have those of the run.

const WAKES: &str = "\
With one pair a round trip is 2,261 user instructions by `ci/instructions.sh` (the table's program has one code generation unit, which takes \
some off), 58 of them for what the runtime can be asked (ids, metrics), and 24 are locked: 8 are async-task's (the task's state), 8 the lock of the two sources, 4 that of the table of sources, 4 parking; with 50 pairs the last \
two are shared by many. An experiment without them (sources and table under cells instead of locks: 2,126 and 12; parking and async-task \
with plain loads and stores as well: 2,100 and none) shows that locks are 8 % of the instructions, and that the goals for instructions are \
not reached by taking them away. No function stands out: reading, waiting, delivering, running and scheduling take 60 to 130 instructions \
each time. Tried: a lock whose release is a plain store, or that its driver takes by plain stores alone (1 to 6 % of the time); tasks that \
wait by index instead of by waker (no gain); taking fewer events at once (nothing with 500 pairs).";

const UNIX: &str = "\
As for TCP, where the kernel does twice the work. polder's own Unix streams refuse descriptors where the kernel can (Linux 6.16, \
`SO_PASSRIGHTS`) and are read with `recv`. With an older kernel, and where others made the socket, a read is a `recvmsg`, since only \
that reports that it ended at descriptors that came along, behind which there may be more bytes: 82 ns more, twice a round trip \
(`raw-recvmsg` to `raw`, `polder-adopted` to `polder-epoll`). Also measured in its place: `recv` and then FIONREAD (154 ns), \
or trying again (178).";

const SPAWN: &str = "\
One allocation, 1,150 instructions and 18 locked ones, spread over making, scheduling, running, awaiting and freeing the task; 60 of \
them are for its id, its name and the metrics. Two locked ones went when tasks began to pass on their reference to the runtime (3 to 5 %). \
Without any locked instruction (async-task with plain loads and stores, no locks) it is as many instructions.";

const YIELD: &str = "\
427 instructions, of which 4 are locked, all of them async-task's (the task's state, at the wake and around the poll). tokio has 400 and 4, \
for the same steps; with async-task changed as for *wakes, 64 pairs* polder has 3, and 0.89 of tokio's time (from 0.94; seven rounds). polder's `yield_now` takes this way too; tokio's own `yield_now` takes three times as many (`yield`).";

const CHANNEL: &str = "\
The channel is the bound: a round trip is 2,692 user instructions, 58 of them locked (tokio: 2,858 and 56), where a wake and a poll, of \
which it has two, are 400 and 4 in the row of yields. With async-task changed as for *wakes, 64 pairs* it is 2,676 and 54, and 0.99 of tokio's CPU time (from 1.01; seven rounds).";

const TIMER: &str = "\
For a timer that is made, polled and dropped, a third of the time is the clock, which is read when it is made. Counting the waker up and \
down is a sixth, the heap a fifth. A reset that is polled, among 10,000 timers, is 376 instructions (tokio's wheel: 329): a timer that is \
pushed back is moved in the heap when it would have been due. A yield under a timeout is 1,189 instructions, 6 of them locked (tokio: 1,153 \
and 18): 428 for the yield, the rest for the timer. 50 of its 240 ns are two readings of the clock, when the timer is made and at the end \
of the turn; tokio reads it as often. It was 1,331 instructions while each turn with timers computed a tick from the clock.";

const TIMERS: &str = "\
Deadlines share a wake-up if they fall in the same 32 µs; a shorter grid is less late for more CPU time: with 20 µs the \
median was 9 µs late at 1.09 × tokio's CPU time, without any 4 µs at 1.5 ×. The tasks of a service wake the process at each deadline \
unless `timer_slack` lets deadlines share a wake-up: that is three quarters of the CPU time of the row `polder`.";

const MEMORY: &str = "\
Asked of malloc for each connection: 152 bytes for the source (16 of them its `Arc`'s counts; 115 of the other 136 are fields, the rest \
is padding) and 208 for the task. Of these 96 are async-task's header with ours, 16 where the task is found by its worker, and 96 the \
program's own future, with the socket twice, as argument and as variable. glibc makes 160 and 224 of them, and 1,040 of the \
buffer's 1,024. Then 16 in the reactor's table, and 24 in the worker's list of owned tasks, by which a runtime that ends finds \
them: altogether 440. It was 456 while a socket had its type in each handle, and took 24 bytes instead of 16. For 400 the task would have to \
have at most 200 bytes, the source 136 and the entry in the list 16. The task lacks 8: with its name and the place of its spawn behind one \
pointer, which a bit tells apart. The source lacks 16: its fields would fit if they were those of one struct, where now readiness, lock, \
waiters and registration are padded each. The entry has a waker and a header, at a distance that only async-task knows.";

const CONNECT: &str = "\
1.4 µs a connection. One system call more than the raw loop: a source is deregistered before it is closed, since a duplicate of its \
descriptor would keep it in the kernel's set. And a task and a source are made and freed. Without the deregistration it is 1.075 and 1.123 \
in two runs of nine rounds, and 1.139 and 1.121 with it.";

const ECHO: &str = "\
Each connection has its task and its source, which the raw loop does without. Taking 64 events at a time instead of 256, \
as many as tasks are run in a turn, took 12 % off the CPU time at 1,000 connections (11 rounds, from 0.85 to 0.93).";

const HUGE: &str = "\
A message is 16 reads and writes of 64 KiB, so the kernel's copies are all that is seen, and rounds differ by half. `raw-own`, which differs \
from `raw` only by a buffer for each connection, is no faster than polder.";

const SMALL: &str = "\
The chapter on small programs says what its size consists of.";

const ACROSS: &str = "\
Nearly all of it is the kernel's: a thread writes to an eventfd, and the other one wakes up on its core. Two threads by hand, each with an \
epoll and an eventfd and nothing else, take 51 µs of CPU time (47 to 71, and 3 once, on one core), where polder takes 66 and tokio 62 in the same rounds: medians of \
five.";

const BESIDE: &str = "\
These wait for the idle worker to wake up, as in the other programs: tokio's socket takes as long.";

const CHANNELS: &str = "\
Of 64 pairs of tasks the channel is the bound: on one worker a round trip over async-channel costs polder and tokio the same CPU time, \
with one pair and with 64 (0.8 to 0.95 µs), a third of which is wakes and polls. With two workers it is 2,811 instructions, 60.4 of them \
locked; with async-task changed as for *wakes, 64 pairs* 2,790 and 56.4 (tokio: 2,794 and 57.1; valgrind), and it is 0.94 \
of tokio's with two workers (nine rounds, from 1.01), and 0.99 with four (five rounds, from 1.03).";

const WORKERS: &str = "\
These depend on the processor, and differ between rounds by up to a factor of two: a plain thread and two workers, or four, share two \
cores. The same scheduler in the run before, on another processor on which a system call takes three times as long: echo 0.959, one pair of \
channels 0.509, storm 0.595 (with four workers 0.657), uneven tasks 0.843.";

const BURST: &str = "\
tokio takes longer in the same rounds (see the table). The thread that spawns and two workers share two cores, and a worker that the \
system takes off its processor keeps new tasks in its queue until it is back, as the other one is busy too. With a budget of 4 \
reads for the first poll instead of 32 it is 6.2 ms instead of 7.5 (four rounds); with one of 128, and new tasks behind those that have \
yielded, it took 2.5 times as long. Shares of at most 16 injected tasks: 1.2 times as long.";

const WAKES_OF_SEVERAL: &str = "\
The difference is async-task's `run`, with 26 % of the time. Its compare-and-exchange after a poll expects the state from before the poll, so \
it fails, and is repeated, whenever the task's waker was cloned meanwhile; and the reference of the runnable is dropped by another locked \
instruction. With async-task 4.7.1 changed in these two places (the state is read again after the poll; the compare-and-exchange drops the \
reference, too: six lines) a wake is 474 instructions, 10.2 of them locked, instead of 483 and 12.2 (tokio: 487 and 10.5; valgrind), and it is 1.00 of tokio's CPU time with two workers (nine rounds, from 1.14), and 1.04 with four (five rounds, from \
1.17). Before: with the slot of the task that runs next taken by a plain load and a plain store, which is not correct, 5 % less; with each \
task on cache lines of its own another 3 %, for 56 bytes a task or more.";

const HTTP: &str = "\
Server and generator are three threads or more on two cores, so the system takes a worker off its processor for some milliseconds now and \
then. That is why the rounds differ so much. As valgrind counts them, a request takes 6,450 user instructions with one worker and 6,650 with \
two (tokio: 6,560 and 6,770), and both make the same two system calls for it.";
