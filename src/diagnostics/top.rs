//! The server of `POLDER_TOP=/path`: a Unix socket on which a program reports the state of its
//! runtimes once a second, as a line of JSON (`line`) to each client, such as `polder-top`.
//!
//! **A dedicated thread** serves it with `poll(2)`, independently of the runtimes. Without clients
//! it sleeps, and takes no dumps. Descriptors are non-blocking, so a client that does not read
//! delays no other. The unsent rest of a line is kept until the client takes it or is disconnected.
//!
//! **The socket** is accessible only for this user from the start (`sys::local::listen_privately`).
//! It replaces only a socket of this user without a listener, left by a killed process. The folder
//! is locked for this check, so that of several new processes none replaces the socket of another.
//! At the end of the process the file is removed, if it is still the same one.
//!
//! **A child of `fork`** without `exec` has no such thread: it neither serves its parent's socket
//! nor removes it. Its first runtime makes its own socket, so the path should contain the process
//! ID. While the child outlives a killed parent, the parent's socket still has a listener: the
//! inherited descriptor.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::FlockOperation;

use super::line::Lines;
use crate::sys::{self, PerProcess, local, start_thread};

/// A pace that people can follow. A client that does not read for five lines is disconnected.
const PACE: Pace = Pace {
    interval: Duration::from_secs(1),
    patience: Duration::from_secs(5),
};

/// Lines take at most a tenth of the time: a dump takes 100 ms if a worker does not answer.
const SHARE: u32 = 10;

/// The limit of clients, which are people. Each costs a descriptor and at most one line.
const MAX_CLIENTS: usize = 8;

const TOO_MANY: &str = "{\"error\":\"as many look already as may\"}\n";

/// The pause in accepting after descriptors or memory had run out.
const REST: Duration = Duration::from_millis(100);

/// The time to wait for other processes that start at the same path.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

pub(super) fn start(path: PathBuf) -> io::Result<()> {
    let listener = listen(&path)?;
    Place::note(path)?;
    let run = move || serve(&listener, PACE, &mut Lines::new());
    let started = start_thread("polder-top", Box::new(run));
    if started.is_err() {
        Place::remove();
    }
    started.map(drop)
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let _alone = path.parent().and_then(lock);
    match local::listen_privately(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let there = fs::symlink_metadata(path)?;
            if !there.file_type().is_socket() || there.uid() != sys::user() {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "there is something that is not of this program's making, and it is left alone",
                ));
            }
            if local::is_listened_to(path)? {
                let what = "there is a socket on which somebody listens (%p in the path is the \
                            number of the process)";
                return Err(io::Error::new(error.kind(), what));
            }
            fs::remove_file(path)?;
            local::listen_privately(path)
        }
        result => result,
    }
}

