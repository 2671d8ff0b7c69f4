//! zbus: two peers, and a bus with an independent client.

use std::process::Command;
use std::time::Duration;

use polder::time::sleep;
use polder::unblock;
use polder_zbus::Runtime;
use zbus::connection::Builder;

use crate::everywhere;
use crate::shared::{Bus, client};

/// The interface that zbus serves on the bus.
struct Squares;

#[zbus::interface(name = "org.example.Squares")]
impl Squares {
    async fn square(&self, number: u32) -> u32 {
        // A wake-up by a task and by a timer, between the call and its answer.
        polder::spawn(sleep(Duration::from_micros(100))).await;
        number * number
    }
}

#[test]
fn zbus_talks_to_a_peer() {
    async fn call(number: u32) -> zbus::Result<u32> {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        let server = Builder::unix_stream(near)
            .runtime(Runtime::current())
            .server(zbus::Guid::generate())
            .p2p()
            .serve_at("/squares", Squares)
            .build();
        let client = Builder::unix_stream(far).runtime(Runtime::current());
        let client = client.p2p().build();
        let (server, client) = polder::future::zip(server, client).await;
        let (_server, client) = (server?, client?);
        let (path, interface) = ("/squares", Some("org.example.Squares"));
        let reply = client.call_method(None::<&str>, path, interface, "Square", &number);
        reply.await?.body().deserialize()
    }
    everywhere(|_| async move {
        for number in 0..100 {
            let square = call(number).await.expect("it answers");
            assert_eq!(square, number * number);
        }
    });
}

/// The names and the messages pass through a real bus; the last client is dbus-send.
#[test]
fn zbus_serves_its_clients_and_dbus_send_on_a_bus() {
    everywhere(|_| async {
        let (Some(bus), Some(_)) = (unblock(Bus::start).await, client("dbus-send")) else {
            return;
        };
        let connection = || Builder::address(&*bus.address).runtime(Runtime::current());
        let server = connection()
            .name("org.example.Squares")
            .serve_at("/squares", Squares);
        let server = server.build().await.expect("the bus takes it");
        let client = connection().build().await.expect("the bus takes it");
        let calls = (0..20_u32).map(|number| {
            let client = client.clone();
            polder::spawn(async move {
                let name = Some("org.example.Squares");
                let reply = client.call_method(name, "/squares", name, "Square", &number);
                let reply = reply.await.expect("an answer");
                let square: u32 = reply.body().deserialize().expect("a number");
                assert_eq!(square, number * number);
            })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await;
        }
        let mut command = Command::new("dbus-send");
        command.arg(format!("--bus={}", bus.address));
        command.args(["--print-reply=literal", "--dest=org.example.Squares"]);
        command.args(["/squares", "org.example.Squares.Square", "uint32:7"]);
        let output = unblock(move || command.output()).await.expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.trim(), "uint32 49", "{output:?}");
        server.close().await.expect("it can be closed");
    });
}
