//! `chat`: clients that talk, and leave.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use polder::Backend;

use crate::support::*;

struct Client(BufReader<TcpStream>);

impl Client {
    fn new(greeting: &str) -> Client {
        let address = greeting.strip_prefix("listening on ").expect("an address");
        Client(BufReader::new(connect(
            address.parse().expect("an address"),
        )))
    }

    fn name(&self) -> String {
        name(self.0.get_ref())
    }

    fn says(&mut self, line: &str) {
        writeln!(self.0.get_ref(), "{line}").expect("a write");
    }

    fn hears(&mut self, expected: &str) {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line");
        assert_eq!(line.trim_end(), expected);
    }
}

/// A line goes to all others in order and so does who comes and leaves.
#[test]
fn line_goes_to_others_in_order() {
    for backend in Backend::available() {
        let mut server = on(backend, with_arguments("chat", ["127.0.0.1:0"]));
        let greeting = server.line();
        let mut one = Client::new(&greeting);
        let mut two = Client::new(&greeting);
        let mut three = Client::new(&greeting);
        // In the order in which they connected: each is there before the next one is accepted.
        for new in [&two, &three] {
            one.hears(&format!("{}: is here", new.name()));
        }
        two.hears(&format!("{}: is here", three.name()));
        // More than a queue holds, from one client at once.
        for number in 0..1_100 {
            one.says(&format!("line {number}"));
        }
        for other in [&mut two, &mut three] {
            for number in 0..1_100 {
                other.hears(&format!("{}: line {number}", one.name()));
            }
        }
        three.says("bye");
        let bye = format!("{}: bye", three.name());
        let left = format!("{}: has left", three.name());
        drop(three);
        for other in [&mut one, &mut two] {
            other.hears(&bye);
            other.hears(&left);
        }
        server.interrupt();
        server.ended_well();
    }
}
