//! Two nodes that lead while they hold a lease, each by its own clock, without an allowance for
//! clock drift.

use std::cell::Cell;
use std::io::Result;
use std::rc::Rc;
use std::time::Duration;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::{now, sleep, timeout};

use super::plant;
use crate::{ms, secs};

/// The duration of a lease.
const LEASE: Duration = Duration::from_secs(2);

/// The maximum error of a node's clock, in millionths.
const DRIFT: i32 = 100_000;

/// Grants the lease to one node at a time: to its holder, or to any node once it has expired.
async fn keeper() -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:1").await?;
    let mut lease = (u8::MAX, now());
    loop {
        let (mut stream, _) = listener.accept().await?;
        let mut node = [0];
        // Does not wait for a node that was cut off.
        if !matches!(
            timeout(ms(50), stream.read_exact(&mut node)).await,
            Ok(Ok(()))
        ) {
            continue;
        }
        let is_granted = lease.0 == node[0] || lease.1 <= now();
        if is_granted {
            lease = (node[0], now() + LEASE);
        }
        let _ = stream.write_all(&[u8::from(is_granted)]).await;
    }
}

async fn ask(node: u8) -> Result<bool> {
    let mut stream = TcpStream::connect("keeper:1").await?;
    stream.write_all(&[node]).await?;
    let mut answer = [0];
    stream.read_exact(&mut answer).await?;
    Ok(answer[0] == 1)
}

async fn node(node: u8, leads: Rc<Cell<bool>>, has_bug: bool) {
    // The lease counts from before the request.
    let safe = if has_bug { LEASE } else { LEASE / 2 };
    loop {
        let asked = now();
        if let Ok(Ok(true)) = timeout(ms(300), ask(node)).await {
            leads.set(true);
            let rest = (asked + safe).saturating_duration_since(now());
            // Renews after half of that time, and again as long as time remains.
            let until = now() + rest;
            sleep(rest / 2).await;
            while now() < until {
                let asked = now();
                let rest = until - asked;
                if let Ok(Ok(true)) = timeout(rest.min(ms(300)), ask(node)).await {
                    break;
                }
                sleep(ms(10).min(until.saturating_duration_since(now()))).await;
            }
            if now() >= until {
                leads.set(false);
            }
        } else {
            leads.set(false);
            sleep(ms(20)).await;
        }
    }
}

#[test]
fn two_leaders_at_once_are_found() {
    plant(
        "split brain",
        100,
        "one leader",
        |sim, has_bug| async move {
            let leads: [Rc<Cell<bool>>; 2] = Default::default();
            sim.host("keeper").start(keeper);
            for (index, name) in ["node-0", "node-1"].into_iter().enumerate() {
                let leads = leads[index].clone();
                let drift = sim.choose(2 * DRIFT as u64) as i32 - DRIFT;
                sim.host(name).clock().drift(drift);
                sim.host(name)
                    .start(move || node(index as u8, leads.clone(), has_bug));
            }
            let both = leads.clone();
            sim.always("one leader", move || !both.iter().all(|it| it.get()));
            for _ in 0..5 {
                sim.sleep(ms(sim.choose(3_000))).await;
                let which = ["node-0", "node-1"][sim.choose(2) as usize];
                let cut = sim.cut(&[which], &["keeper"]);
                sim.sleep(secs(4)).await;
                drop(cut);
            }
        },
    );
}
