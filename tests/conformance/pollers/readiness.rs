//! Rules 1 to 10 and 68: readable, writable, and the forms of an end.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use polder::poller::{Event, Interest, Mode, Poller};
use socket2::Socket;

#[cfg(unix)]
use super::unix::Pipe;
use super::{
    LOCAL, NONE, QUIET, READABLE, Source, WRITABLE, drain, fails, fill, in_every_mode, local_pair,
    on_each_pair, pairs, poll_now, quiet, reports_at_most, tcp_pair, wait, would_block,
};
use crate::descriptor::{AsDescriptor, Owned};
use crate::support::eventually;

/// Rule 1: spurious readiness is followed by another wake up.
#[test]
fn rule_01_spurious_then_another_wake_up() {
    on_each_pair(|poller, mode, (kind, ours, mut theirs)| {
        let mut thief = ours.try_clone().unwrap();
        let ours = Source::new(poller, ours, 1, READABLE, mode);
        for round in 0..6 {
            theirs.write_all(b"x").unwrap();
            if round % 2 == 0 {
                assert!(ours.next().is_readable(), "{kind}");
            }
            // A duplicate takes the byte, after or before the report.
            drain(&mut thief, 1);
            would_block((&ours.socket).read(&mut [0]), kind);
            ours.rearm(READABLE);
            reports_at_most(poller, 1, "nothing is there");
            // The spurious report has disarmed a one-shot interest.
            ours.rearm(READABLE);
        }
        theirs.write_all(b"y").unwrap();
        assert!(ours.next().is_readable(), "{kind}: told after false alarms");
        assert_eq!((&ours.socket).read(&mut [0; 8]).unwrap(), 1, "{kind}");
    });
}

#[test]
fn rule_02_hints_are_true_on_a_connected_socket() {
    let honest = |event: Event, when: &str| {
        let hints = [event.is_closed(), event.is_error(), event.is_priority()];
        assert_eq!(hints, [false; 3], "{when}: {event:?}");
    };
    in_every_mode(move |poller, mode| {
        for (kind, ours, mut theirs) in pairs() {
            let all = READABLE | WRITABLE | Interest::PRIORITY;
            let ours = Source::new(poller, ours, 1, all, mode);
            let event = ours.next();
            honest(event, kind);
            assert!(event.is_writable() && !event.is_readable(), "{event:?}");
            ours.socket.shutdown(Shutdown::Write).unwrap();
            ours.rearm(READABLE | Interest::PRIORITY);
            theirs.write_all(b"hello").unwrap();
            loop {
                let event = ours.next();
                honest(event, &format!("{kind}, after our own shutdown, and data"));
                if event.is_readable() {
                    break;
                }
            }
            drop(theirs);
            ours.rearm(READABLE);
            ours.until_hinted(READABLE, Event::is_closed);
        }
        if poller.capabilities().priority {
            let (ours, theirs) = tcp_pair();
            let ours = Source::new(poller, ours, 2, READABLE | Interest::PRIORITY, mode);
            theirs.send_out_of_band(b"!").unwrap();
            ours.until_hinted(READABLE | Interest::PRIORITY, Event::is_priority);
        }
    });
}

/// Rule 3: readable and writable may come apart but both come.
#[test]
fn rule_03_readable_and_writable_both_come() {
    on_each_pair(|poller, mode, (kind, ours, mut theirs)| {
        theirs.write_all(b"x").unwrap();
        let ours = Source::new(poller, ours, 1, READABLE | WRITABLE, mode);
        let (mut readable, mut writable) = (false, false);
        for round in 1.. {
            assert!(round < 1_000, "{kind}: one of both is never reported");
            let events = wait(poller, None);
            assert!(events.len() <= 2, "{kind}: {events:?}");
            readable |= events.iter().any(Event::is_readable);
            writable |= events.iter().any(Event::is_writable);
            match (readable, writable) {
                (true, true) => break,
                (true, false) => ours.rearm(WRITABLE),
                (false, true) => ours.rearm(READABLE),
                (false, false) => panic!("{kind}: reported for nothing: {events:?}"),
            }
        }
    });
}

