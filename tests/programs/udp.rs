//! `udp`: the client against a server that loses, repeats and is late; and the server.

use std::net::{SocketAddr, UdpSocket};

use polder::Backend;

use crate::support::*;

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(LIMIT)).expect("a limit");
    socket
}

/// Returns a datagram as text, and its sender.
fn receive(socket: &UdpSocket) -> (String, SocketAddr) {
    let mut bytes = [0; 100];
    let (length, from) = uninterrupted(|| socket.recv_from(&mut bytes)).expect("a datagram");
    let text = String::from_utf8_lossy(&bytes[..length]);
    (text.into_owned(), from)
}

/// A question is repeated until its own answer comes from the server.
#[test]
fn question_repeated_until_own_answer() {
    for backend in Backend::available() {
        let (server, stranger) = (socket(), socket());
        let address = server.local_addr().expect("an address").to_string();
        let mut client = on(backend, with_arguments("udp", [address]));
        for _lost in 0..2 {
            assert_eq!(receive(&server).0, "0 one");
        }
        let (question, from) = receive(&server);
        assert_eq!(question, "0 one");
        stranger.send_to(b"0 lies", from).expect("it is sent");
        for _twice in 0..2 {
            server.send_to(b"0 first", from).expect("it is sent");
        }
        assert_eq!(client.line(), "first");
        for (question, answer) in [("1 two", "1 second"), ("2 three", "2 third")] {
            while receive(&server).0 != question {}
            server.send_to(answer.as_bytes(), from).expect("it is sent");
            assert_eq!(client.line(), answer[2..]);
        }
        client.ended_well();
    }
}

#[test]
fn the_server_answers_each_datagram() {
    for backend in Backend::available() {
        let mut server = on(backend, command("udp"));
        let line = server.line();
        let address = line.strip_prefix("listening on ").expect("an address");
        let client = socket();
        for question in ["7 hello", "7 hello", "8 again"] {
            client
                .send_to(question.as_bytes(), address)
                .expect("it is sent");
            assert_eq!(receive(&client).0, question.to_uppercase());
        }
    }
}

#[test]
fn the_client_gives_up_where_no_server_is() {
    let nobody = socket().local_addr().expect("an address").to_string();
    fails("udp", [nobody], &["no answer after 6 questions"]);
}
