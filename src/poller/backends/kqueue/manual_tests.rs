//! Tests of the statements of kqueue(2): on macOS and the BSDs against the kernel, on Linux against
//! the model (ci/kqueue.sh). Where systems differ, each asserts the [`Flavour`](flavours::Flavour).

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Instant;

use super::sys::ffi::{EV_DISABLE, EV_DISPATCH, EV_ENABLE, EV_ERROR, EVFILT_TIMER, EVFILT_WRITE};
use super::*;

const LIMIT: Duration = Duration::from_secs(20);

const ROOM: usize = 8;

fn of(source: &impl AsFd, filter: Filter, flags: Flags) -> Kevent {
    sys::kevent_of(source.as_fd().as_raw_fd() as usize, filter, flags, 7)
}

fn queue() -> Queue {
    Queue::new().unwrap()
}

fn apply(queue: &Queue, changes: &[Kevent]) -> Result<(), Errno> {
    let count = retry_on_intr(|| queue.kevent(changes, &mut [], None))?;
    assert_eq!(count, 0, "events, and no room for them");
    Ok(())
}

fn watching(source: &impl AsFd, filter: Filter, flags: Flags) -> Queue {
    let queue = queue();
    apply(&queue, &[of(source, filter, flags)]).unwrap();
    queue
}

fn add_both(queue: &Queue, source: &impl AsFd, flags: Flags) {
    let both = [EVFILT_READ, EVFILT_WRITE];
    apply(queue, &both.map(|filter| of(source, filter, flags))).unwrap();
}

fn answers(queue: &Queue, changes: &[Kevent]) -> Vec<Kevent> {
    take(queue, changes, ROOM, Duration::ZERO)
}

fn take(queue: &Queue, changes: &[Kevent], room: usize, timeout: Duration) -> Vec<Kevent> {
    let mut events = [sys::kevent_of(0, EVFILT_READ, 0, 0); ROOM];
    let events = &mut events[..room];
    let count = retry_on_intr(|| queue.kevent(changes, events, Some(timeout))).unwrap();
    events[..count].to_vec()
}

fn look(queue: &Queue) -> Vec<Kevent> {
    take(queue, &[], ROOM, Duration::ZERO)
}

fn one(queue: &Queue) -> Kevent {
    let events = take(queue, &[], ROOM, LIMIT);
    assert_eq!(events.len(), 1, "events");
    events[0]
}

fn next(queue: &Queue, filter: Filter) -> Kevent {
    let end = Instant::now() + LIMIT;
    while Instant::now() < end {
        let events = take(queue, &[], ROOM, LIMIT);
        if let Some(event) = events.iter().find(|event| event.filter == filter) {
            return *event;
        }
    }
    panic!("no event of filter {filter} after {LIMIT:?}")
}

fn none(queue: &Queue, what: &str) {
    let filters: Vec<_> = look(queue).iter().map(|event| event.filter).collect();
    assert!(filters.is_empty(), "{what}: events of {filters:?}");
}

#[allow(clippy::unnecessary_cast, reason = "its type differs by system")]
fn amount(event: &Kevent) -> i64 {
    event.data as i64
}

fn is_end(event: &Kevent) -> bool {
    event.flags & EV_EOF != 0
}

/// Each end stays open when its peer is dropped.
fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    (ours, theirs)
}

fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

fn read(mut socket: &UnixStream) -> usize {
    socket.read(&mut [0; 64]).unwrap()
}

fn fill(mut socket: &UnixStream) {
    loop {
        match socket.write(&[0; 4096]) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => panic!("{error}"),
        }
    }
}

fn drain(mut socket: &UnixStream) {
    while socket.read(&mut [0; 4096]).is_ok() {}
}

/// `EV_ADD` finds what is there already and data says how much.
#[test]
fn ev_add_finds_present_data_with_count() {
    let (ours, mut theirs) = pair();
    theirs.write_all(b"abc").unwrap();
    let queue = watching(&ours, EVFILT_READ, EV_ADD);
    let event = one(&queue);
    assert_eq!({ event.ident }, ours.as_raw_fd() as usize);
    assert_eq!(event.filter, EVFILT_READ);
    assert_eq!((amount(&event), event.fflags), (3, 0));
    assert_eq!(sys::generation(&event), 7);
    assert!(!is_end(&event));
}

/// An event is returned as long as its condition holds.
#[test]
fn event_returned_while_condition_holds() {
    let (ours, mut theirs) = pair();
    let queue = watching(&ours, EVFILT_READ, EV_ADD);
    none(&queue, "nothing was written");
    theirs.write_all(b"a").unwrap();
    for _ in 0..3 {
        assert_eq!(amount(&one(&queue)), 1);
    }
    // "The filter is also run when the user attempts to retrieve the kevent."
    assert_eq!(read(&ours), 1);
    none(&queue, "all was read");
    theirs.write_all(b"bc").unwrap();
    assert_eq!(amount(&one(&queue)), 2);
}