fn lock(folder: &Path) -> Option<File> {
    let folder = File::open(folder).ok()?;
    // Solaris has no such locks.
    #[cfg(not(target_os = "solaris"))]
    {
        let start = Instant::now();
        while let Err(error) = rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive)
        {
            if error != rustix::io::Errno::WOULDBLOCK || start.elapsed() > LOCK_PATIENCE {
                return None;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
    Some(folder)
}

/// The file of the socket, to be removed when the process ends.
struct Place {
    path: PathBuf,
    /// The device and inode: another file may have replaced it.
    file: (u64, u64),
}

/// Empty in a child of `fork`, which removes no file of its parent.
static PLACE: PerProcess<OnceLock<Place>> = PerProcess::new(OnceLock::new);

impl Place {
    /// If the exit handler is refused, the file stays.
    fn note(path: PathBuf) -> io::Result<()> {
        extern "C" fn remove() {
            Place::remove();
        }
        let place = Place {
            file: file(&path)?,
            path,
        };
        if PLACE.get().set(place).is_ok() {
            let _ = sys::at_exit(remove);
        }
        Ok(())
    }

    fn remove() {
        let Some(place) = PLACE.existing().and_then(OnceLock::get) else {
            return;
        };
        if file(&place.path).ok() == Some(place.file) {
            let _ = fs::remove_file(&place.path);
        }
    }
}

fn file(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

#[derive(Clone, Copy)]
struct Pace {
    interval: Duration,
    /// The time without reading after which a client is disconnected.
    patience: Duration,
}

pub(super) trait LineSource {
    /// Returns the next line. `interval` returns the time to the one after it, and is called last.
    fn line(&mut self, interval: impl Fn() -> Duration) -> String;
    fn forget(&mut self);
}

struct Client {
    stream: UnixStream,
    /// Its last line, and the number of bytes sent.
    line: Arc<str>,
    sent: usize,
    since: Instant,
}

impl Client {
    fn has_rest(&self) -> bool {
        self.sent < self.line.len()
    }

    /// Sends a line if the last one is sent. Returns whether the client is still connected.
    fn send(&mut self, line: &Arc<str>, patience: Duration) -> bool {
        if self.has_rest() {
            return self.since.elapsed() < patience;
        }
        (self.line, self.sent, self.since) = (line.clone(), 0, Instant::now());
        self.go_on()
    }

    /// Returns whether the client is still connected.
    fn go_on(&mut self) -> bool {
        while self.has_rest() {
            match sys::send(&self.stream, &self.line.as_bytes()[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return true,
                    io::ErrorKind::Interrupted => {}
                    _ => return false,
                },
            }
        }
        true
    }
}

fn serve(listener: &UnixListener, pace: Pace, lines: &mut impl LineSource) {
    let mut clients: Vec<Client> = Vec::new();
    // For clients that connect before the next line is due, so that each interval makes one line.
    // Dropped when it is too old to be compared with the next one.
    let mut latest: Option<Arc<str>> = None;
    let mut next = Instant::now();
    let mut interval = pace.interval;
    loop {
        let until = match (clients.is_empty(), &latest) {
            (false, _) => Some(next),
            (true, Some(_)) => Some(next + interval),
            (true, None) => None,
        };
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if wait(listener, &mut clients, left) {
            let fresh = latest.as_ref().filter(|_| next > Instant::now());
            accept(listener, &mut clients, fresh, pace.patience);
        }
        let now = Instant::now();
        if clients.is_empty() {
            if now >= next + interval {
                lines.forget();
                latest = None;
            }
        } else if now >= next {
            let after = || pace.interval.max(now.elapsed() * SHARE);
            let line: Arc<str> = lines.line(after).into();
            interval = after();
            next = now + interval;
            clients.retain_mut(|client| client.send(&line, pace.patience));
            latest = Some(line);
        }
    }
}

/// Returns whether a client has connected; sends meanwhile. Input is never read; a hang-up is
/// always reported.
fn wait(listener: &UnixListener, clients: &mut Vec<Client>, left: Option<Duration>) -> bool {
    let mut asked = vec![PollFd::new(listener, PollFlags::IN)];
    asked.extend(clients.iter().map(|client| {
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::OUT, client.has_rest());
        PollFd::new(&client.stream, wanted)
    }));
    let result = rustix::event::poll(&mut asked, left.map(sys::timespec).as_ref());
    let revents: Vec<PollFlags> = asked.iter().map(PollFd::revents).collect();
    if let Err(error) = result {
        if error != rustix::io::Errno::INTR {
            thread::sleep(REST);
        }
        return false;
    }
    let mut of_clients = revents[1..].iter();
    clients.retain_mut(|client| match of_clients.next() {
        Some(revents) if revents.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) => {
            false
        }
        Some(revents) if revents.contains(PollFlags::OUT) => client.go_on(),
        _ => true,
    });
    !revents[0].is_empty()
}

/// Accepts one client, so that disconnected ones are noticed before another is refused. Sends the
/// latest line, unless the next one is due.
fn accept(
    listener: &UnixListener,
    clients: &mut Vec<Client>,
    latest: Option<&Arc<str>>,
    patience: Duration,
) {
    match local::accept(listener) {
        Ok(stream) if clients.len() == MAX_CLIENTS => {
            let _ = sys::send(&stream, TOO_MANY.as_bytes());
        }
        Ok(stream) => {
            let mut client = Client {
                stream,
                line: Arc::default(),
                sent: 0,
                since: Instant::now(),
            };
            if latest.is_none_or(|line| client.send(line, patience)) {
                clients.push(client);
            }
        }
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock
            | io::ErrorKind::Interrupted
            | io::ErrorKind::ConnectionAborted => {}
            _ => thread::sleep(REST),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    struct Folder {
        folder: PathBuf,
        socket: PathBuf,
    }

    impl Folder {
        fn new() -> Folder {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("polder-top-{}-{number}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir(&folder).unwrap();
            let socket = folder.join("socket");
            Folder { folder, socket }
        }

        fn connect(&self) -> UnixStream {
            let stream = UnixStream::connect(&self.socket).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            stream
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    /// Takes 20 ms for a line, which contains the announced interval.
    struct Slow;

    impl LineSource for Slow {
        fn line(&mut self, interval: impl Fn() -> Duration) -> String {
            thread::sleep(Duration::from_millis(20));
            format!("{}\n", interval().as_millis())
        }

        fn forget(&mut self) {}
    }

    #[test]
    fn a_line_announces_the_interval_that_follows_it() {
        let place = Folder::new();
        let listener = listen(&place.socket).unwrap();
        let (interval, patience) = (Duration::from_millis(1), LIMIT);
        thread::spawn(move || serve(&listener, Pace { interval, patience }, &mut Slow));
        let mut lines = BufReader::new(place.connect()).lines();
        let first = lines.next().unwrap().unwrap();
        assert!(
            first.parse::<u128>().unwrap() >= 20 * u128::from(SHARE),
            "{first}"
        );
    }

    /// Makes lines of `bytes` bytes. Counts them, and the calls of `forget`.
    struct Numbered {
        bytes: usize,
        lines: Arc<AtomicUsize>,
        forgotten: Arc<AtomicUsize>,
    }

    impl LineSource for Numbered {
        fn line(&mut self, _: impl Fn() -> Duration) -> String {
            let number = self.lines.fetch_add(1, Ordering::SeqCst);
            let number = number.to_string();
            " ".repeat(self.bytes - 1 - number.len()) + &number + "\n"
        }

        fn forget(&mut self) {
            self.forgotten.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Serves until the test process ends. Returns the counts.
    fn serve_at(
        place: &Folder,
        bytes: usize,
        interval: Duration,
        patience: Duration,
    ) -> (Arc<AtomicUsize>, Arc<AtomicUsize>) {
        let listener = listen(&place.socket).unwrap();
        let (lines, forgotten) = (Arc::default(), Arc::default());
        let mut source = Numbered {
            bytes,
            lines: Arc::clone(&lines),
            forgotten: Arc::clone(&forgotten),
        };
        let pace = Pace { interval, patience };
        thread::spawn(move || serve(&listener, pace, &mut source));
        (lines, forgotten)
    }

    fn until(what: &str, is_so: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < LIMIT, "it comes never: {what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// A client that does not read is disconnected; others get their lines.
    #[test]
    fn client_not_reading_cut_others_served() {
        const BYTES: usize = 1 << 20;
        // On a busy machine a reader may be this late.
        const PATIENCE: Duration = Duration::from_secs(2);

        // Returns `false` if a reader was late and was disconnected.
        let attempt = || {
            let place = Folder::new();
            serve_at(&place, BYTES, Duration::from_millis(10), PATIENCE);
            let mut deaf = place.connect();
            let mut lines = BufReader::new(place.connect()).lines();
            let start = Instant::now();
            let mut last = start;
            let mut numbers = Vec::new();
            while start.elapsed() < PATIENCE * 2 || numbers.len() < 10 {
                let line = match lines.next() {
                    Some(Ok(line)) if line.len() == BYTES - 1 => line,
                    _ if last.elapsed() >= PATIENCE / 2 => return false,
                    other => panic!("{:?} bytes", other.map(|it| it.map(|line| line.len()))),
                };
                last = Instant::now();
                numbers.push(line.trim().parse::<usize>().unwrap());
            }
            assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
            // The part of a line that was sent can still be read.
            let mut rest = Vec::new();
            deaf.read_to_end(&mut rest).unwrap();
            assert!((1..BYTES).contains(&rest.len()), "{} bytes", rest.len());
            true
        };
        assert!((0..3).any(|_| attempt()), "the one that reads is cut");
    }

    /// A client that reads slowly misses lines, and gets whole ones.
    #[test]
    fn client_reading_slowly_skips_whole_lines() {
        const BYTES: usize = 1 << 20;

        let place = Folder::new();
        serve_at(&place, BYTES, Duration::from_millis(1), LIMIT);
        let mut slow = BufReader::with_capacity(BYTES / 4, place.connect());
        let mut before = None;
        for _ in 0..3 {
            let mut line = Vec::new();
            while line.last() != Some(&b'\n') {
                thread::sleep(Duration::from_millis(5));
                let (part, end) = {
                    // A signal interrupts a wait with a limit: socket(7), `SO_RCVTIMEO`.
                    let bytes = match slow.fill_buf() {
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                        result => result.unwrap(),
                    };
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let part = end.map_or(bytes, |end| &bytes[..=end]);
                    (part.to_vec(), end.is_some())
                };
                assert!(!part.is_empty(), "it was cut");
                slow.consume(part.len());
                line.extend(part);
                assert!(!end || line.last() == Some(&b'\n'));
            }
            assert_eq!(line.len(), BYTES);
            let number = String::from_utf8(line).unwrap().trim().parse::<usize>();
            let number = Some(number.unwrap());
            assert!(number > before);
            before = number;
        }
    }

    /// A client gets a line immediately, and then one per interval.
    #[test]
    fn client_told_at_once_one_line_per_interval() {
        let place = Folder::new();
        let (lines, _) = serve_at(&place, 8, LIMIT, LIMIT);
        for _ in 0..20 {
            let mut line = String::new();
            BufReader::new(place.connect())
                .read_line(&mut line)
                .unwrap();
            assert_eq!(line, "      0\n");
        }
        assert_eq!(lines.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn no_client_no_lines_nothing_kept() {
        let place = Folder::new();
        let (lines, forgotten) = serve_at(&place, 8, Duration::from_millis(10), LIMIT);
        thread::sleep(Duration::from_millis(100));
        assert_eq!(lines.load(Ordering::SeqCst), 0);
        let client = place.connect();
        until("the third line", || lines.load(Ordering::SeqCst) > 2);
        let before = forgotten.load(Ordering::SeqCst);
        drop(client);
        until("its end is seen", || {
            forgotten.load(Ordering::SeqCst) > before
        });
        let then = lines.load(Ordering::SeqCst);
        thread::sleep(Duration::from_millis(100));
        assert_eq!(lines.load(Ordering::SeqCst), then);
    }

    /// A client above the limit is refused until another one leaves.
    #[test]
    fn client_over_limit_told_until_one_leaves() {
        let place = Folder::new();
        serve_at(&place, 8, Duration::from_millis(10), LIMIT);
        let hear = |stream: &UnixStream| {
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).unwrap();
            line
        };
        let mut clients = Vec::new();
        for _ in 0..MAX_CLIENTS {
            clients.push(place.connect());
            assert_ne!(hear(clients.last().unwrap()), TOO_MANY);
        }
        let mut one_more = place.connect();
        let mut said = String::new();
        one_more.read_to_string(&mut said).unwrap();
        assert_eq!(said, TOO_MANY);
        clients.pop();
        until("a place is free", || hear(&place.connect()) != TOO_MANY);
    }

    /// A socket without a listener is replaced; any other file is not.
    #[test]
    fn stale_socket_replaced_other_files_kept() {
        let place = Folder::new();
        let path = &place.socket;
        drop(UnixListener::bind(path).unwrap());
        let listener = listen(path).unwrap();
        let mode = || fs::symlink_metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        // There is a listener, whether or not it accepts.
        let mut waiting = Vec::new();
        for _ in 0..100 {
            let error = listen(path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
            if waiting.len() < 5 {
                waiting.push(place.connect());
            }
        }
        drop(listener);
        // A link to such a socket does not count as one.
        let link = place.folder.join("link");
        std::os::unix::fs::symlink(path, &link).unwrap();
        let file = place.folder.join("file");
        fs::write(&file, "precious").unwrap();
        let dangling = place.folder.join("dangling");
        std::os::unix::fs::symlink(place.folder.join("none"), &dangling).unwrap();
        for other in [&link, &file, &dangling, &place.folder] {
            let error = listen(other).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{error}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(!place.folder.join("none").exists());
        drop(listen(path).unwrap());
    }

    #[test]
    fn stale_socket_replaced_by_one_of_many() {
        let (begin, mut rounds) = (Instant::now(), 0);
        while rounds < 20 {
            assert!(begin.elapsed() < LIMIT, "each of them waits for too long");
            let place = Folder::new();
            drop(UnixListener::bind(&place.socket).unwrap());
            let start = Instant::now();
            let results: Vec<_> = thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|_| scope.spawn(|| listen(&place.socket)))
                    .collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .collect()
            });
            // After that time they no longer wait for each other.
            if start.elapsed() >= LOCK_PATIENCE {
                continue;
            }
            rounds += 1;
            let listeners: Vec<_> = results.into_iter().filter_map(Result::ok).collect();
            assert_eq!(listeners.len(), 1);
            place.connect();
            listeners[0].accept().expect("it is the one at the path");
        }
    }

    #[test]
    #[cfg(not(target_os = "solaris"))]
    fn bind_waits_for_another_in_same_folder() {
        let place = Folder::new();
        let start = Instant::now();
        let held = lock(&place.folder).unwrap();
        thread::scope(|scope| {
            let other = scope.spawn(|| listen(&place.socket));
            thread::sleep(LOCK_PATIENCE / 10);
            let is_there = place.socket.exists();
            // Unless this thread was delayed for that long.
            assert!(!is_there || start.elapsed() >= LOCK_PATIENCE);
            drop(held);
            other.join().unwrap().unwrap();
        });
    }
}
