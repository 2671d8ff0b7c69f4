//! Lines from the socket.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use crate::line::{Line, MAX_LINE};
use crate::text::Text;

/// A program that is silent for this time, or for three times its announced interval, is
/// reconnected to: it may have been killed, while a child of it keeps the connection.
const SILENCE: Duration = Duration::from_secs(10);

/// The maximum announced interval.
const LONGEST_INTERVAL: f64 = 3_600.0;

/// The pause before a retry.
const RETRY: Duration = Duration::from_millis(500);

/// The number of news items that wait to be shown. A program that sends more waits, or skips lines.
pub const QUEUE: usize = 2;

/// An item from the program.
#[derive(Debug)]
pub enum News {
    Line(Box<Line>),
    /// The connection has ended, or there is none.
    Down(Text),
}

/// A connection.
pub struct Feed {
    reader: BufReader<UnixStream>,
    buffer: Vec<u8>,
}

impl Feed {
    /// # Errors
    ///
    /// A message for the user.
    pub fn connect(path: &Path) -> Result<Feed, Text> {
        let stream = UnixStream::connect(path)
            .and_then(|stream| stream.set_read_timeout(Some(SILENCE)).map(|()| stream));
        match stream {
            Ok(stream) => Ok(Feed {
                reader: BufReader::new(stream),
                buffer: Vec::new(),
            }),
            Err(error) => Err(Text::from(match error.kind() {
                io::ErrorKind::NotFound => {
                    format!("there is no {path:?}: was the program started with POLDER_TOP?")
                }
                io::ErrorKind::ConnectionRefused => {
                    format!("nobody listens at {path:?}: the program has ended")
                }
                io::ErrorKind::PermissionDenied => {
                    format!("{path:?} is another user's: it is for the program's own")
                }
                _ => format!("{path:?}: {error}"),
            })),
        }
    }

    /// # Errors
    ///
    /// A message for the user. There are no further lines then.
    pub fn next_line(&mut self) -> Result<Line, Text> {
        self.buffer.clear();
        let limit = MAX_LINE as u64 + 1;
        let result = (&mut self.reader)
            .take(limit)
            .read_until(b'\n', &mut self.buffer);
        match result {
            Ok(_) if self.buffer.last() == Some(&b'\n') => {}
            Ok(_) if self.buffer.len() > MAX_LINE => {
                return Err("that is no line of polder's: it is too long".into());
            }
            Ok(_) => return Err("the program has ended".into()),
            Err(error) => {
                return Err(Text::from(match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        "the program says nothing".to_owned()
                    }
                    _ => format!("the connection is over: {error}"),
                }));
            }
        }
        let line = Line::parse(&self.buffer)?;
        let announced = Duration::from_secs_f64(line.interval.clamp(0.0, LONGEST_INTERVAL) * 3.0);
        // It only fails if the socket is gone, which the next read detects.
        let _ = (self.reader.get_ref()).set_read_timeout(Some(announced.max(SILENCE)));
        Ok(line)
    }
}

/// Starts a thread that reads, and reconnects when necessary. It ends with the receiver.
pub fn follow(path: PathBuf) -> io::Result<std::sync::mpsc::Receiver<News>> {
    let (sender, receiver) = sync_channel(QUEUE);
    thread::Builder::new().spawn(move || while follow_once(&path, &sender) {})?;
    Ok(receiver)
}

/// Returns whether the receiver is still there.
fn follow_once(path: &Path, sender: &SyncSender<News>) -> bool {
    let why = match Feed::connect(path) {
        Ok(mut feed) => loop {
            match feed.next_line() {
                Ok(line) => {
                    if sender.send(News::Line(Box::new(line))).is_err() {
                        return false;
                    }
                }
                Err(why) => break why,
            }
        },
        Err(why) => why,
    };
    let wants_more = sender.send(News::Down(why)).is_ok();
    thread::sleep(RETRY);
    wants_more
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A path for one test.
    struct Place(PathBuf);

    impl Place {
        fn new() -> Place {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("polder-top-feed-{}-{number}", std::process::id());
            Place(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    const LINE: &str = "{\"polder_top\":1,\"process\":1}\n";

    #[test]
    fn each_way_to_fail_has_its_words() {
        let place = Place::new();
        let words = |place: &Place| Feed::connect(&place.0).err().unwrap().to_string();
        assert!(words(&place).contains("POLDER_TOP"), "{}", words(&place));
        drop(UnixListener::bind(&place.0).unwrap());
        assert!(
            words(&place).contains("nobody listens"),
            "{}",
            words(&place)
        );
        let long = Place("/tmp/".to_owned().repeat(100).into());
        assert!(words(&long).contains("/tmp/"), "{}", words(&long));
    }

    /// Lines come until the program ends or sends what is none.
    #[test]
    fn lines_until_end_or_garbage() {
        let place = Place::new();
        let listener = UnixListener::bind(&place.0).unwrap();
        let long = "x".repeat(MAX_LINE + 10);
        for (sent, lines, words) in [
            (format!("{LINE}{LINE}"), 2, "has ended"),
            (format!("{LINE}{{\"polder"), 1, "has ended"),
            (format!("{LINE}\u{1b}[2J\n"), 1, "no line of polder's"),
            (long, 0, "too long"),
            ("{\"error\":\"enough\"}\n".into(), 0, "says: enough"),
        ] {
            let mut feed = Feed::connect(&place.0).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let writer = thread::spawn(move || stream.write_all(sent.as_bytes()));
            for _ in 0..lines {
                assert_eq!(feed.next_line().unwrap().process, 1);
            }
            let why = feed.next_line().unwrap_err();
            assert!(why.as_str().contains(words), "{why}");
            drop(feed);
            let _ = writer.join().unwrap();
        }
    }

    #[test]
    fn a_program_that_starts_again_is_followed() {
        let place = Place::new();
        let news = follow(place.0.clone()).unwrap();
        assert!(matches!(news.recv().unwrap(), News::Down(_)));
        for _ in 0..2 {
            let listener = UnixListener::bind(&place.0).unwrap();
            listener
                .accept()
                .unwrap()
                .0
                .write_all(LINE.as_bytes())
                .unwrap();
            drop(listener);
            std::fs::remove_file(&place.0).unwrap();
            let limit = Duration::from_secs(30);
            let line = |news| matches!(news, News::Line(_));
            while !line(news.recv_timeout(limit).expect("a line comes")) {}
        }
    }
}