/// Rule 4: an end that comes with data is not lost by a short read.
#[test]
fn rule_04_end_with_data_survives_short_read() {
    on_each_pair(|poller, mode, (kind, ours, mut theirs)| {
        let ours = Source::new(poller, ours, 1, READABLE, mode);
        theirs.write_all(b"hello").unwrap();
        theirs.shutdown(Shutdown::Write).unwrap();
        ours.until_hinted(READABLE, Event::is_closed);
        let mut bytes = [0; 64];
        assert_eq!(ours.read(&mut bytes).unwrap(), 5, "{kind}");
        assert_eq!(&bytes[..5], b"hello");
        if poller.capabilities().hints {
            // Both the data and the end are known to have arrived.
            assert_eq!((&ours.socket).read(&mut bytes).unwrap(), 0, "{kind}");
        } else {
            assert_eq!(ours.read(&mut bytes).unwrap(), 0, "{kind}");
        }
    });
}

/// Rule 4: an end that comes after a short read is reported.
#[test]
fn rule_04_end_after_short_read_reported() {
    on_each_pair(|poller, mode, (kind, ours, mut theirs)| {
        let ours = Source::new(poller, ours, 1, READABLE, mode);
        theirs.write_all(b"hello").unwrap();
        ours.next();
        // A short read, so an edge reports nothing more until new data arrives.
        let mut bytes = [0; 64];
        assert_eq!((&ours.socket).read(&mut bytes).unwrap(), 5, "{kind}");
        ours.rearm(READABLE);
        drop(theirs);
        assert!(ours.next().is_readable(), "{kind}: the end can be read");
        assert_eq!(ours.read(&mut bytes).unwrap(), 0, "{kind}");
    });
}

/// Rule 5: a half closed peer takes writes and does not spin.
#[test]
fn rule_05_half_closed_peer_writes_no_spin() {
    on_each_pair(|poller, mode, (kind, ours, mut theirs)| {
        let ours = Source::new(poller, ours, 1, READABLE, mode);
        theirs.shutdown(Shutdown::Write).unwrap();
        assert!(ours.next().is_readable(), "{kind}");
        assert_eq!(ours.read(&mut [0; 8]).unwrap(), 0, "{kind}: the end");
        // The end was read, and there is no further interest.
        match mode {
            Mode::Level => ours.set(NONE),
            _ => reports_at_most(poller, 1, kind),
        }
        quiet(poller, &format!("{kind}: half closed and not waited for"));

        (&ours.socket).write_all(b"still").unwrap();
        drain(&mut theirs, 5);

        // Now we wait for room in a full buffer, and the peer's end does not make room. Data in
        // transit may still make some.
        let mut written = 0;
        for round in 0.. {
            assert!(round < 100, "{kind}: a half-closed peer's writer spins");
            written += fill(&ours.socket);
            ours.set(WRITABLE);
            if wait(poller, Some(QUIET)).is_empty() {
                break;
            }
        }
        drain(&mut theirs, written);
        assert!(ours.next().is_writable(), "{kind}: there is room again");
        assert!((&ours.socket).write(b"more").unwrap() > 0, "{kind}");
    });
}

#[test]
fn rule_05_both_told_end_then_room() {
    on_each_pair(|poller, mode, (kind, ours, mut theirs)| {
        let mut written = fill(&ours);
        let both = READABLE | WRITABLE;
        let ours = Source::new(poller, ours, 1, both, mode);
        theirs.shutdown(Shutdown::Write).unwrap();
        while !ours.next().is_readable() {
            written += fill(&ours.socket);
            ours.rearm(both);
        }
        assert_eq!(ours.read(&mut [0; 8]).unwrap(), 0, "{kind}: the end");
        ours.rearm(WRITABLE);
        drain(&mut theirs, written);
        while !ours.next().is_writable() {
            ours.rearm(WRITABLE);
        }
        assert!((&ours.socket).write(b"more").unwrap() > 0, "{kind}");
    });
}