/// `EV_CLEAR` returns an event once for each arrival.
#[test]
fn ev_clear_returns_once_per_arrival() {
    let (ours, mut theirs) = pair();
    let queue = watching(&ours, EVFILT_READ, EV_ADD | EV_CLEAR);
    for unread in 1..4 {
        theirs.write_all(b"a").unwrap();
        assert_eq!(amount(&one(&queue)), unread);
        none(&queue, "it was returned, and is unread");
    }
    drain(&ours);
    none(&queue, "all was read");
    theirs.write_all(b"a").unwrap();
    theirs.write_all(b"b").unwrap();
    assert_eq!(amount(&one(&queue)), 2);
    none(&queue, "both arrivals were one event");
    theirs.write_all(b"c").unwrap();
    drain(&ours);
    none(&queue, "it was read before");
}

/// `EV_ONESHOT` deletes an event once it was returned.
#[test]
fn ev_oneshot_deletes_after_return() {
    let (ours, mut theirs) = pair();
    let queue = watching(&ours, EVFILT_READ, EV_ADD | EV_ONESHOT);
    none(&queue, "nothing was written");
    theirs.write_all(b"a").unwrap();
    one(&queue);
    theirs.write_all(b"b").unwrap();
    none(&queue, "it was returned");
    let delete = apply(&queue, &[of(&ours, EVFILT_READ, EV_DELETE)]);
    assert_eq!(delete, Err(Errno::NOENT));
    apply(&queue, &[of(&ours, EVFILT_READ, EV_ADD | EV_ONESHOT)]).unwrap();
    assert_eq!(amount(&one(&queue)), 2);
}

/// `EV_DISPATCH` disables an event once it was returned.
#[test]
fn ev_dispatch_disables_after_return() {
    let (ours, mut theirs) = pair();
    let queue = watching(&ours, EVFILT_READ, EV_ADD | EV_DISPATCH);
    for unread in 1..4 {
        theirs.write_all(b"a").unwrap();
        assert_eq!(amount(&one(&queue)), unread);
        none(&queue, "it is disabled");
        apply(&queue, &[of(&ours, EVFILT_READ, EV_ENABLE | EV_DISPATCH)]).unwrap();
        if flavours::here().changes_need_add {
            none(&queue, "the condition is not evaluated");
            continue;
        }
        assert_eq!(amount(&one(&queue)), unread, "enabled again");
        none(&queue, "it is disabled again");
        apply(&queue, &[of(&ours, EVFILT_READ, EV_ENABLE | EV_DISPATCH)]).unwrap();
    }
    apply(&queue, &[of(&ours, EVFILT_READ, EV_DELETE)]).unwrap();
    none(&queue, "it is deleted");
}

#[test]
fn ev_disable_hides_an_event_until_ev_enable() {
    let (ours, mut theirs) = pair();
    let queue = watching(&ours, EVFILT_READ, EV_ADD | EV_DISABLE);
    theirs.write_all(b"a").unwrap();
    none(&queue, "it was added disabled");
    apply(&queue, &[of(&ours, EVFILT_READ, EV_ENABLE)]).unwrap();
    one(&queue);
    apply(&queue, &[of(&ours, EVFILT_READ, EV_DISABLE)]).unwrap();
    none(&queue, "it was disabled");
    theirs.write_all(b"b").unwrap();
    none(&queue, "it is disabled");
    // The systems disagree on whether EV_ADD of a disabled event enables it.
    apply(&queue, &[of(&ours, EVFILT_READ, EV_ENABLE)]).unwrap();
    assert_eq!(amount(&one(&queue)), 2);
}

/// `EV_DELETE` takes an event away that was not returned yet.
#[test]
fn ev_delete_removes_pending_event() {
    let (ours, mut theirs) = pair();
    let queue = queue();
    for flags in [0, EV_CLEAR, EV_ONESHOT, EV_DISPATCH] {
        apply(&queue, &[of(&ours, EVFILT_READ, EV_ADD | flags)]).unwrap();
        theirs.write_all(b"a").unwrap();
        apply(&queue, &[of(&ours, EVFILT_READ, EV_DELETE)]).unwrap();
        none(&queue, "it was deleted");
    }
}

/// An event that was not added can be neither changed nor deleted.
#[test]
fn unknown_event_not_changed_or_deleted() {
    let (ours, _theirs) = pair();
    let queue = queue();
    for flags in [EV_DELETE, EV_ENABLE, EV_DISABLE] {
        for filter in [EVFILT_READ, EVFILT_WRITE] {
            let result = apply(&queue, &[of(&ours, filter, flags)]);
            assert_eq!(result, Err(Errno::NOENT));
        }
    }
    apply(&queue, &[of(&ours, EVFILT_READ, EV_ADD)]).unwrap();
    let other = apply(&queue, &[of(&ours, EVFILT_WRITE, EV_DELETE)]);
    assert_eq!(other, Err(Errno::NOENT), "the other filter");
    apply(&queue, &[of(&ours, EVFILT_READ, EV_DELETE)]).unwrap();
    let timer = sys::kevent_of(SELF_IDENT, EVFILT_TIMER, EV_DELETE, 7);
    assert_eq!(apply(&queue, &[timer]), Err(Errno::NOENT));
}

