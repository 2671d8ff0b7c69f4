//! The servers: `compare serve-redis PROGRAM WORKERS`.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use futures_lite::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::accept;
use crate::echo::serve::{Never, unknown};

/// The size of a connection's buffer: requests are shorter.
const BUFFER: usize = 4096;

pub fn serve(program: &str, workers: usize) -> io::Result<Never> {
    let store = Arc::<Store>::default();
    match program {
        "polder" => accept::polder(workers, |stream| futures_io(stream, store.clone())),
        "tokio" => accept::tokio(workers, |stream| tokio(stream, store.clone())),
        "smol" => accept::smol(workers, |stream| futures_io(stream, store.clone())),
        _ => unknown(),
    }
}

/// An error ends this connection, and the generator reports it.
async fn futures_io(mut stream: impl AsyncRead + AsyncWrite + Unpin, store: Arc<Store>) {
    let mut connection = Connection::new(&store);
    loop {
        match stream.read(connection.room()).await {
            Err(_) | Ok(0) => return,
            Ok(length) => connection.received(length),
        }
        let answered = connection.answer();
        if answered.is_err() || stream.write_all(&connection.outgoing).await.is_err() {
            return;
        }
    }
}

async fn tokio(mut stream: tokio::net::TcpStream, store: Arc<Store>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let mut connection = Connection::new(&store);
    loop {
        match stream.read(connection.room()).await {
            Err(_) | Ok(0) => return,
            Ok(length) => connection.received(length),
        }
        let answered = connection.answer();
        if answered.is_err() || stream.write_all(&connection.outgoing).await.is_err() {
            return;
        }
    }
}

#[derive(Default)]
struct Store(Mutex<HashMap<Vec<u8>, Vec<u8>>>);

/// A connection's work between its reads and its writes.
struct Connection<'a> {
    store: &'a Store,
    incoming: Vec<u8>,
    /// How much of it is a request that has not come completely.
    filled: usize,
    outgoing: Vec<u8>,
}

impl Connection<'_> {
    fn new(store: &Store) -> Connection<'_> {
        Connection {
            store,
            incoming: vec![0; BUFFER],
            filled: 0,
            outgoing: Vec::new(),
        }
    }

    /// Returns where to read to.
    fn room(&mut self) -> &mut [u8] {
        &mut self.incoming[self.filled..]
    }

    fn received(&mut self, length: usize) {
        self.filled += length;
    }

    /// Answers all requests that have come completely.
    fn answer(&mut self) -> io::Result<()> {
        self.outgoing.clear();
        let mut from = 0;
        while let Some((words, length)) = request(&self.incoming[from..self.filled])? {
            from += length;
            self.store.answer(words, &mut self.outgoing)?;
        }
        if from == 0 && self.filled == BUFFER {
            return Err(io::Error::other("the request is too long"));
        }
        self.incoming.copy_within(from..self.filled, 0);
        self.filled -= from;
        Ok(())
    }
}

impl Store {
    fn answer(&self, words: [&[u8]; 3], outgoing: &mut Vec<u8>) -> io::Result<()> {
        let mut map = self.0.lock().expect("nobody panics");
        match words {
            [b"SET", key, value] => {
                match map.get_mut(key) {
                    Some(old) => value.clone_into(old),
                    None => drop(map.insert(key.to_vec(), value.to_vec())),
                }
                outgoing.extend_from_slice(b"+OK\r\n");
            }
            [b"GET", key, _] => match map.get(key) {
                Some(value) => {
                    write!(outgoing, "${}\r\n", value.len())?;
                    outgoing.extend_from_slice(value);
                    outgoing.extend_from_slice(b"\r\n");
                }
                None => outgoing.extend_from_slice(b"$-1\r\n"),
            },
            _ => outgoing.extend_from_slice(b"-ERR unknown command\r\n"),
        }
        Ok(())
    }
}

/// The words of a request, at most three, and its length.
type Request<'a> = ([&'a [u8]; 3], usize);

/// Returns the first request; `None` if it is not complete.
fn request(bytes: &[u8]) -> io::Result<Option<Request<'_>>> {
    let Some((count, mut at)) = number(bytes, b'*')? else {
        return Ok(None);
    };
    let mut words: [&[u8]; 3] = [&[]; 3];
    if count > words.len() {
        return Err(io::Error::other("the request has too many words"));
    }
    for word in &mut words[..count] {
        let Some((length, head)) = number(&bytes[at..], b'$')? else {
            return Ok(None);
        };
        at += head;
        match bytes.get(at..at + length + 2) {
            Some(found) => *word = &found[..length],
            None => return Ok(None),
        }
        at += length + 2;
    }
    Ok(Some((words, at)))
}

/// Returns the number in a line that starts with `sign`, and the line's length. `None` if it is not
/// complete.
fn number(bytes: &[u8], sign: u8) -> io::Result<Option<(usize, usize)>> {
    let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
        return Ok(None);
    };
    let digits = (bytes[..end].strip_prefix(&[sign])).and_then(|line| line.strip_suffix(b"\r"));
    (digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok()))
        .filter(|&number| number < BUFFER)
        .map(|number| Some((number, end + 1)))
        .ok_or_else(|| io::Error::other("that is no request"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_answered_however_they_are_cut() {
        let asked = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n\
            *2\r\n$3\r\nGET\r\n$1\r\nx\r\n";
        for size in 1..asked.len() {
            let store = Store::default();
            let mut connection = Connection::new(&store);
            let mut answer = Vec::new();
            for piece in asked.chunks(size) {
                connection.room()[..piece.len()].copy_from_slice(piece);
                connection.received(piece.len());
                connection.answer().expect("it is right");
                answer.extend_from_slice(&connection.outgoing);
            }
            assert_eq!(answer, b"+OK\r\n$2\r\n\r\n\r\n$-1\r\n", "{size}");
        }
    }

    #[test]
    fn what_is_no_request_is_an_error() {
        assert!(request(b"GET k\r\n").is_err());
        assert!(request(b"*4\r\n").is_err());
        assert!(request(b"*2\r\n$9999999\r\n").is_err());
    }
}