/// Rule 6: reading goes on after our own shutdown of writing.
#[test]
fn rule_06_reads_after_own_write_shutdown() {
    on_each_pair(|poller, mode, (kind, ours, mut theirs)| {
        let ours = Source::new(poller, ours, 1, READABLE, mode);
        ours.socket.shutdown(Shutdown::Write).unwrap();
        reports_at_most(poller, 1, "nothing to read after our own shutdown");
        let mut bytes = [0; 8];
        eventually("the peer sees the end", || {
            matches!(theirs.read(&mut bytes), Ok(0))
        });
        for round in 0..3 {
            would_block((&ours.socket).read(&mut bytes), kind);
            ours.rearm(READABLE);
            theirs.write_all(&[round]).unwrap();
            assert!(ours.next().is_readable(), "{kind}");
            assert_eq!(ours.read(&mut bytes).unwrap(), 1, "{kind}");
            assert_eq!(bytes[0], round);
        }
        drop(theirs);
        assert_eq!(ours.read(&mut bytes).unwrap(), 0, "{kind}: the end");
    });
}

/// Asserts that all sent data can be read after the hang-up.
pub(super) fn all_of_it<S: AsDescriptor>(
    kind: &str,
    poller: &Arc<Poller>,
    mode: Mode,
    ours: S,
    theirs: impl Write,
) where
    for<'a> &'a S: Read,
{
    // Not a multiple of the read size, and small enough to arrive with the end. (A Unix socket's
    // buffer has 4 KiB on NetBSD.)
    const SIZE: usize = 3_000;
    let ours = Source::new(poller, ours, 1, READABLE, mode);
    let mut theirs = theirs;
    theirs.write_all(&[9; SIZE]).unwrap();
    drop(theirs);
    ours.until_hinted(READABLE, Event::is_closed);
    let mut read = 0;
    loop {
        match ours.read(&mut [0; 999]).unwrap() {
            0 => break,
            count => read += count,
        }
    }
    assert_eq!(read, SIZE, "{kind}: the end came before the data");
}

#[test]
fn rule_07_all_data_can_be_read_after_a_hang_up() {
    on_each_pair(|poller, mode, (kind, ours, theirs)| {
        // A TCP socket hangs up only when both directions are closed.
        ours.shutdown(Shutdown::Write).unwrap();
        all_of_it(kind, poller, mode, ours, theirs);
    });
}

/// Rule 8: a reply before a reset is read before the error.
#[test]
fn rule_08_reply_before_reset_read_first() {
    in_every_mode(|poller, mode| {
        for interest in [READABLE, READABLE | WRITABLE] {
            let (ours, mut theirs) = tcp_pair();
            let ours = Source::new(poller, ours, 1, interest, mode);
            theirs.write_all(b"reply").unwrap();
            theirs.set_linger(Some(Duration::ZERO)).unwrap();
            drop(theirs);
            ours.until_hinted(interest, Event::is_error);
            let mut bytes = [0; 64];
            let count = ours.read(&mut bytes).expect("the data, before the error");
            assert_eq!(&bytes[..count], b"reply");
            fails(
                ours.read(&mut bytes),
                io::ErrorKind::ConnectionReset,
                "the error, after the data",
            );
        }
    });
}

