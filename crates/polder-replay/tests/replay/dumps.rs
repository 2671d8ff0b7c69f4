//! A chat, and a client with reconnects and names: each is recorded once, and its replays have the
//! same results, and the same dumps, byte for byte.

use std::cell::RefCell;
use std::io::{self, BufRead, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use polder::event::Event;
use polder::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use polder::net::{TcpListener, TcpStream, serve};
use polder::signal::{Signal, Signals};
use polder::time::{now, sleep, timeout};
use polder::{Handle, Task};

use crate::support::{REPLAYS, Tape, with_variable};

/// The example, as it is.
#[path = "../../../../examples/chat.rs"]
#[allow(dead_code)]
mod example;

/// Takes a dump every two milliseconds, as text and as JSON.
fn take_dumps() -> (Rc<RefCell<String>>, Task<()>) {
    let dumps = Rc::<RefCell<String>>::default();
    let taken = dumps.clone();
    let task = polder::spawn_local(async move {
        loop {
            sleep(Duration::from_millis(2)).await;
            let dump = Handle::current().dump();
            *taken.borrow_mut() += &format!("{}\n{dump}", dump.json());
        }
    });
    (dumps, task)
}

/// Returns the output of this test, which runs `program` in other processes: recorded in one, and
/// replayed in many. `None` in these, where it has been printed.
fn recorded_and_replayed<F>(name: &str, program: impl FnOnce(bool) -> F) -> Option<String>
where
    F: Future<Output = String> + 'static,
{
    let is_set = |name| std::env::var_os(name).is_some();
    let is_recorded = is_set("POLDER_RECORD");
    if is_recorded || is_set("POLDER_REPLAY") {
        println!(
            "<<<{}>>>",
            polder_replay::run(program(is_recorded)).unwrap()
        );
        return None;
    }
    let tape = Tape::new();
    let recorded = with_variable(name, "POLDER_RECORD", &tape.path);
    for _ in 0..REPLAYS {
        assert_eq!(with_variable(name, "POLDER_REPLAY", &tape.path), recorded);
    }
    Some(recorded)
}

/// The chat until SIGTERM, which arrives when `clients` have left.
async fn chat(clients: Option<u16>) -> io::Result<String> {
    use polder::stream::StreamExt;
    let mut stop = Signals::new([Signal::Term])?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    if let Some(clients) = clients {
        start_chatting(address, clients);
    }
    let (dumps, task) = take_dumps();
    // Two that wait for one event, and one for another: in a dump they have numbers.
    let events = [Arc::new(Event::new()), Arc::new(Event::new())];
    let waiting: Vec<_> = [0, 0, 1].map(|place: usize| events[place].clone()).into();
    let waiting = waiting
        .into_iter()
        .map(|event| polder::spawn(async move { event.wait().await }));
    let waiting: Vec<_> = waiting.collect();
    let room = Arc::new(example::Room::default());
    let client = |stream, peer| {
        let room = room.clone();
        async move { _ = example::client(stream, peer, &room).await }
    };
    let stopped = async { _ = stop.next().await };
    serve(listener, client).until(stopped).await.map(drop)?;
    drop((task, waiting));
    Ok(dumps.take())
}

fn start_chatting(address: SocketAddr, clients: u16) {
    thread::spawn(move || {
        let clients = (0..clients).map(|number| {
            thread::spawn(move || {
                let mut stream = std::net::TcpStream::connect(address).unwrap();
                for line in 0..5 {
                    writeln!(stream, "line {line} of client {number}").unwrap();
                    thread::sleep(Duration::from_millis(3));
                }
                let limit = Some(Duration::from_millis(30));
                stream.set_read_timeout(limit).unwrap();
                while let Ok(1..) = stream.read(&mut [0; 256]) {}
            })
        });
        clients
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|client| client.join().unwrap());
        signal_hook::low_level::raise(signal_hook::consts::SIGTERM).unwrap();
    });
}

#[test]
fn chat_and_its_dumps_are_replayed() {
    let name = "dumps::chat_and_its_dumps_are_replayed";
    let program = |is_recorded: bool| async move { chat(is_recorded.then_some(4)).await.unwrap() };
    let Some(dumps) = recorded_and_replayed(name, program) else {
        return;
    };
    for words in [
        "reads tcp 127.0.0.1:",
        "\"address\":\"0x1\"",
        "\"address\":\"0x2\"",
    ] {
        assert!(dumps.contains(words), "no {words:?} in {dumps}");
    }
}

/// Asks a server, which ends connections and is not there for a while, for its next answers. Looks
/// its name up each time.
async fn client(port: u16) -> String {
    let (start, (dumps, task)) = (now(), take_dumps());
    let (mut answers, mut errors) = (Vec::new(), Vec::new());
    while answers.len() < 12 {
        let next = async {
            let mut stream = BufReader::new(TcpStream::connect(("localhost", port)).await?);
            loop {
                let question = format!("question {}\n", answers.len());
                stream.get_mut().write_all(question.as_bytes()).await?;
                let mut answer = String::new();
                if stream.read_line(&mut answer).await? == 0 {
                    return io::Result::Err(io::ErrorKind::UnexpectedEof.into());
                }
                answers.push(answer);
            }
        };
        let error = timeout(Duration::from_secs(20), next).await;
        errors.push(
            error.map_or(io::ErrorKind::TimedOut, |error: io::Result<()>| {
                error.unwrap_err().kind()
            }),
        );
        sleep(Duration::from_millis(4)).await;
    }
    drop(task);
    let took = now() - start;
    format!("{answers:?} {errors:?} {took:?} {}", dumps.take())
}

/// Answers four questions on each connection. After the first its port is closed for a while.
fn answer(listener: std::net::TcpListener) {
    let address = listener.local_addr().unwrap();
    let serve = |listener: &std::net::TcpListener| {
        let (mut stream, _) = listener.accept().unwrap();
        for _ in 0..4 {
            let mut question = String::new();
            let mut reader = io::BufReader::new(&stream);
            reader.read_line(&mut question).unwrap();
            thread::sleep(Duration::from_millis(1));
            write!(stream, "the answer to {question}").unwrap();
        }
    };
    serve(&listener);
    drop(listener);
    thread::sleep(Duration::from_millis(250));
    let listener = std::net::TcpListener::bind(address).unwrap();
    serve(&listener);
    serve(&listener);
}

#[test]
fn client_with_reconnects_and_names_is_replayed() {
    let name = "dumps::client_with_reconnects_and_names_is_replayed";
    let program = |is_recorded: bool| async move {
        // The port is on the tape.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        if is_recorded {
            let listener = std::net::TcpListener::bind(address).unwrap();
            thread::spawn(move || answer(listener));
        }
        client(address.port()).await
    };
    let Some(output) = recorded_and_replayed(name, program) else {
        return;
    };
    for words in [
        "the answer to question 11\\n",
        "ConnectionRefused",
        "reads tcp",
    ] {
        assert!(
            output.contains(words),
            "no {words:?} in {}",
            &output[..1_000]
        );
    }
}
