// The program that each simulator runs: servers, and clients that send them requests over TCP. It
// is included verbatim into each binary, along with a module `net` that has that simulator's names:
// a listener, a stream, `spawn`, `sleep`, and the extension traits for reading and writing.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use net::{AsyncReadExt, AsyncWriteExt, TcpListener, TcpStream, sleep, spawn};
use work::{PORT, SIZE};

thread_local! {
    /// The numbers of requests and of answers of the clients of this thread's worlds.
    static ASKED: Cell<u64> = const { Cell::new(0) };
    static ANSWERED: Cell<u64> = const { Cell::new(0) };
}

/// Answers each request with its bytes in reverse order.
async fn server() -> io::Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        spawn(async move {
            let mut bytes = [0; SIZE];
            while stream.read_exact(&mut bytes).await.is_ok() {
                bytes.reverse();
                if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
                    break;
                }
            }
        });
    }
}

/// Starts after `after`, and sends `rounds` requests over one connection, with a pause between
/// them.
async fn client(server: String, after: Duration, rounds: u64, pause: Duration) -> io::Result<()> {
    sleep(after).await;
    let mut stream = TcpStream::connect((server.as_str(), PORT)).await?;
    let mut bytes = [0; SIZE];
    for round in 0..rounds {
        if !pause.is_zero() {
            sleep(pause).await;
        }
        bytes[..8].copy_from_slice(&round.to_be_bytes());
        ASKED.set(ASKED.get() + 1);
        stream.write_all(&bytes).await?;
        stream.flush().await?;
        stream.read_exact(&mut bytes).await?;
        bytes.reverse();
        assert_eq!(bytes[..8], round.to_be_bytes(), "another's answer");
        ANSWERED.set(ANSWERED.get() + 1);
    }
    Ok(())
}
