//! polder-top on a terminal: however it ends, it leaves the terminal as it was.
#![cfg(any(target_os = "linux", target_os = "macos"))]

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

const LIMIT: Duration = Duration::from_secs(60);

/// How long polder-top waits for a terminal that it restores on the second request.
const PATIENCE: Duration = Duration::from_millis(500);

/// How a user ends a program.
#[derive(Clone, Copy, Debug)]
enum End {
    Key(u8),
    Signal(Signal),
}

use End::{Key, Signal as By};

const CONTROL_C: u8 = 3;
const ENTER_SCREEN: &str = "\x1b[?1049h";
const LEAVE_SCREEN: &str = "\x1b[?1049l";
const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";

/// polder-top on a separate terminal, and the program that it looks at: a thread of the test.
struct Shown {
    child: Child,
    /// The terminal's side of the connection: writes to it are keys, and reads from it are the
    /// screen's output.
    screen: File,
    output: Vec<u8>,
    /// The program's side. It is kept so that its modes can be checked.
    tty: OwnedFd,
    before: Termios,
    socket: PathBuf,
    /// Reports each time that polder-top has read nothing for a while.
    is_full: Receiver<()>,
}

impl Shown {
    fn new() -> Shown {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("polder-top-terminal-{}-{number}", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let is_full = serve(UnixListener::bind(&socket).unwrap());

        let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&screen).unwrap();
        unlockpt(&screen).unwrap();
        let path = ptsname(&screen, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let tty = rustix::fs::open(path, flags, Mode::empty()).unwrap();
        let size = Winsize {
            ws_row: 60,
            ws_col: 150,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&tty, size).unwrap();
        fcntl_setfl(&screen, OFlags::NONBLOCK).unwrap();
        let before = tcgetattr(&tty).unwrap();
        let stdio = || Stdio::from(tty.try_clone().unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_polder-top"))
            .arg(&socket)
            .stdin(stdio())
            .stdout(stdio())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Shown {
            child,
            screen: screen.into(),
            output: Vec::new(),
            tty,
            before,
            socket,
            is_full,
        }
    }

    fn end(&mut self, end: End) {
        match end {
            Key(byte) => self.screen.write_all(&[byte]).unwrap(),
            By(signal) => {
                // It only fails if the process has ended.
                let _ = kill_process(Pid::from_child(&self.child), signal);
            }
        }
    }

    /// Reads the output so far. Returns all of it.
    fn drawn(&mut self) -> String {
        let mut bytes = [0; 4096];
        loop {
            match self.screen.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => self.output.extend(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        String::from_utf8_lossy(&self.output).into_owned()
    }

    fn draw_until(&mut self, what: &str, is_so: impl Fn(&str) -> bool) {
        let start = Instant::now();
        while !is_so(&self.drawn()) {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?} before {what}: {}", self.drawn());
            assert!(start.elapsed() < LIMIT, "not {what}: {}", self.drawn());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end. Signals are sent repeatedly: one that is pending is not sent twice. (A
    /// key is sent once, since each counts. If the modes are restored already, Ctrl-C would discard
    /// the unread output.)
    fn status(&mut self, end: End, reads: bool) -> ExitStatus {
        let start = Instant::now();
        loop {
            if reads {
                self.drawn();
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < LIMIT, "it does not end");
            if matches!(end, By(_)) {
                self.end(end);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn assert_restored(&mut self, what: &str) {
        let now = tcgetattr(&self.tty).unwrap();
        let modes = |termios: &Termios| {
            let Termios {
                input_modes,
                output_modes,
                local_modes,
                ..
            } = termios;
            (*input_modes, *output_modes, *local_modes)
        };
        assert!(self.before.local_modes.contains(LocalModes::ICANON));
        assert_eq!(modes(&now), modes(&self.before), "{what}");
        let drawn = self.drawn();
        let last = |sequence| drawn.rfind(sequence);
        let tail = &drawn[drawn.len().saturating_sub(200)..];
        assert!(last(ENTER_SCREEN).is_some(), "{what}: {drawn:?}");
        assert!(last(LEAVE_SCREEN) > last(ENTER_SCREEN), "{what}: {tail:?}");
        assert!(last(SHOW_CURSOR) > last(HIDE_CURSOR), "{what}: {tail:?}");
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Sends lines to each client, as quickly as they are read. No two look alike, so that each is
/// drawn.
fn serve(listener: UnixListener) -> Receiver<()> {
    let (full, is_full) = channel();
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let full = full.clone();
            stream
                .set_write_timeout(Some(Duration::from_millis(300)))
                .unwrap();
            thread::spawn(move || {
                for uptime in 1.. {
                    let character = char::from(b'a' + (uptime % 26) as u8);
                    let text = character.to_string().repeat(400);
                    let group = format!(r#"{{"spawned_at":"{text}","waits_for":"{text}"}}"#);
                    let groups = vec![group; 50].join(",");
                    let line = format!(
                        "{{\"polder_top\":1,\"uptime\":{uptime},\"runtimes\":[{{\"groups\":[{groups}]}}]}}\n"
                    );
                    let mut rest = line.as_bytes();
                    while !rest.is_empty() {
                        match stream.write(rest) {
                            Ok(count) => rest = &rest[count..],
                            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                                // The test may have stopped listening.
                                let _ = full.send(());
                            }
                            Err(_) => return,
                        }
                    }
                }
            });
        }
    });
    is_full
}

#[test]
fn however_it_is_ended_the_terminal_is_as_it_was() {
    for (end, code, signal) in [
        (Key(b'q'), Some(0), None),
        (Key(0x1b), Some(0), None),
        (Key(CONTROL_C), Some(0), None),
        (By(Signal::TERM), None, Some(Signal::TERM)),
        (By(Signal::INT), None, Some(Signal::INT)),
        (By(Signal::HUP), None, Some(Signal::HUP)),
    ] {
        let mut shown = Shown::new();
        shown.draw_until("drawn", |drawn| drawn.contains("q ends"));
        shown.end(end);
        let status = shown.status(end, true);
        assert_eq!(status.code(), code, "{end:?}");
        assert_eq!(status.signal(), signal.map(Signal::as_raw), "{end:?}");
        shown.assert_restored(&format!("{end:?}"));
    }
}

/// The second request ends it while its loop is stuck and restores the terminal.
///
/// The loop waits for a terminal that takes nothing: it is in a system call, and reads neither keys
/// nor flags.
#[test]
fn second_request_ends_stuck_loop() {
    for (first, second) in [
        (By(Signal::TERM), By(Signal::TERM)),
        (By(Signal::INT), By(Signal::TERM)),
        (Key(CONTROL_C), Key(CONTROL_C)),
        (Key(b'q'), Key(b'q')),
        (Key(b'q'), By(Signal::TERM)),
    ] {
        let what = format!("{first:?}, {second:?}");
        // On a busy machine it may have given up on the terminal: then the attempt says nothing.
        let is_in_time = (0..5).any(|_| {
            let mut shown = Shown::new();
            shown.draw_until("drawn", |drawn| drawn.contains("q ends"));
            // From here on nothing is read. Since polder-top does not get to drawing, it takes no
            // lines.
            while shown.is_full.try_recv().is_ok() {}
            shown.is_full.recv_timeout(LIMIT).unwrap();
            shown.end(first);
            let start = Instant::now();
            shown.end(second);
            shown.status(second, false);
            let is_in_time = start.elapsed() < PATIENCE;
            if is_in_time {
                shown.assert_restored(&what);
            }
            is_in_time
        });
        assert!(is_in_time, "{what}: each time it took {PATIENCE:?}");
    }
}