/// A descriptor that is not open and a filter that is none are refused.
#[test]
fn bad_descriptor_and_bad_filter_refused() {
    let queue = queue();
    let add = sys::kevent_of(1_000_000, EVFILT_READ, EV_ADD, 7);
    assert_eq!(apply(&queue, &[add]), Err(Errno::BADF));
    let (ours, _theirs) = pair();
    assert_eq!(apply(&queue, &[of(&ours, 99, EV_ADD)]), Err(Errno::INVAL));
}

/// `EV_RECEIPT` answers each change in order and leaves the events.
#[test]
fn ev_receipt_answers_each_in_order() {
    let (ours, mut theirs) = pair();
    theirs.write_all(b"a").unwrap();
    let queue = queue();
    let changes = [
        of(&ours, EVFILT_READ, EV_ADD | EV_CLEAR | EV_RECEIPT),
        of(&ours, EVFILT_WRITE, EV_DELETE | EV_RECEIPT),
        of(&ours, EVFILT_WRITE, EV_ADD | EV_CLEAR | EV_RECEIPT),
    ];
    let answers = answers(&queue, &changes);
    let errors: Vec<_> = answers.iter().map(sys::error).collect();
    assert_eq!(errors, [0, libc::ENOENT, 0]);
    for (answer, change) in answers.iter().zip(&changes) {
        assert_ne!(answer.flags & EV_ERROR, 0);
        assert_eq!((answer.ident, answer.filter), (change.ident, change.filter));
    }
    assert_eq!(look(&queue).len(), 2, "both filters");
}

/// An error is an event where there is room and else the calls.
#[test]
fn error_is_event_with_room_else_result() {
    let (ours, mut theirs) = pair();
    let queue = queue();
    let delete = of(&ours, EVFILT_READ, EV_DELETE);
    let answers = answers(&queue, &[delete, of(&ours, EVFILT_READ, EV_ADD)]);
    assert_eq!(answers.len(), 1, "what succeeds is not answered");
    assert_ne!(answers[0].flags & EV_ERROR, 0);
    assert_eq!(sys::error(&answers[0]), libc::ENOENT);
    theirs.write_all(b"a").unwrap();
    one(&queue);
    apply(&queue, &[delete]).unwrap();
    assert_eq!(apply(&queue, &[delete]), Err(Errno::NOENT));
}

#[test]
fn changes_are_applied_before_events_are_returned() {
    let (ours, mut theirs) = pair();
    theirs.write_all(b"a").unwrap();
    let queue = queue();
    let events = take(&queue, &[of(&ours, EVFILT_READ, EV_ADD)], ROOM, LIMIT);
    assert_eq!(events.len(), 1);
    let delete = of(&ours, EVFILT_READ, EV_DELETE);
    assert_eq!(take(&queue, &[delete], ROOM, Duration::ZERO).len(), 0);
}

/// Adding an event again changes it and makes no second one.
#[test]
fn adding_again_changes_event() {
    let (ours, mut theirs) = pair();
    theirs.write_all(b"a").unwrap();
    let queue = watching(&ours, EVFILT_READ, EV_ADD);
    let number = ours.as_raw_fd() as usize;
    let again = sys::kevent_of(number, EVFILT_READ, EV_ADD, 8);
    apply(&queue, &[again]).unwrap();
    assert_eq!(sys::generation(&one(&queue)), 8);
    apply(&queue, &[of(&ours, EVFILT_READ, EV_DELETE)]).unwrap();
    none(&queue, "it was one event");
}

/// `EVFILT_WRITE` returns an event while there is room.
#[test]
fn evfilt_write_returned_with_room() {
    let (ours, theirs) = pair();
    let queue = watching(&ours, EVFILT_WRITE, EV_ADD);
    for _ in 0..2 {
        let event = one(&queue);
        assert!(event.filter == EVFILT_WRITE && amount(&event) > 0 && !is_end(&event));
    }
    fill(&ours);
    none(&queue, "there is no room");
    drain(&theirs);
    one(&queue);
}

/// With `EV_CLEAR` `EVFILT_WRITE` returns an event when there is room again.
#[test]
fn ev_clear_evfilt_write_event_on_room() {
    let (ours, theirs) = pair();
    let queue = watching(&ours, EVFILT_WRITE, EV_ADD | EV_CLEAR);
    one(&queue);
    none(&queue, "it was returned");
    for _ in 0..3 {
        fill(&ours);
        none(&queue, "there is no room");
        drain(&theirs);
        one(&queue);
    }
}