/// The kind, the registered end, and a function that makes it hang up.
type End = (&'static str, Owned, Box<dyn FnOnce()>);

/// Returns every kind of end.
fn ends() -> Vec<End> {
    let (unix, unix_peer) = local_pair();
    let (tcp, tcp_peer) = tcp_pair();
    let tcp_too = tcp.try_clone().unwrap();
    let (reset, reset_peer) = tcp_pair();
    let reset_too = reset.try_clone().unwrap();
    let hung_up = |socket: Socket| {
        eventually("the end arrives", || {
            !matches!(socket.peek(&mut [std::mem::MaybeUninit::uninit()]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock)
        });
    };
    #[allow(unused_mut, reason = "pipes are Unix's")]
    let mut ends: Vec<End> = vec![
        (
            LOCAL,
            unix.into(),
            Box::new(move || {
                unix_peer.shutdown(Shutdown::Both).unwrap();
                drop(unix_peer);
            }),
        ),
        (
            "TCP",
            tcp.into(),
            Box::new(move || {
                tcp_too.shutdown(Shutdown::Write).unwrap();
                drop(tcp_peer);
                hung_up(tcp_too);
            }),
        ),
        (
            "TCP reset",
            reset.into(),
            Box::new(move || {
                reset_peer.set_linger(Some(Duration::ZERO)).unwrap();
                drop(reset_peer);
                hung_up(reset_too);
            }),
        ),
    ];
    #[cfg(unix)]
    {
        let (read, read_peer) = Pipe::pair();
        let (write_peer, write) = Pipe::pair();
        ends.push(("a pipe's reader", read.0, Box::new(move || drop(read_peer))));
        ends.push((
            "a pipe's writer",
            write.0,
            Box::new(move || drop(write_peer)),
        ));
    }
    ends
}

#[test]
fn rule_10_unwanted_end_does_not_spin() {
    in_every_mode(|poller, mode| {
        // An end that comes in two steps (an error, then a hang-up) may be two edges.
        let once = if mode == Mode::Edge { 2 } else { 1 };
        for (kind, ours, hang_up) in ends() {
            let ours = Source::new(poller, ours, 1, NONE, mode);
            quiet(poller, &format!("{kind}: registered for nothing"));
            hang_up();
            reports_at_most(poller, once, &format!("{kind}: hung up"));
            ours.set(NONE);
            reports_at_most(poller, once, &format!("{kind}: set to nothing again"));
        }
        for (kind, ours, hang_up) in ends() {
            hang_up();
            let _ours = Source::new(poller, ours, 2, NONE, mode);
            reports_at_most(poller, once, &format!("{kind}: had hung up before"));
        }
    });
}

/// Rule 10: an end that was reported does not end every wait.
#[test]
fn rule_10_reported_end_does_not_spin() {
    in_every_mode(|poller, mode| {
        for (kind, ours, hang_up) in ends() {
            let ours = Source::new(poller, ours, 1, READABLE | WRITABLE, mode);
            hang_up();
            ours.next();
            match mode {
                // It is reported as long as the interest is set.
                Mode::Level => {
                    ours.next();
                    ours.set(NONE);
                    reports_at_most(poller, 1, kind);
                }
                Mode::OneShot => quiet(poller, &format!("{kind}: told, and not armed again")),
                _ => reports_at_most(poller, 2, kind),
            }
            quiet(poller, &format!("{kind}: told"));
            // Once the interest is set again it is reported again. (FreeBSD reports nothing for
            // reading on a pipe's write end: `pipe_kqfilter` in its sys/kern/sys_pipe.c.)
            let (again, is_reported): (_, fn(&Event) -> bool) = match kind {
                "a pipe's writer" => (WRITABLE, Event::is_writable),
                _ => (READABLE, Event::is_readable),
            };
            ours.set(again);
            assert!(is_reported(&ours.next()), "{kind}");
        }
    });
}

/// Rule 68: a writer beside unread bytes is told of room.
///
/// New room is reported while bytes are unread, and not before there is room.
#[test]
fn rule_68_writer_beside_unread_gets_room() {
    on_each_pair(|poller, mode, (kind, mut ours, mut theirs)| {
        fill(&mut ours);
        assert_eq!(theirs.write(b"unread").unwrap(), 6);
        let ours = Source::new(poller, ours, 1, WRITABLE, mode);
        if kind == LOCAL && cfg!(unix) {
            quiet(poller, "there is no room");
        }
        let mut bytes = [0; 64 * 1024];
        while !poll_now(poller).iter().any(Event::is_writable) {
            while theirs.read(&mut bytes).is_ok() {}
        }
        assert!((&ours.socket).write(b"x").is_ok(), "{kind}");
    });
}
