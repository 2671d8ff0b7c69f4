// tests/world.rs
use frames::{receive, send};
use polder::net::{TcpListener, TcpStream};
use polder::time::timeout;
use std::{io::Result, time::Duration};

async fn server() -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:7000").await?;
    let (mut stream, _) = listener.accept().await?;
    while let Ok(message) = receive(&mut stream).await {
        send(&mut stream, &message).await?;
    }
    Ok(())
}

#[test]
fn messages_arrive_whole() {
    const MINUTE: Duration = Duration::from_secs(60);
    polder_sim::check(0..100, |sim| async move {
        sim.host("server").start(server);
        sim.chaos(MINUTE).loss().cuts().short();
        let mut stream = TcpStream::connect("server:7000").await?;
        for length in [0, 1, 1_000, 65_535] {
            let message = vec![length as u8; length];
            send(&mut stream, &message).await?;
            let answer = timeout(10 * MINUTE, receive(&mut stream)).await??;
            assert_eq!(answer, message);
        }
        Result::Ok(())
    });
}