#[test]
fn the_filters_of_a_descriptor_are_independent() {
    let (ours, mut theirs) = pair();
    let queue = queue();
    add_both(&queue, &ours, EV_ADD | EV_CLEAR);
    assert_eq!(one(&queue).filter, EVFILT_WRITE);
    theirs.write_all(b"a").unwrap();
    assert_eq!(one(&queue).filter, EVFILT_READ);
    apply(&queue, &[of(&ours, EVFILT_WRITE, EV_DELETE)]).unwrap();
    theirs.write_all(b"a").unwrap();
    assert_eq!(one(&queue).filter, EVFILT_READ);
    none(&queue, "the other filter is still one of edges");
    apply(&queue, &[of(&ours, EVFILT_WRITE, EV_ADD)]).unwrap();
    apply(&queue, &[of(&ours, EVFILT_READ, EV_DELETE)]).unwrap();
    theirs.write_all(b"a").unwrap();
    assert_eq!(one(&queue).filter, EVFILT_WRITE);
    assert_eq!(one(&queue).filter, EVFILT_WRITE, "of levels");
}

#[test]
fn events_that_find_no_room_stay() {
    let queue = queue();
    let pairs: Vec<_> = (0..3).map(|_| pair()).collect();
    for flags in [EV_CLEAR, EV_ONESHOT, EV_DISPATCH] {
        for (ours, mut theirs) in pairs.iter().map(|(ours, theirs)| (ours, theirs)) {
            theirs.write_all(b"a").unwrap();
            add_both(&queue, ours, EV_ADD | flags);
        }
        let mut seen = Vec::new();
        for _ in 0..6 {
            let events = take(&queue, &[], 1, Duration::ZERO);
            assert_eq!(events.len(), 1, "after {}", seen.len());
            let is_write = events[0].filter == EVFILT_WRITE;
            seen.push((events[0].ident, is_write));
        }
        none(&queue, "each was returned");
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 6, "{seen:?}");
        for (ours, _) in &pairs {
            for filter in [EVFILT_READ, EVFILT_WRITE] {
                let _ = apply(&queue, &[of(ours, filter, EV_DELETE)]);
            }
        }
    }
}

/// `EV_EOF` of the read filter is the peer's end also with data unread.
#[test]
fn ev_eof_read_is_peers_end_even_unread() {
    for is_closed in [false, true] {
        let (mut ours, mut theirs) = pair();
        let queue = watching(&ours, EVFILT_READ, EV_ADD | EV_CLEAR);
        theirs.write_all(b"abc").unwrap();
        assert!(!is_end(&one(&queue)));
        if is_closed {
            drop(theirs);
        } else {
            theirs.shutdown(std::net::Shutdown::Write).unwrap();
        }
        let event = one(&queue);
        assert!(is_end(&event));
        assert_eq!((amount(&event), event.fflags), (3, 0), "{is_closed}");
        none(&queue, "the end was returned");
        assert_eq!(read(&ours), 3);
        assert_eq!(ours.read(&mut [0; 8]).unwrap(), 0);
    }
}

/// `EV_EOF` of the write filter is our own shutdown and no end of reading.
#[test]
fn ev_eof_write_is_own_shutdown() {
    let (ours, theirs) = pair();
    ends_of_shutdown(&ours, &theirs, || {
        ours.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let (ours, theirs) = tcp();
    ends_of_shutdown(&ours, &theirs, || {
        ours.shutdown(std::net::Shutdown::Write).unwrap();
    });
}

fn ends_of_shutdown(ours: &impl AsFd, mut theirs: impl Write, shut_down: impl FnOnce()) {
    let queue = queue();
    add_both(&queue, ours, EV_ADD | EV_CLEAR);
    assert!(!is_end(&one(&queue)));
    shut_down();
    let event = one(&queue);
    assert_eq!(event.filter, EVFILT_WRITE);
    assert!(is_end(&event) && event.fflags == 0);
    theirs.write_all(b"a").unwrap();
    // The write filter may report more: that the end was acknowledged.
    let event = next(&queue, EVFILT_READ);
    assert!(!is_end(&event) && amount(&event) == 1, "the peer goes on");
}

#[test]
fn ev_eof_of_the_write_filter_is_the_peers_close() {
    let (ours, theirs) = pair();
    let queue = watching(&ours, EVFILT_WRITE, EV_ADD | EV_CLEAR);
    assert!(!is_end(&one(&queue)));
    drop(theirs);
    assert!(is_end(&one(&queue)));
}

/// Fflags of an end is the socket's error which stays.
#[test]
fn fflags_of_end_is_socket_error() {
    let (ours, theirs) = tcp();
    let queue = watching(&ours, EVFILT_READ, EV_ADD);
    // With this, its end is a reset.
    socket2::SockRef::from(&theirs)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(theirs);
    for _ in 0..2 {
        let event = one(&queue);
        assert!(is_end(&event));
        assert_eq!(event.fflags as i32, libc::ECONNRESET);
    }
    apply(&queue, &[of(&ours, EVFILT_WRITE, EV_ADD)]).unwrap();
    let event = next(&queue, EVFILT_WRITE);
    assert!(is_end(&event) && event.fflags as i32 == libc::ECONNRESET);
    let error = ours.take_error().unwrap().expect("it is there to be taken");
    assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
}

/// A listener is readable while a connection waits.
#[test]
fn listener_readable_with_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let queue = watching(&listener, EVFILT_READ, EV_ADD);
    none(&queue, "nobody has connected");
    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let event = one(&queue);
    assert!(amount(&event) > 0 && !is_end(&event));
    let _accepted = listener.accept().unwrap();
    none(&queue, "it was accepted");
}

#[test]
fn a_pipes_ends_are_reported_to_each_other() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let queue = watching(&reader, EVFILT_READ, EV_ADD);
    none(&queue, "nothing was written");
    assert_eq!(rustix::io::write(&writer, b"ab"), Ok(2));
    let event = one(&queue);
    assert!(amount(&event) == 2 && !is_end(&event));
    drop(writer);
    assert!(is_end(&one(&queue)));

    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let queue = watching(&writer, EVFILT_WRITE, EV_ADD | EV_CLEAR);
    assert!(!is_end(&one(&queue)));
    drop(reader);
    assert!(is_end(&one(&queue)));
    let queue = self::queue();
    let added = apply(&queue, &[of(&writer, EVFILT_WRITE, EV_ADD)]);
    match flavours::here().other_end_gone {
        Some(error) => assert_eq!(added, Err(error)),
        None => assert!(added.is_ok() && is_end(&one(&queue))),
    }
}

