use polder::io::{AsyncReadExt, AsyncWriteExt, copy};
use polder::net::{TcpListener, TcpStream, serve};

async fn server() -> std::io::Result<()> {
    let listener = TcpListener::bind("0.0.0.0:7000").await?;
    serve(listener, |mut stream, _peer| async move {
        let (reader, writer) = stream.split();
        _ = copy(reader, writer).await;
    })
    .await?;
    Ok(())
}

#[test]
fn echo_survives_loss() {
    polder_sim::check(0..100, |sim| async move {
        sim.host("server").start(server);
        sim.links().loss(0.1);
        let mut stream = TcpStream::connect("server:7000").await?;
        stream.write_all(b"ping").await?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await?;
        assert_eq!(&answer, b"ping");
        std::io::Result::Ok(())
    });
}
