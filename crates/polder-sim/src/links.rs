//! [`Links`]: the network between hosts, as a test sets it; and its faults, [`Cut`] and [`Hold`].

use crate::world;
use crate::world::choice::Probability;
use crate::world::latency::Latency;
use crate::world::link::{Bursts, Settings};
use crate::world::parting::{How, PartingId};
use crate::world::thread::{StaysHere, kernel as with_kernel};

/// A set of links between hosts, to be configured; returned by [`Sim::links`](super::Sim::links)
/// and [`Sim::link`](super::Sim::link).
///
/// ```
/// use polder_sim::Latency;
/// use std::time::Duration;
///
/// polder_sim::check(0..1, |sim| async move {
///     let (near, far) = (Duration::from_millis(1), Duration::from_millis(80));
///     sim.links().latency(Latency::uniform(near..far)).loss(0.02);
///     sim.host("store");
///     sim.link("test", "store").loss(0.0);
/// });
/// ```
#[derive(Clone, Debug)]
pub struct Links(pub(super) Vec<Option<(usize, usize)>>);

impl Links {
    /// Sets how long segments take. The default is 0.5 to 2 ms.
    ///
    /// ```
    /// use polder::net::TcpStream;
    /// use polder_sim::Latency;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.host("server");
    ///     sim.link("test", "server").latency(Latency::fixed(Duration::from_secs(1)));
    ///     let server = (sim.host("server").address(), 1);
    ///     assert!(TcpStream::connect(server).await.is_err()); // Refused, in one round trip.
    ///     assert_eq!(sim.now(), Duration::from_secs(2));
    /// });
    /// ```
    pub fn latency(self, latency: Latency) -> Links {
        self.change(|link| link.latency = latency)
    }

    /// Sets the probability that a segment or a datagram is lost. The default is zero. A loss
    /// delays a TCP connection, and only many in a row break it. A probability above 0.5 usually
    /// causes that; the report of a failure then mentions it.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    /// use polder::time::timeout;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.links().loss(1.0);
    ///     let near = UdpSocket::bind("0.0.0.0:7").await?;
    ///     sim.host("far").start(|| async {
    ///         UdpSocket::bind("0.0.0.0:0").await?.send_to(b"lost", "test:7").await
    ///     });
    ///     let answer = timeout(Duration::from_secs(60), near.recv(&mut [0; 8])).await;
    ///     assert!(answer.is_err());
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the probability is not from 0 to 1.
    #[track_caller]
    pub fn loss(self, probability: f64) -> Links {
        let loss = of(probability);
        // A certain loss is a cut, which is intended.
        if loss > of(0.5) && !loss.is_certain() {
            let words = "a loss of more than 0.5 was set: TCP hardly lives with that, and gives up \
                         after some tries";
            with_kernel(|kernel| kernel.core.report.remarks.insert(words));
        }
        self.change(|link| link.loss = loss)
    }

    /// Adds bursts of losses: with this probability, each segment or datagram that is sent begins a
    /// burst, in which everything is lost. A burst ends after `mean` losses on average. By default
    /// there are none. [`loss`](Self::loss) applies in addition, and
    /// [`Sim::quiesce`](super::Sim::quiesce) ends both. Bursts lose `probability * mean / (1 +
    /// probability * mean)` of everything that is sent.
    ///
    /// Each loss is a separate fault with a number. (On a connection that sends nothing else, a
    /// burst also takes retransmissions, as many as it is long. With a long burst the connection
    /// may take minutes to recover, or break.)
    ///
    /// ```
    /// polder_sim::check(0..1, |sim| async move {
    ///     // One in a hundred, as `loss(0.01)`, but five in a row.
    ///     sim.links().bursts(0.002, 5);
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the probability is not from 0 to 1, or the mean is zero.
    #[track_caller]
    pub fn bursts(self, probability: f64, mean: u32) -> Links {
        let begin = of(probability);
        assert!(mean > 0, "polder_sim: a burst is of one loss at least");
        let end = Probability::one_in(mean);
        let bursts = (begin > Probability::default()).then_some(Bursts { begin, end });
        self.change(|link| link.bursts = bursts)
    }

    /// Sets the probability that a UDP datagram arrives twice. The default is zero.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.links().duplication(1.0);
    ///     let near = UdpSocket::bind("0.0.0.0:7").await?;
    ///     sim.host("far").start(|| async {
    ///         let socket = UdpSocket::bind("0.0.0.0:0").await?;
    ///         socket.send_to(b"twice", "test:7").await
    ///     });
    ///     for _ in 0..2 {
    ///         assert_eq!(near.recv(&mut [0; 8]).await?, 5);
    ///     }
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the probability is not from 0 to 1.
    #[track_caller]
    pub fn duplication(self, probability: f64) -> Links {
        let duplication = of(probability);
        self.change(|link| link.duplication = duplication)
    }

    /// Sets the probability that a UDP datagram takes longer than later ones, by its latency once
    /// more and up to 5 ms. The default is zero: datagrams arrive in the order in which they were
    /// sent.
    ///
    /// ```
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.links().loss(0.01).duplication(0.01).reordering(0.1);
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the probability is not from 0 to 1.
    #[track_caller]
    pub fn reordering(self, probability: f64) -> Links {
        let reordering = of(probability);
        self.change(|link| link.reordering = reordering)
    }