/// Returns `None` if the system has no such filter.
fn user(queue: &Queue, flags: Flags) -> Option<Kevent> {
    let (filter, trigger) = sys::USER?;
    let add = sys::kevent_of(3, filter, EV_ADD | flags, 7);
    match apply(queue, &[add]) {
        Ok(()) => {
            let mut change = sys::kevent_of(3, filter, 0, 7);
            change.fflags = trigger;
            Some(change)
        }
        // NetBSD before 10.
        Err(error) => {
            assert_eq!(error, Errno::INVAL);
            None
        }
    }
}

/// `NOTE_TRIGGER` triggers a user event once with `EV_CLEAR`.
#[test]
fn note_trigger_once_with_ev_clear() {
    let queue = queue();
    let Some(trigger) = user(&queue, EV_CLEAR) else {
        return;
    };
    none(&queue, "it was not triggered");
    for _ in 0..3 {
        apply(&queue, &[trigger]).unwrap();
        apply(&queue, &[trigger]).unwrap();
        let event = one(&queue);
        assert_eq!((event.ident, event.filter), (3, trigger.filter));
        none(&queue, "both triggers are one event");
    }
    apply(&queue, &[sys::kevent_of(3, trigger.filter, EV_DELETE, 7)]).unwrap();
    assert_eq!(apply(&queue, &[trigger]), Err(Errno::NOENT));
}

/// A user event without `EV_CLEAR` stays triggered and with `EV_ONESHOT` goes.
#[test]
fn user_event_without_ev_clear_and_oneshot() {
    let queue = queue();
    let Some(trigger) = user(&queue, 0) else {
        return;
    };
    apply(&queue, &[trigger]).unwrap();
    one(&queue);
    one(&queue);
    apply(&queue, &[sys::kevent_of(3, trigger.filter, EV_DELETE, 7)]).unwrap();
    user(&queue, EV_ONESHOT).unwrap();
    apply(&queue, &[trigger]).unwrap();
    one(&queue);
    assert_eq!(apply(&queue, &[trigger]), Err(Errno::NOENT));
}

#[test]
fn note_trigger_from_another_thread_ends_a_wait() {
    let queue = queue();
    let Some(trigger) = user(&queue, EV_CLEAR) else {
        return;
    };
    // The trigger contains a pointer and cannot be sent to another thread; its integers can.
    let (filter, fflags) = (trigger.filter, trigger.fflags);
    for _ in 0..200 {
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut change = sys::kevent_of(3, filter, 0, 7);
                change.fflags = fflags;
                apply(&queue, &[change]).unwrap();
            });
            one(&queue);
        });
        none(&queue, "one trigger ended one wait");
    }
}

/// A change from another thread applies to the wait under way.
#[test]
fn change_by_thread_applies_to_current_wait() {
    let queue = queue();
    for _ in 0..50 {
        let (ours, mut theirs) = pair();
        theirs.write_all(b"a").unwrap();
        thread::scope(|scope| {
            scope.spawn(|| apply(&queue, &[of(&ours, EVFILT_READ, EV_ADD)]).unwrap());
            one(&queue);
        });
    }
}

