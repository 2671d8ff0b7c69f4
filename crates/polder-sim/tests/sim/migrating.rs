//! The tests of docs/MIGRATING.md, as printed there. (The tests that they replace are compiled and
//! run by benches/simulators, which depends on turmoil and madsim.)

mod from_turmoil {
    use polder::io::{AsyncReadExt, AsyncWriteExt};
    use polder::net::{TcpListener, TcpStream};
    use polder_sim::Sim;
    use std::io;
    use std::time::Duration;

    async fn server() -> io::Result<()> {
        let listener = TcpListener::bind("0.0.0.0:7000").await?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            polder::spawn(async move {
                let mut bytes = [0; 4];
                while stream.read_exact(&mut bytes).await.is_ok() {
                    stream.write_all(&bytes).await?;
                }
                io::Result::Ok(())
            })
            .detach();
        }
    }

    #[test]
    fn a_server_answers_after_a_partition() {
        polder_sim::check(0..100, |sim: Sim| async move {
            sim.host("server").start(server);
            // The test is a host itself. `start` a process where it needs another address.
            let cut = sim.cut(&["test"], &["server"]);
            let limit = Duration::from_millis(500);
            let late = TcpStream::connect_timeout("server:7000", limit).await;
            assert!(late.is_err());
            drop(cut);
            let mut stream = TcpStream::connect("server:7000").await?;
            stream.write_all(b"ping").await?;
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).await?;
            assert_eq!(&bytes, b"ping");
            io::Result::Ok(())
        });
    }
}

mod from_madsim {
    use polder::io::{AsyncReadExt, AsyncWriteExt};
    use polder::net::{TcpListener, TcpStream};
    use polder_sim::{Latency, Sim};
    use std::io;
    use std::time::Duration;

    async fn server() -> io::Result<()> {
        let listener = TcpListener::bind("0.0.0.0:7000").await?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            stream.write_all(b"hello").await?;
        }
    }

    async fn client() -> io::Result<[u8; 5]> {
        let mut stream = TcpStream::connect("server:7000").await?;
        let mut bytes = [0; 5];
        stream.read_exact(&mut bytes).await?;
        Ok(bytes)
    }

    #[test]
    fn a_server_is_there_again_after_a_crash() {
        polder_sim::check(0..100, |sim: Sim| async move {
            let ms = Duration::from_millis;
            sim.links().latency(Latency::uniform(ms(1)..ms(10)));
            let server = sim.host("server").start(server);
            sim.sleep(ms(10)).await;
            server.kill();
            server.restart();
            sim.sleep(ms(10)).await;
            let client = sim.host("client").start(client);
            let answer = client.finished().within(Duration::from_secs(5)).await;
            assert_eq!(&answer?, b"hello");
            io::Result::Ok(())
        });
    }
}

/// All polder code on the page must be in this file, line by line.
#[test]
fn the_page_shows_these_tests() {
    let without_margins = |text: &str| -> String {
        let lines = text.lines().map(str::trim).filter(|it| !it.is_empty());
        lines.map(|it| format!("{it}\n")).collect()
    };
    let page = include_str!("../../../../docs/MIGRATING.md");
    let ours = without_margins(include_str!("migrating.rs"));
    let shown = page.split("```rust\n").skip(1);
    let shown = shown.filter_map(|it| it.split("```").next());
    let shown: Vec<&str> = shown.filter(|it| it.contains("polder_sim")).collect();
    assert_eq!(shown.len(), 2);
    for code in shown {
        let code = without_margins(code);
        assert!(ours.contains(&code), "not in this file:\n{code}");
    }
}
