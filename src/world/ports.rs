//! [`Ports`]: the sockets of one protocol that are bound to each port of a host.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use super::errno::Errno;
use super::hosts::Hosts;
use super::table::Table;

#[derive(Debug, Default)]
pub(super) struct Ports(BTreeMap<(usize, u16), Vec<u32>>);

impl Ports {
    pub(super) fn at(&self, host: usize, port: u16) -> &[u32] {
        self.0.get(&(host, port)).map_or(&[], Vec::as_slice)
    }

    pub(super) fn is_free(&self, host: usize, port: u16) -> bool {
        self.at(host, port).is_empty()
    }

    pub(super) fn add(&mut self, host: usize, port: u16, number: u32) {
        self.0.entry((host, port)).or_default().push(number);
    }

    pub(super) fn remove(&mut self, host: usize, port: u16, number: u32) {
        if let Some(others) = self.0.get_mut(&(host, port)) {
            others.retain(|other| *other != number);
            if others.is_empty() {
                self.0.remove(&(host, port));
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets all ports of a host.
    pub(super) fn forget(&mut self, host: usize) {
        self.0.retain(|(other, _), _| *other != host);
    }

    /// Returns the address of a new socket that is bound to `local`: with a port for which
    /// `is_free` is true, if it asks for any.
    pub(super) fn bind(
        &self,
        host: usize,
        mut local: SocketAddr,
        table: &Table,
        hosts: &mut Hosts,
        is_free: impl Fn(&Hosts, u16) -> bool,
    ) -> io::Result<SocketAddr> {
        let ip = local.ip();
        if !hosts.may_bind(host, local) {
            return Err(Errno::ADDRNOTAVAIL.into());
        }
        if local.port() == 0 {
            local.set_port(hosts.free_port(host, is_free)?);
        }
        let others = self.at(host, local.port()).iter();
        let mut others = others.filter_map(|number| table.local_ip(*number));
        if others.any(|other| other == ip || other.is_unspecified() || ip.is_unspecified()) {
            return Err(Errno::ADDRINUSE.into());
        }
        Ok(local)
    }
}
