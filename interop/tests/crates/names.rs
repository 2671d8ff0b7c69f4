//! The name of an address by dns-lookup: a call of the system's, on a thread of the pool.

use std::net::{IpAddr, Ipv4Addr};

use polder::net::resolve;
use polder::unblock;

use crate::everywhere;

#[test]
fn dns_lookup_finds_the_name_of_an_address() {
    everywhere(|_| async {
        let address = IpAddr::from(Ipv4Addr::LOCALHOST);
        let name = unblock(move || dns_lookup::lookup_addr(&address)).await;
        let name = name.expect("the hosts file has it");
        let found = resolve((&*name, 80)).await.expect("it leads back");
        assert!(found.iter().any(|found| found.ip().is_loopback()), "{name}");
    });
}