    /// Sets how many bytes a link carries per second, in each direction, headers included. By
    /// default there is no limit. Data that has to wait is queued, up to 256 KiB; the rest is lost.
    ///
    /// ```
    /// use polder::io::{AsyncReadExt, AsyncWriteExt};
    /// use polder::net::{TcpListener, TcpStream};
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let far = sim.host("far").start(|| async {
    ///         let (mut stream, _) = TcpListener::bind("0.0.0.0:1").await?.accept().await?;
    ///         stream.read_to_end(&mut Vec::new()).await
    ///     });
    ///     sim.link("test", "far").bandwidth(10_000);
    ///     sim.sleep(Duration::from_millis(1)).await;
    ///     TcpStream::connect("far:1").await?.write_all(&[7; 50_000]).await?;
    ///     assert_eq!(far.finished().within(Duration::from_secs(60)).await?, 50_000);
    ///     assert!(sim.now() > Duration::from_secs(5));
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If it is zero: use a [cut](super::Sim::cut) for that.
    #[track_caller]
    pub fn bandwidth(self, bytes_per_second: u64) -> Links {
        assert!(
            bytes_per_second > 0,
            "polder_sim: a link without bandwidth carries nothing: cut it"
        );
        self.change(|link| link.bandwidth = Some(bytes_per_second))
    }

    /// Removes a [`bandwidth`](Self::bandwidth). Queued data still arrives at the time that was
    /// computed for it, and later data on the same connection does not overtake it.
    ///
    /// ```
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.host("far");
    ///     sim.links().bandwidth(10_000);
    ///     sim.link("test", "far").unlimited();
    /// });
    /// ```
    pub fn unlimited(self) -> Links {
        self.change(|link| link.bandwidth = None)
    }

    fn change(self, f: impl Fn(&mut Settings)) -> Links {
        with_kernel(|kernel| {
            for link in &self.0 {
                kernel.core.links.change(*link, &f);
            }
        });
        self
    }
}

/// Converts a probability that a test has set.
#[track_caller]
pub(super) fn of(probability: f64) -> Probability {
    let valid = Probability::new(probability);
    valid.unwrap_or_else(|| panic!("polder_sim: a probability is from 0 to 1, not {probability}"))
}

/// Separates hosts for as long as this exists. Returned by [`Sim::cut`](super::Sim::cut). Like
/// [`Hold`] and [`Pause`](super::Pause), it stays on its world's thread.
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<polder_sim::Cut>();
/// ```
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<polder_sim::Pause>();
/// ```
#[must_use = "the cut heals when it is dropped"]
#[derive(Debug)]
pub struct Cut(pub(super) Parting);

impl Cut {
    /// Loses only what the first hosts send to the others.
    ///
    /// ```
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.host("a");
    ///     sim.host("b");
    ///     let cut = sim.cut(&["a"], &["b"]).one_way();
    ///     drop(cut);
    /// });
    /// ```
    pub fn one_way(self) -> Cut {
        with_kernel(|kernel| kernel.core.make_one_way(self.0.0));
        self
    }

    /// Adds a router that reports the hosts on the other side as unreachable. Connecting to them
    /// fails within a millisecond, with [`HostUnreachable`](std::io::ErrorKind::HostUnreachable),
    /// instead of being retried for two minutes. As on Linux, existing connections are not ended by
    /// it; they report this error when they time out. Datagrams are lost silently.
    ///
    /// ```
    /// use polder::net::TcpStream;
    /// use std::io::ErrorKind;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.host("server");
    ///     let cut = sim.cut(&["test"], &["server"]).unreachable();
    ///     let error = TcpStream::connect("server:80").await.unwrap_err();
    ///     assert_eq!(error.kind(), ErrorKind::HostUnreachable);
    ///     drop(cut);
    ///     let error = TcpStream::connect("server:80").await.unwrap_err();
    ///     assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    /// });
    /// ```
    pub fn unreachable(self) -> Cut {
        with_kernel(|kernel| kernel.core.make_unreachable(self.0.0));
        self
    }
}

/// A hold: everything that the hosts send to each other is kept, and delivered when this is
/// dropped. Returned by [`Sim::hold`](super::Sim::hold).
///
/// ```
/// polder_sim::check(0..1, |sim| async move {
///     sim.host("a");
///     sim.host("b");
///     let hold = sim.hold(&["a"], &["b"]);
///     sim.sleep(std::time::Duration::from_secs(1)).await;
///     drop(hold);
/// });
/// ```
#[must_use = "everything is delivered when it is dropped"]
#[derive(Debug)]
pub struct Hold(pub(super) Parting);

impl Hold {
    /// Keeps only what the first hosts send to the others.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let near = UdpSocket::bind("0.0.0.0:7").await?;
    ///     sim.host("far").start(|| async {
    ///         UdpSocket::bind("0.0.0.0:0").await?.send_to(b"there", "test:7").await
    ///     });
    ///     let _hold = sim.hold(&["test"], &["far"]).one_way();
    ///     assert_eq!(near.recv(&mut [0; 8]).await?, 5); // This direction is not held.
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn one_way(self) -> Hold {
        with_kernel(|kernel| kernel.core.make_one_way(self.0.0));
        self
    }
}

/// Separates hosts until it is dropped. (Then it does nothing if the world has ended.)
#[derive(Debug)]
pub(super) struct Parting(PartingId, StaysHere);

impl Parting {
    #[track_caller]
    pub(super) fn begin(these: &[&str], others: &[&str], how: How) -> Parting {
        let (these, others) = (find_all(these), find_all(others));
        let id = with_kernel(|kernel| kernel.part(&these, &others, how));
        Parting(id, StaysHere::default())
    }
}

impl Drop for Parting {
    fn drop(&mut self) {
        world::thread::with(|kernel| kernel.core.rejoin(self.0));
    }
}

#[track_caller]
pub(super) fn find(name: &str) -> usize {
    let host = with_kernel(|kernel| kernel.core.hosts.find(name));
    host.unwrap_or_else(|| panic!("polder_sim: no host is called {name:?}"))
}

#[track_caller]
fn find_all(names: &[&str]) -> Vec<usize> {
    names.iter().map(|name| find(name)).collect()
}