fn timer(flags: Flags, left: Duration) -> Kevent {
    let mut timer = sys::kevent_of(SELF_IDENT, EVFILT_TIMER, flags, 7);
    sys::set_timer(&mut timer, left);
    timer
}

/// `EVFILT_TIMER` with `EV_ONESHOT` fires once and not early.
#[test]
fn evfilt_timer_oneshot_fires_once() {
    let queue = queue();
    let time = Duration::from_millis(5);
    let start = Instant::now();
    apply(&queue, &[timer(EV_ADD | EV_ONESHOT, time)]).unwrap();
    let event = one(&queue);
    assert!(start.elapsed() >= time, "{:?}", start.elapsed());
    assert_eq!((event.ident, event.filter), (SELF_IDENT, EVFILT_TIMER));
    assert_eq!(amount(&event), 1);
    assert_eq!(take(&queue, &[], ROOM, time * 3).len(), 0, "one-shot");
    let delete = sys::kevent_of(SELF_IDENT, EVFILT_TIMER, EV_DELETE, 7);
    assert_eq!(apply(&queue, &[delete]), Err(Errno::NOENT));
}

/// `EVFILT_TIMER` fires again and again and data counts.
#[test]
fn evfilt_timer_repeats_with_count() {
    let queue = queue();
    let start = Instant::now();
    apply(&queue, &[timer(EV_ADD, Duration::from_millis(2))]).unwrap();
    let mut count = 0;
    while count < 5 {
        count += amount(&one(&queue));
    }
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_millis(8), "{count}: {elapsed:?}");
    apply(
        &queue,
        &[sys::kevent_of(SELF_IDENT, EVFILT_TIMER, EV_DELETE, 7)],
    )
    .unwrap();
    none(&queue, "it was deleted");
}

/// A timer that is deleted and added in one call starts again.
///
/// FreeBSD restarts a timer that is only added again, DragonFly does not.
#[test]
fn timer_deleted_and_added_restarts() {
    let queue = queue();
    apply(&queue, &[timer(EV_ADD | EV_ONESHOT, LIMIT * 60)]).unwrap();
    none(&queue, "it is not over");
    let delete = sys::kevent_of(SELF_IDENT, EVFILT_TIMER, EV_DELETE, 7);
    let add = timer(EV_ADD | EV_ONESHOT, Duration::from_millis(1));
    apply(&queue, &[delete, add]).unwrap();
    one(&queue);
}

/// A timeout is no shorter than it says and without room there is none.
#[test]
fn timeout_not_short_no_room_no_timeout() {
    let queue = queue();
    for timeout in [0, 1, 300, 2_500, 12_000].map(Duration::from_micros) {
        let start = Instant::now();
        assert_eq!(take(&queue, &[], ROOM, timeout).len(), 0);
        assert!(start.elapsed() >= timeout, "{timeout:?}");
    }
    // "If nevents is zero, kevent() will return immediately even if there is a timeout specified."
    assert_eq!(queue.kevent(&[], &mut [], None), Ok(0));
    assert_eq!(queue.kevent(&[], &mut [], Some(LIMIT * 60)), Ok(0));
}

fn is_readable(queue: &Queue) -> bool {
    let mut set = [rustix::event::PollFd::from_borrowed_fd(
        queue.descriptor(),
        rustix::event::PollFlags::IN,
    )];
    retry_on_intr(|| rustix::event::poll(&mut set, Some(&Default::default()))).unwrap() == 1
}

/// A kqueue can be polled and is readable while it has events.
#[test]
fn kqueue_pollable_and_readable_with_events() {
    let (ours, mut theirs) = pair();
    let queue = queue();
    assert!(!is_readable(&queue), "it is empty");
    apply(&queue, &[of(&ours, EVFILT_READ, EV_ADD | EV_CLEAR)]).unwrap();
    assert!(!is_readable(&queue), "nothing was written");
    theirs.write_all(b"a").unwrap();
    assert!(is_readable(&queue), "an event");
    one(&queue);
    assert!(!is_readable(&queue), "it was returned");
    let (other, mut others) = pair();
    apply(&queue, &[of(&other, EVFILT_READ, EV_ADD | EV_CLEAR)]).unwrap();
    theirs.write_all(b"a").unwrap();
    others.write_all(b"a").unwrap();
    assert_eq!(take(&queue, &[], 1, LIMIT).len(), 1);
    assert!(is_readable(&queue), "the other one");
    one(&queue);
    assert!(!is_readable(&queue), "both were returned");
    apply(&queue, &[of(&ours, EVFILT_READ, EV_DELETE)]).unwrap();
    apply(&queue, &[of(&ours, EVFILT_READ, EV_ADD)]).unwrap();
    one(&queue);
    assert!(is_readable(&queue), "a level");
}

