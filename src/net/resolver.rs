//! Name lookups. The system's resolver blocks, so it is called on threads of the
//! [pool](crate::pool), some of which are reserved for this.

use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use crate::pool::{Class, POOL};

/// Asks the system's resolver. If the future is dropped before a thread has begun, the lookup is
/// never made.
pub(super) async fn look_up(host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    let call = POOL.call(Class::Lookup, move || ask(&host, port))?;
    let answer = poll_fn(|cx| call.poll(cx)).await;
    answer.unwrap_or_else(|| Err(io::Error::other("the name lookup panicked")))
}

fn ask(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match (host, port).to_socket_addrs() {
        Ok(addresses) => Ok(addresses.collect()),
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!("cannot resolve {host:?}: {error}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::block_on;

    /// More lookups at once than there may be threads, some of which are cancelled.
    #[test]
    fn every_lookup_is_answered() {
        let lookups: Vec<_> = (0..256)
            .map(|port| {
                let lookup = look_up("127.0.0.1".into(), port);
                (port, std::thread::spawn(move || block_on(lookup)))
            })
            .collect();
        for _ in 0..64 {
            let mut lookup = Box::pin(look_up("localhost".into(), 1));
            block_on(futures_lite::future::poll_once(&mut lookup));
        }
        for (port, lookup) in lookups {
            let addresses = lookup.join().unwrap().unwrap();
            assert_eq!(addresses, [SocketAddr::from(([127, 0, 0, 1], port))]);
        }
    }
}
