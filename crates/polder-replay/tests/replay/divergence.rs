//! Differences from the tape are told; calls that cannot be recorded are refused, or told.

use std::io;
use std::time::Duration;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::sleep;
use polder_replay::{Replaying, record, replay};

use crate::support::Tape;

/// Sends `text` through a connection, and reads it.
async fn sends(text: &'static [u8]) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let writer = polder::spawn_local(async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text).await
    });
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut bytes = Vec::new();
    // It fails where the replay has stopped.
    let _ = stream.read_to_end(&mut bytes).await;
    let _ = writer.await;
    bytes
}

fn error_of<T>(result: io::Result<T>) -> String {
    result.err().expect("the replay diverges").to_string()
}

/// The message has both calls, the entry, the time, the task and its site.
#[test]
fn other_bytes_are_a_divergence_in_words() {
    let tape = Tape::new();
    assert_eq!(record(&tape.path, sends(b"ping")).unwrap(), b"ping");
    let error = error_of(replay(&tape.path, sends(b"pong")));
    for words in [
        "the replay diverges from the tape",
        "the program: write on ",
        "the tape:    write on ",
        "at entry ",
        "after the start, in task 2, spawned at ",
        "divergence.rs:",
        "usual causes: a thread",
        "`polder_replay::answer_for_libc!()`",
    ] {
        assert!(error.contains(words), "no {words:?} in {error}");
    }
}

#[test]
fn other_call_is_a_divergence() {
    let tape = Tape::new();
    record(&tape.path, sends(b"ping")).unwrap();
    let error = error_of(replay(&tape.path, async {
        TcpListener::bind("127.0.0.1:1").await.unwrap();
    }));
    assert!(
        error.contains("bind (TcpListener 127.0.0.1:1)")
            && error.contains("bind (TcpListener 127.0.0.1:0)"),
        "{error}"
    );
}

/// A program that ends early, and one that goes on.
#[test]
fn other_length_is_a_divergence() {
    let tape = Tape::new();
    record(&tape.path, sleep(Duration::from_millis(1))).unwrap();
    let error = error_of(replay(&tape.path, async {}));
    assert!(
        error.contains("the program: the future returned"),
        "{error}"
    );
    let error = error_of(replay(&tape.path, async {
        sleep(Duration::from_millis(1)).await;
        sleep(Duration::from_secs(1)).await;
    }));
    assert!(
        error.contains("the tape ends here: ") && error.contains("the future returned"),
        "{error}"
    );
}

/// Another task runs than the one that did.
#[test]
fn other_order_of_tasks_is_a_divergence() {
    let tape = Tape::new();
    let spawn = |first: u64, second: u64| async move {
        let wait = |number| async move {
            let _ = polder::time::now();
            number
        };
        let tasks = [
            polder::spawn_local(wait(first)),
            polder::spawn_local(wait(second)),
        ];
        let [a, b] = tasks;
        // The order in which they are made ready again.
        if first < second {
            a.await + b.await
        } else {
            drop(a);
            b.await
        }
    };
    record(&tape.path, spawn(1, 2)).unwrap();
    let error = error_of(replay(&tape.path, spawn(2, 1)));
    assert!(
        error.contains("task 2 runs") && error.contains("task 3 runs"),
        "{error}"
    );
}

#[test]
fn until_stops_before_the_entry() {
    let tape = Tape::new();
    record(&tape.path, sends(b"ping")).unwrap();
    let error = error_of(Replaying::new(&tape.path).until(9).run(sends(b"ping")));
    assert!(
        error.contains("the replay was to stop here") && error.contains("at entry 9,"),
        "{error}"
    );
}

/// A torn tape is a shorter one, wherever it is torn.
#[test]
fn torn_tape_is_a_shorter_tape() {
    let tape = Tape::new();
    record(&tape.path, sends(b"ping")).unwrap();
    let whole = tape.bytes();
    for length in (0..whole.len()).rev().step_by(7) {
        std::fs::write(&tape.path, &whole[..length]).unwrap();
        let error = error_of(replay(&tape.path, sends(b"ping")));
        let is_known = ["it is no tape", "the tape ends here", "it has no header"];
        assert!(
            is_known.iter().any(|words| error.contains(words)),
            "{length}: {error}"
        );
    }
}

