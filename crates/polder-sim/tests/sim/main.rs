//! The rules of simulated worlds, and programs with planted bugs that they find.

mod addresses;
mod chaos;
mod checks;
#[cfg(unix)]
mod descriptors;
mod determinism;
#[cfg(target_os = "linux")]
mod differential;
mod disk;
mod example;
mod exhaustive;
mod explore;
mod failing;
mod families;
mod faults;
mod history;
mod hosts;
mod keepalive;
mod links;
mod look;
mod migrating;
mod mistakes;
mod names;
mod nat;
mod paused;
mod planted;
mod said;
mod shared;
mod suspended;
mod tcp;
mod threads;
mod udp;
#[cfg(unix)]
mod unix;
mod workers;
mod workload;
mod world;

use std::cell::Cell;
use std::io::Result;
use std::rc::Rc;
use std::time::Duration;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::sleep;
use polder_sim::{Process, Sim};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Starts a process that counts at its start, and then every 10 ms.
fn counting(sim: &Sim) -> (Process<()>, Rc<Cell<u32>>) {
    let counted = Rc::new(Cell::new(0));
    let count = counted.clone();
    let host = sim.host("host").start(move || {
        let count = count.clone();
        async move {
            loop {
                count.set(count.get() + 1);
                sleep(ms(10)).await;
            }
        }
    });
    (host, counted)
}

/// Echoes four bytes at a time, for each client of port 1.
async fn echo() {
    let listener = TcpListener::bind("0.0.0.0:1").await.unwrap();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        polder::spawn(async move {
            let mut bytes = [0; 4];
            while stream.read_exact(&mut bytes).await.is_ok() {
                if stream.write_all(&bytes).await.is_err() {
                    break;
                }
            }
        })
        .detach();
    }
}

/// Sends one request to an [`echo`].
async fn ask(stream: &mut TcpStream) -> Result<()> {
    stream.write_all(b"ping").await?;
    stream.read_exact(&mut [0; 4]).await
}
