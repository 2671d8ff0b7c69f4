//! Questions by UDP, asked again until they are answered, and the server that answers them.
//! The server is `cargo run --release --example udp`, and prints its address; with `-- ADDR` after
//! that it is a client.
//! A datagram may be lost, come late or come twice. So each question has a number, which its answer
//! repeats; and the server has to be one that may be asked twice.

use std::io;
use std::time::Duration;

use polder::net::UdpSocket;
use polder::time::{sleep, timeout};

/// How long the first answer may take. It doubles with each try: a server that is late because it
/// is busy is not asked more and more often.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const TRIES: u32 = 6;

fn main() -> io::Result<()> {
    polder::block_on(async {
        let mut given = std::env::args().skip(1);
        let (server, None) = (given.next(), given.next()) else {
            return Err(io::Error::other("usage: udp [ADDR]"));
        };
        let own = server.as_ref().map_or("127.0.0.1:0", |_| "0.0.0.0:0");
        let socket = UdpSocket::bind(own).await?;
        let Some(server) = server else {
            println!("listening on {}", socket.local_addr()?);
            return serve(&socket).await;
        };
        socket.connect(server).await?; // From now on datagrams of others are not received.
        for (number, question) in ["one", "two", "three"].into_iter().enumerate() {
            println!("{}", ask(&socket, number, question).await?);
        }
        Ok(())
    })
}

/// Answers each question with itself, in capitals.
async fn serve(socket: &UdpSocket) -> io::Result<()> {
    let mut bytes = [0; 1_500];
    loop {
        let (length, client) = match socket.recv_from(&mut bytes).await {
            // On Windows: a client was not there for its answer.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => continue,
            received => received?,
        };
        bytes[..length].make_ascii_uppercase();
        let _ = socket.send_to(&bytes[..length], client).await; // It will ask again.
    }
}

/// Asks until there is an answer.
async fn ask(socket: &UdpSocket, number: usize, question: &str) -> io::Result<String> {
    let mut wait = FIRST_WAIT;
    for _ in 0..TRIES {
        match timeout(wait, try_to_ask(socket, number, question)).await {
            // The port is closed. Perhaps the server starts later.
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => sleep(wait).await,
            Ok(result) => return result,
            Err(_elapsed) => {}
        }
        wait *= 2;
    }
    let words = format!("no answer after {TRIES} questions");
    Err(io::Error::new(io::ErrorKind::TimedOut, words))
}

async fn try_to_ask(socket: &UdpSocket, number: usize, question: &str) -> io::Result<String> {
    let datagram = format!("{number} {question}");
    socket.send(datagram.as_bytes()).await?;
    let mut bytes = [0; 1_500];
    loop {
        let length = socket.recv(&mut bytes).await?;
        let answer = String::from_utf8_lossy(&bytes[..length]);
        // Another number: a second answer to the question before.
        if let Some(text) = answer.strip_prefix(&format!("{number} ")) {
            return Ok(text.to_owned());
        }
    }
}