#[test]
fn other_files_are_no_tapes() {
    let tape = Tape::new();
    let error = error_of(replay(&tape.path, async {}));
    assert!(
        error.contains(&*tape.path.to_string_lossy()) && error.contains("No such file"),
        "{error}"
    );
    std::fs::write(&tape.path, "a text that is not a tape").unwrap();
    assert!(error_of(replay(&tape.path, async {})).contains("it is no tape"));
    record(&tape.path, async {}).unwrap();
    let mut bytes = tape.bytes();
    bytes[8] = 99;
    std::fs::write(&tape.path, bytes).unwrap();
    let error = error_of(replay(&tape.path, async {}));
    assert!(
        error.contains("version 99, and this reads version 3"),
        "{error}"
    );
}

/// A second worker, another runtime, a child and a foreign descriptor are errors, in a replay too.
#[test]
fn what_cannot_be_recorded_is_refused() {
    let program = || async {
        let refused = |what: &str, error: io::Error| {
            assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{what}: {error}");
            assert!(
                error.to_string().contains("polder-replay"),
                "{what}: {error}"
            );
        };
        refused(
            "workers",
            polder::Runtime::builder().workers(2).build().err().unwrap(),
        );
        refused("runtime", polder::Runtime::new().err().unwrap());
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        match polder::Async::new(near) {
            Err(error) => refused("descriptor", error),
            Ok(near) => refused("descriptor", near.readable().await.unwrap_err()),
        }
        refused("link", polder::fs::read_link("/nowhere").await.unwrap_err());
    };
    let tape = Tape::new();
    record(&tape.path, program()).unwrap();
    replay(&tape.path, program()).unwrap();
}

/// A thread that wakes a task, a descriptor that is lent, and `unblock` are told, on the tape too.
#[test]
fn what_is_not_on_the_tape_is_told() {
    let tape = Tape::new();
    let program = async {
        use std::os::fd::AsFd;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        assert!(listener.as_fd().try_clone_to_owned().is_ok());
        polder::unblock(|| ()).await;
        let (sender, receiver) = async_channel::bounded(1);
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            sender.send_blocking(())
        });
        receiver.recv().await.unwrap();
    };
    record(&tape.path, program).unwrap();
    let listed = tape.listed();
    for words in [
        "the descriptor of a socket",
        "the results of `unblock`",
        "a thread has woken a task",
    ] {
        assert!(listed.contains(words), "no {words:?} in {listed}");
    }
}

/// A name from elsewhere gives a terminal no commands, and a browser no markup.
#[test]
fn listing_has_no_control_characters() {
    let tape = Tape::new();
    record(&tape.path, async {
        let path = "/nowhere/<b>\u{1b}[2J\u{202e}";
        polder::net::unix::UnixStream::connect(path)
            .await
            .unwrap_err();
    })
    .unwrap();
    let listed = tape.listed();
    assert!(
        listed.contains("/nowhere/<b>\\u{1b}[2J\\u{202e}"),
        "{listed}"
    );
    assert!(!listed.contains(['\u{1b}', '\u{202e}']), "{listed}");
    let page = tape.page();
    assert!(page.contains("/nowhere/&lt;b>\\u{1b}"), "{page}");
    assert!(!page.contains("<b>") && !page.contains('\u{1b}'), "{page}");
}

/// An older tape is kept; what is no regular file is left alone.
#[test]
fn older_tape_is_kept() {
    let tape = Tape::new();
    record(&tape.path, async {}).unwrap();
    let older = tape.bytes();
    record(&tape.path, sleep(Duration::from_millis(1))).unwrap();
    let old = tape.path.with_extension("old");
    assert_eq!(std::fs::read(old).unwrap(), older);
    assert_ne!(tape.bytes(), older);

    let (link, socket) = (
        tape.path.with_extension("link"),
        tape.path.with_extension("socket"),
    );
    std::os::unix::fs::symlink(&tape.path, &link).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let before = tape.bytes();
    for path in [&link, &socket] {
        let error = record(path, async {}).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        let words = error.to_string();
        assert!(words.contains(&*path.to_string_lossy()), "{words}");
    }
    assert_eq!(tape.bytes(), before);
}

/// A recording within a recording is an error.
#[test]
fn recordings_do_not_nest() {
    let (tape, inner) = (Tape::new(), Tape::new());
    let path = inner.path.clone();
    record(&tape.path, async move {
        assert_eq!(
            record(path, async {}).unwrap_err().kind(),
            io::ErrorKind::Unsupported
        );
    })
    .unwrap();
}
