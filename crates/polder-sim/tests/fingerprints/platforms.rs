//! Programs of each kind, with chaos, that run identically on every platform: the fingerprints of
//! twenty seeds each, folded into one recorded number.

use std::io::Result;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use polder::event::Event;
use polder::fs::{self, File, OpenOptions};
use polder::future::yield_now;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, UdpSocket};
use polder::time::{now, sleep, timeout};
use polder_sim::{Latency, Sim};

use super::{ms, secs};

/// Two of these seeds are calm.
const SEEDS: std::ops::Range<u64> = 8..28;

/// The fingerprints of the seeds, as one number.
fn folded<F>(test: impl Fn(Sim) -> F + Sync) -> u64
where
    F: Future<Output = ()> + 'static,
{
    SEEDS.fold(0, |hash: u64, seed| {
        let report = polder_sim::run(seed, &test);
        assert_eq!(report.failure, None);
        (hash.rotate_left(5) ^ report.fingerprint).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

/// Fails unless the runs are the recorded ones.
#[track_caller]
fn assert_known(folded: u64, known: u64) {
    assert_eq!(folded, known, "it is {folded:#x} now, and was {known:#x}");
}

/// Echoes on each connection, as long as it has a socket.
async fn echo() -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:1").await?;
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            sleep(ms(5)).await;
            continue;
        };
        polder::spawn(async move {
            let mut bytes = [0; 300];
            while stream.read_exact(&mut bytes).await.is_ok() {
                if stream.write_all(&bytes).await.is_err() {
                    break;
                }
            }
        })
        .detach();
    }
}

/// Sends requests to an echo repeatedly, reconnecting when necessary.
async fn ask(pause: Duration) {
    let limit = ms(300);
    loop {
        let Ok(mut stream) = TcpStream::connect_timeout("server:1", limit).await else {
            sleep(pause).await;
            continue;
        };
        let mut bytes = [7; 300];
        loop {
            let answer = timeout(limit, async {
                stream.write_all(&bytes).await?;
                stream.read_exact(&mut bytes).await
            });
            if !matches!(answer.await, Ok(Ok(_))) {
                break;
            }
            sleep(pause).await;
        }
    }
}

#[test]
fn streams_are_the_same_on_every_platform() {
    let folded = folded(|sim| async move {
        let server = sim.host("server").start(echo);
        for n in 0..2 {
            sim.host(&format!("client-{n}")).start(|| ask(ms(20)));
        }
        sim.links().latency(Latency::uniform(ms(1)..ms(9)));
        sim.chaos(secs(2)).usual(&[&server]).exhausted();
        sleep(secs(2)).await;
        sim.quiesce();
        sleep(ms(500)).await;
    });
    assert_known(folded, 0x585b_3d94_c5e5_c809);
}

/// Sends numbers to its peers, and to the broadcast address, and answers what it receives.
async fn gossip(peers: Rc<[IpAddr]>) -> Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:9").await?;
    socket.set_broadcast(true)?;
    let mut bytes = [0; 16];
    for n in 0_u64.. {
        let peer = peers[n as usize % peers.len()];
        let _ = socket.send_to(&n.to_le_bytes(), (peer, 9)).await;
        if n % 5 == 0 {
            let _ = socket.send_to(b"all", ("255.255.255.255", 9)).await;
        }
        let limit = ms(15);
        while let Ok(Ok((len, from))) = timeout(limit, socket.recv_from(&mut bytes)).await {
            if len == 8 {
                let _ = socket.send_to(&bytes[..3], from).await;
            }
        }
    }
    Ok(())
}

#[test]
fn datagrams_are_the_same_on_every_platform() {
    let folded = folded(|sim| async move {
        let hosts = ["a", "b", "c"].map(|name| sim.host(name));
        let peers: Rc<[IpAddr]> = hosts.iter().map(|it| it.address()).collect();
        for host in &hosts {
            let peers = peers.clone();
            host.start(move || gossip(peers.clone()));
        }
        let [a, b, _] = &hosts;
        sim.links().latency(Latency::exponential(ms(1), ms(3)));
        sim.chaos(secs(2)).usual(&[a, b]);
        sleep(secs(2)).await;
        sim.quiesce();
        sleep(ms(500)).await;
    });
    assert_known(folded, 0xd133_e5b6_0198_909c);
}

