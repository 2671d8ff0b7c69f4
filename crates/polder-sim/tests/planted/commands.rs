//! A server with a state that it should not come to: four commands lead there, in one order. Each
//! command has one byte, and so has each answer, so its messages are always the same.
//!
//! One seed in a million finds it, and no event tells that a run was near. Only the program's edges
//! do: `tests/edges.rs`.

use std::collections::BTreeMap;
use std::io::Result;
use std::sync::LazyLock;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder_sim::Sim;

#[derive(Clone, Copy)]
enum Command {
    Hello,
    Login,
    Begin,
    Other,
}

enum Session {
    New,
    Greeted,
    LoggedIn,
    InTransaction,
    /// After a command that was out of order.
    Refused,
}

/// Set up once in a process, so one run passes edges that no other does.
static COMMANDS: LazyLock<BTreeMap<u8, Command>> = LazyLock::new(|| {
    let named = [(17, Command::Hello), (3, Command::Login)];
    named.into_iter().chain([(30, Command::Begin)]).collect()
});

impl Session {
    fn next(self, command: Command) -> Session {
        match (self, command) {
            (Session::New, Command::Hello) => Session::Greeted,
            (Session::Greeted, Command::Login) => Session::LoggedIn,
            (Session::LoggedIn, Command::Begin) => Session::InTransaction,
            (Session::InTransaction, Command::Hello) => panic!("it was greeted before"),
            _ => Session::Refused,
        }
    }
}

async fn server() -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:1").await?;
    let (mut stream, _) = listener.accept().await?;
    let (mut session, mut byte) = (Session::New, [0]);
    while stream.read_exact(&mut byte).await.is_ok() {
        let command = COMMANDS.get(&byte[0]).copied();
        session = session.next(command.unwrap_or(Command::Other));
        stream.write_all(b".").await?;
    }
    Ok(())
}

/// Sends four commands, any of 32.
async fn commands(sim: Sim) {
    sim.host("server").start(server);
    sim.sleep(std::time::Duration::from_millis(1)).await;
    let mut stream = TcpStream::connect("server:1").await.unwrap();
    for _ in 0..4 {
        let command = sim.choose(32) as u8;
        stream.write_all(&[command]).await.unwrap();
        stream.read_exact(&mut [0]).await.unwrap();
    }
}

/// A bug behind four commands is not found by a few seeds.
#[test]
fn four_commands_not_found_by_few_seeds() {
    polder_sim::check(0..1, commands);
}
