//! Addresses of names: both families, several addresses, and in another order.

use std::io::{ErrorKind, Result};
use std::net::IpAddr;

use polder::io::AsyncReadExt;
use polder::net::{TcpListener, TcpStream, resolve};
use polder::time::{now, sleep};
use polder_sim::Sim;

use super::ms;

async fn addresses(name: &str) -> Result<Vec<IpAddr>> {
    let found = resolve((name, 80)).await?;
    Ok(found.iter().map(|it| it.ip()).collect())
}

/// Sends a byte to each client.
async fn serve(address: &'static str, byte: u8) {
    let listener = TcpListener::bind(address).await.unwrap();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        polder::io::AsyncWriteExt::write_all(&mut stream, &[byte])
            .await
            .unwrap();
    }
}

async fn ask(name: &str) -> Result<u8> {
    let mut byte = [0];
    let mut stream = TcpStream::connect((name, 80)).await?;
    stream.read_exact(&mut byte).await?;
    Ok(byte[0])
}

/// A name has the addresses of the families that the test says.
#[test]
fn name_has_addresses_of_given_families() {
    polder_sim::check(0..3, |sim| async move {
        let store = sim.host("store");
        let (v4, v6) = (store.address(), store.address_v6());
        assert!(v4.is_ipv4() && v6.is_ipv6());
        assert_eq!(addresses("store").await?, [v4]);
        sim.names().both();
        assert_eq!(addresses("store").await?, [v4, v6]);
        sim.names().v6_first();
        assert_eq!(addresses("store").await?, [v6, v4]);
        let local = addresses("localhost").await?;
        assert!(local[0].is_ipv6() && local.iter().all(IpAddr::is_loopback));
        sim.names().set("store", [v4]);
        assert_eq!(addresses("store").await?, [v4]);
        Result::Ok(())
    });
}

/// A client goes on to the next address where the first one is dead.
#[test]
fn client_tries_next_address() {
    polder_sim::check(0..10, |sim: Sim| async move {
        let v4 = sim.host("v4").start(|| serve("0.0.0.0:80", 4));
        let v6 = sim.host("v6").start(|| serve("[::]:80", 6));
        sleep(ms(1)).await;
        // The first address has no listener.
        sim.names().v6_first();
        assert_eq!(ask("v4").await?, 4);
        assert_eq!(ask("v6").await?, 6);
        // A router reports that the first address is unreachable.
        sim.names().set("store", [v4.address(), v6.address_v6()]);
        let cut = sim.cut(&["test"], &["v4"]).unreachable();
        let start = now();
        assert_eq!(ask("store").await?, 6);
        assert!(now() - start < ms(50));
        drop(cut);
        assert_eq!(ask("store").await?, 4);
        // The first address does not answer.
        v4.power_off();
        assert_eq!(ask("store").await?, 6);
        Result::Ok(())
    });
}

/// An answer in another order is a fault that begins with another address.
#[test]
fn reordered_answer_is_a_fault() {
    let orders = |seed: u64, probability: f64| {
        let report = polder_sim::run(seed, move |sim| async move {
            let hosts = ["a", "b", "c"].map(|it| sim.host(it).address());
            sim.names().set("store", hosts).reordered(probability);
            let mut others = 0;
            for _ in 0..20 {
                let mut found = addresses("store").await.unwrap();
                others += usize::from(found[0] != hosts[0]);
                found.sort_unstable();
                assert_eq!(found, hosts);
            }
            sim.quiesce();
            assert_eq!(addresses("store").await.unwrap(), hosts);
            // For the list of faults.
            Err::<(), String>(format!("{others} others"))
        });
        report.failure.unwrap()
    };
    // A certain event is not a fault.
    let all = orders(1, 1.0);
    assert!(
        all.contains("20 others") && !all.contains("a question"),
        "{all}"
    );
    let half = orders(1, 0.5);
    assert!(
        half.contains("a question for a name is answered in another order"),
        "{half}"
    );
    assert!(
        !half.contains("20 others") && !half.contains(" 0 others"),
        "{half}"
    );
    assert!(!orders(1, 0.0).contains("in another order"));
}

/// By default a name resolves to the IPv4 address only.
#[test]
fn default_answer_is_v4_only() {
    polder_sim::check(0..3, |sim| async move {
        sim.host("v6").start(|| serve("[::]:80", 6));
        sleep(ms(1)).await;
        assert_eq!(addresses("v6").await?.len(), 1);
        let nobody = addresses("nobody").await.unwrap_err();
        assert_eq!(nobody.kind(), ErrorKind::Other);
        Result::Ok(())
    });
}