#[test]
fn a_kqueue_can_be_watched_by_another() {
    let (ours, mut theirs) = pair();
    let (inner, outer) = (queue(), queue());
    let watch = of(&inner.descriptor(), EVFILT_READ, EV_ADD | EV_CLEAR);
    apply(&outer, &[watch]).unwrap();
    apply(&inner, &[of(&ours, EVFILT_READ, EV_ADD | EV_CLEAR)]).unwrap();
    none(&outer, "nothing was written");
    theirs.write_all(b"a").unwrap();
    assert_eq!(
        { one(&outer).ident },
        inner.descriptor().as_raw_fd() as usize
    );
    one(&inner);
    if let Some(trigger) = user(&inner, EV_CLEAR) {
        apply(&inner, &[trigger]).unwrap();
        one(&outer);
    }
}

/// Closing a descriptor removes its events also where a duplicate stays.
#[test]
fn close_removes_events_despite_duplicate() {
    let (ours, mut theirs) = pair();
    let queue = queue();
    let number = ours.as_raw_fd() as usize;
    apply(&queue, &[of(&ours, EVFILT_READ, EV_ADD)]).unwrap();
    apply(&queue, &[of(&ours, EVFILT_WRITE, EV_ADD | EV_CLEAR)]).unwrap();
    theirs.write_all(b"a").unwrap();
    let duplicate = ours.try_clone().unwrap();
    drop(ours);
    // Another test's descriptor may have the number by now, so `EBADF` is not certain.
    let delete = sys::kevent_of(number, EVFILT_READ, EV_DELETE, 7);
    let error = apply(&queue, &[delete]).expect_err("it went with the descriptor");
    assert!(matches!(error, Errno::BADF | Errno::NOENT), "{error}");
    none(&queue, "its descriptor was closed");
    apply(&queue, &[of(&duplicate, EVFILT_READ, EV_ADD)]).unwrap();
    assert_eq!({ one(&queue).ident }, duplicate.as_raw_fd() as usize);
}

/// "The queue is not inherited by a child created with fork(2)."
#[test]
fn a_child_that_is_forked_has_no_kqueue() {
    let queue = queue();
    crate::sys::in_child(|| {
        let mut room = [sys::kevent_of(0, EVFILT_READ, 0, 0)];
        let result = queue.kevent(&[], &mut room, Some(Duration::ZERO));
        result == Err(Errno::BADF)
    });
    none(&queue, "the parent's is as it was");
}

fn known() -> Option<&'static flavours::Flavour> {
    let flavour = flavours::here();
    ["freebsd", "netbsd"]
        .contains(&flavour.name)
        .then_some(flavour)
}

/// A one shot event may be returned although its condition is gone.
#[test]
fn one_shot_may_outlive_its_condition() {
    let (ours, mut theirs) = pair();
    theirs.write_all(b"a").unwrap();
    let queue = watching(&ours, EVFILT_READ, EV_ADD | EV_ONESHOT);
    assert_eq!(read(&ours), 1);
    if flavours::here().evaluates_one_shots {
        none(&queue, "it was read before");
    } else {
        assert_eq!(amount(&one(&queue)), 1, "the old data");
    }
}

#[test]
fn a_change_without_ev_add_may_change_nothing() {
    let need_add = flavours::here().changes_need_add;
    let (ours, mut theirs) = pair();
    theirs.write_all(b"a").unwrap();
    let queue = watching(&ours, EVFILT_READ, EV_ADD | EV_CLEAR);
    one(&queue);
    let number = ours.as_raw_fd() as usize;
    apply(&queue, &[sys::kevent_of(number, EVFILT_READ, 0, 8)]).unwrap();
    if need_add {
        none(&queue, "the condition is not evaluated");
        theirs.write_all(b"b").unwrap();
    }
    assert_eq!(sys::generation(&one(&queue)), if need_add { 7 } else { 8 });
    let Some(flavour) = known() else {
        return;
    };
    let both = of(&ours, EVFILT_READ, EV_ADD | EV_DELETE);
    apply(&queue, &[both]).unwrap();
    let is_there = apply(&queue, &[of(&ours, EVFILT_READ, EV_DELETE)]).is_ok();
    assert_eq!(is_there, flavour.changes_need_add);
    let added = apply(&queue, &[both]);
    let error = (!flavour.changes_need_add).then_some(Errno::NOENT);
    assert_eq!(added.err(), error);
}

/// `EV_CLEAR` with `EV_DISPATCH` disables on some systems.
#[test]
fn ev_clear_with_dispatch_disables_on_some() {
    let Some(flavour) = known() else {
        return;
    };
    let (ours, mut theirs) = pair();
    let queue = watching(&ours, EVFILT_READ, EV_ADD | EV_CLEAR | EV_DISPATCH);
    theirs.write_all(b"a").unwrap();
    one(&queue);
    theirs.write_all(b"b").unwrap();
    if flavour.clear_prevails {
        one(&queue);
    } else {
        none(&queue, "it is disabled");
    }
}

