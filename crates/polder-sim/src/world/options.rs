//! [`Options`]: the options of a simulated socket.

use std::io;
use std::time::Duration;

use polder::kernel::sockets::TcpOption;

use super::errno::Errno;

/// The options of a socket: read back as they were set, and refused where Linux refuses them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    pub(crate) linger: Option<Duration>,
    pub(crate) nodelay: bool,
    pub(crate) ttl: u32,
    pub(crate) broadcast: bool,
    pub(crate) keepalive: bool,
    pub(super) keep_idle: u32,
    pub(super) keep_interval: u32,
    pub(super) keep_count: u32,
    pub(super) user_timeout: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            linger: None,
            nodelay: false,
            ttl: 64,
            broadcast: false,
            keepalive: false,
            keep_idle: 7_200,
            keep_interval: 75,
            keep_count: 9,
            user_timeout: 0,
        }
    }
}

impl Options {
    /// Sets the linger time, in whole seconds as a kernel does.
    pub(crate) fn set_linger(&mut self, linger: Option<Duration>) {
        self.linger = linger.map(|linger| Duration::from_secs(linger.as_secs()));
    }

    pub(crate) fn set_ttl(&mut self, ttl: u32) -> io::Result<()> {
        // ip(7): IP_TTL.
        if !(1..=255).contains(&ttl) {
            return Err(Errno::INVAL.into());
        }
        self.ttl = ttl;
        Ok(())
    }

    pub(crate) fn tcp(&mut self, option: TcpOption) -> &mut u32 {
        match option {
            TcpOption::KeepIdle => &mut self.keep_idle,
            TcpOption::KeepInterval => &mut self.keep_interval,
            TcpOption::KeepCount => &mut self.keep_count,
            TcpOption::UserTimeout => &mut self.user_timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options that Linux refuses change nothing, and times are rounded to whole seconds.
    #[test]
    fn refused_options_change_nothing() {
        let mut options = Options::default();
        for ttl in [0, 256] {
            assert!(options.set_ttl(ttl).is_err());
        }
        assert_eq!(options, Options::default());
        options.set_ttl(255).expect("it is the largest");
        options.set_linger(Some(Duration::from_millis(1_999)));
        assert_eq!(
            (options.ttl, options.linger),
            (255, Some(Duration::from_secs(1)))
        );
        *options.tcp(TcpOption::KeepCount) = 3;
        assert_eq!(options.keep_count, 3);
    }
}