/// Tasks that wait for each other, for timers, and for nothing; some are cancelled.
async fn busy() {
    let event = Rc::new(Event::new());
    for round in 0.. {
        let tasks: Vec<_> = (0..6)
            .map(|n| {
                let event = event.clone();
                polder::spawn_local(async move {
                    match n % 3 {
                        0 => sleep(ms(3 * n + round % 7)).await,
                        1 => event.wait().await,
                        _ => (0..n).for_each(|_| event.set()),
                    }
                    yield_now().await;
                    now()
                })
            })
            .collect();
        for (n, task) in tasks.into_iter().enumerate() {
            // A task may wait for an event that is never set.
            let _ = timeout(ms(10 + n as u64), task).await;
        }
    }
}

/// Tasks and timers are the same on every platform.
#[test]
fn tasks_and_timers_same_on_all_platforms() {
    let folded = folded(|sim| async move {
        let hosts = ["a", "b", "c"].map(|name| sim.host(name));
        hosts.iter().for_each(|it| drop(it.start(busy)));
        let [a, b, c] = &hosts;
        let chaos = sim.chaos(secs(1)).orders().clocks().pauses();
        chaos.crashes(&[a, b, c]);
        sleep(secs(1)).await;
        sim.quiesce();
        sleep(ms(200)).await;
    });
    assert_known(folded, 0x3926_cf76_0bc1_0d0a);
}

/// Keeps a log and a directory, despite all errors.
async fn store() -> Result<()> {
    while fs::create_dir_all("/data/old").await.is_err() {}
    for round in 0_u32.. {
        let mut options = OpenOptions::new();
        let Ok(mut log) = options.append(true).create(true).open("/log").await else {
            continue;
        };
        let bytes = vec![round as u8; 100 + 37 * (round as usize % 50)];
        let _ = log.write_all(&bytes).await;
        let _ = fs::write("/data/new", &bytes).await;
        match round % 5 {
            0 => drop(log.sync_data().await),
            1 => drop(log.set_len(700).await),
            2 => drop(fs::rename("/data/new", "/data/value").await),
            3 => drop(fs::rename("/data/value", "/data/old/value").await),
            _ => {
                for dir in ["/data/old", "/data", "/"] {
                    if let Ok(dir) = File::open(dir).await {
                        let _ = dir.sync_all().await;
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn disks_are_the_same_on_every_platform() {
    let folded = folded(|sim| async move {
        let hosts = ["a", "b"].map(|name| sim.host(name));
        hosts.iter().for_each(|it| drop(it.start(store)));
        let chaos = sim.chaos(secs(1)).disks().orders().exhausted();
        chaos.crashes(&[&hosts[0], &hosts[1]]);
        for _ in 0..4 {
            sleep(ms(200)).await;
            hosts[0].power_off();
            sleep(ms(20)).await;
            hosts[0].restart();
        }
        sim.quiesce();
        sleep(ms(100)).await;
    });
    assert_known(folded, 0x1008_674b_7b7c_e2fc);
}

#[test]
fn several_workers_are_the_same_on_every_platform() {
    let folded = folded(|sim| async move {
        let server = sim.host("server");
        server.workers(3);
        server.start(echo);
        let client = sim.host("client");
        client.workers(2);
        client.start(|| async {
            let tasks = (0..4).map(|n| polder::spawn(ask(ms(15 + n))));
            for task in tasks.collect::<Vec<_>>() {
                task.await;
            }
        });
        sim.chaos(secs(1)).usual(&[&server]);
        sleep(secs(1)).await;
        sim.quiesce();
        sleep(ms(300)).await;
    });
    assert_known(folded, 0x4bca_8b1e_782f_442c);
}