/// The flags of receipts and events differ by system.
#[test]
fn flags_of_receipts_differ_by_system() {
    let flavour = flavours::here();
    let (ours, _theirs) = pair();
    let queue = queue();
    let receipts = answers(&queue, &[of(&ours, EVFILT_WRITE, EV_ADD | EV_RECEIPT)]);
    assert_eq!(
        receipts[0].flags & EV_RECEIPT != 0,
        flavour.receipts_have_flags
    );
    if let Some(flavour) = known() {
        let event = one(&queue);
        assert_eq!(event.flags & EV_ADD != 0, flavour.returns_all_flags);
    }
}

/// With `EV_CLEAR` each acknowledgement is an event of `EVFILT_WRITE`.
#[test]
fn ev_clear_evfilt_write_event_per_ack() {
    let (mut ours, mut theirs) = tcp();
    let queue = watching(&ours, EVFILT_WRITE, EV_ADD | EV_CLEAR);
    one(&queue);
    for _ in 0..5 {
        ours.write_all(b"message").unwrap();
        theirs.read_exact(&mut [0; 7]).unwrap();
        one(&queue);
        none(&queue, "it was returned");
    }
}

/// A shutdown is an event of the own write filter and of the peer's read filter.
#[test]
fn shutdown_events_on_both_sides() {
    fn check(ours: &(impl AsFd + Read), theirs: &impl AsFd, shut_down: impl FnOnce()) {
        let (near, far) = (queue(), queue());
        add_both(&near, ours, EV_ADD | EV_CLEAR);
        add_both(&far, theirs, EV_ADD | EV_CLEAR);
        for queue in [&near, &far] {
            let filters: Vec<_> = look(queue).iter().map(|event| event.filter).collect();
            assert!(filters.contains(&EVFILT_WRITE), "{filters:?}");
        }
        shut_down();
        let event = one(&near);
        assert!(event.filter == EVFILT_WRITE && is_end(&event));
        let event = next(&far, EVFILT_READ);
        assert!(is_end(&event));
        let filters: Vec<_> = look(&near).iter().map(|event| event.filter).collect();
        assert!(!filters.contains(&EVFILT_READ), "{filters:?}");
        let filters: Vec<_> = look(&far).iter().map(|event| event.filter).collect();
        assert!(filters.is_empty(), "{filters:?}");
    }
    // With bytes unread, which would be reported again.
    let (ours, mut theirs) = pair();
    theirs.write_all(b"unread").unwrap();
    check(&ours, &theirs, || {
        ours.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let (ours, theirs) = tcp();
    check(&ours, &theirs, || {
        ours.shutdown(std::net::Shutdown::Write).unwrap();
    });
}

/// The write filter of a full pipe tells no end on some systems and a read filter does.
#[test]
fn full_pipe_end_by_write_filter_differs() {
    let flavour = flavours::here();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while rustix::io::write(&writer, &[0; 512]).is_ok() {}
    let [write, read] =
        [EVFILT_WRITE, EVFILT_READ].map(|filter| watching(&writer, filter, EV_ADD | EV_CLEAR));
    none(&write, "it is full");
    none(&read, "it is a write end");
    drop(reader);
    for (queue, tells) in [
        (&write, flavour.full_pipe_tells_end),
        (&read, flavour.write_end_tells_end),
    ] {
        if tells {
            assert!(is_end(&one(queue)));
        } else {
            none(queue, "it does not tell");
        }
    }
    assert!(flavour.full_pipe_tells_end || flavour.write_end_tells_end);
}

/// With `EV_CLEAR` reading a part of a pipe is an event on some systems.
#[test]
fn ev_clear_partial_pipe_read_event_on_some() {
    let Some(flavour) = known() else {
        return;
    };
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let queue = watching(&reader, EVFILT_READ, EV_ADD | EV_CLEAR);
    assert_eq!(rustix::io::write(&writer, b"ab"), Ok(2));
    one(&queue);
    assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(1));
    if flavour.own_reads_are_events {
        assert_eq!(amount(&one(&queue)), 1);
    } else {
        none(&queue, "nothing was written");
    }
}

/// A second shutdown of writing ends reading or is refused.
#[test]
fn second_write_shutdown_ends_read_or_fails() {
    let (mut ours, mut theirs) = tcp();
    ours.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(theirs.read(&mut [0; 8]).unwrap(), 0);
    let again = ours.shutdown(std::net::Shutdown::Write);
    match flavours::here().second_shutdown {
        flavours::SecondShutdown::EndsReading => again.unwrap(),
        flavours::SecondShutdown::NotConnected => {
            assert_eq!(again.unwrap_err().kind(), io::ErrorKind::NotConnected);
        }
    }
    let _ = theirs.write_all(b"answer");
    let is_lost = flavours::here().second_shutdown == flavours::SecondShutdown::EndsReading;
    let read = ours.read(&mut [0; 8]);
    assert!(matches!(read, Ok(6)) != is_lost, "{read:?}");
}
