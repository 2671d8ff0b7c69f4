//! [`Clock`] and [`Faults`]: the settings of a machine.

use std::time::Duration;

use super::links::of;
use crate::world::clock::MAX_DRIFT;
use crate::world::faults::Kind;
use crate::world::host_faults::HostFaults;
use crate::world::seconds::nanos;
use crate::world::thread::kernel as with_kernel;

/// The clock of a host, returned by [`Host::clock`](super::Host::clock). All timers there use it,
/// and so does [`time::now`](polder::time::now). Unless it is set, it shows the world's time.
///
/// The wall clock moves with it: `SystemTime::now` shows it, if
/// [`answer_for_libc`](super::answer_for_libc) makes the world answer. It can also be stepped
/// alone.
///
/// ```
/// use polder::time::{now, sleep};
/// use std::time::Duration;
///
/// polder_sim::check(0..1, |sim| async move {
///     let host = sim.host("fast");
///     host.clock().drift(500_000); // 1.5 times as fast.
///     let nap = host.start(|| async {
///         let start = now();
///         sleep(Duration::from_secs(3)).await;
///         now() - start
///     });
///     assert_eq!(nap.finished().await, polder_sim::Exit::Returned(Duration::from_secs(3)));
///     assert_eq!(sim.now(), Duration::from_secs(2));
/// });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Clock(pub(super) usize);

impl Clock {
    /// Sets the clock ahead by `offset`, immediately: timers that are due by then fire. (It cannot
    /// be set back, as a monotonic clock never is.)
    ///
    /// ```
    /// use polder::time::sleep;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let host = sim.host("host").start(|| sleep(Duration::from_secs(10)));
    ///     sim.sleep(Duration::from_secs(1)).await;
    ///     host.clock().offset(Duration::from_secs(60));
    ///     host.finished().within(Duration::from_millis(1)).await;
    /// });
    /// ```
    pub fn offset(self, offset: Duration) -> Clock {
        with_kernel(|kernel| kernel.core.set_clock(self.0, nanos(offset), None));
        self
    }

    /// Sets how much faster than the world's time the clock runs from now on, in millionths; a
    /// negative value makes it slower. [`Sim::quiesce`](super::Sim::quiesce) ends it.
    ///
    /// ```
    /// use polder::time::sleep;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.host("test").clock().drift(-500_000); // Half as fast.
    ///     sleep(Duration::from_secs(1)).await;
    ///     assert_eq!(sim.now(), Duration::from_secs(2));
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If it is not from -500,000 to 500,000. (Real clocks drift by less than 500.)
    #[track_caller]
    pub fn drift(self, parts_per_million: i32) -> Clock {
        assert!(
            (-MAX_DRIFT..=MAX_DRIFT).contains(&parts_per_million),
            "polder_sim: a drift is from -{MAX_DRIFT} to {MAX_DRIFT} millionths, not {parts_per_million}"
        );
        with_kernel(|kernel| kernel.core.set_clock(self.0, 0, Some(parts_per_million)));
        self
    }

    /// Steps only the wall clock ahead, immediately, as NTP does. Timers and
    /// [`time::now`](polder::time::now) are not affected. A step stays, even after
    /// [`Sim::quiesce`](super::Sim::quiesce).
    ///
    /// ```standalone_crate
    /// use polder::time::{now, sleep};
    /// use std::time::{Duration, SystemTime};
    ///
    /// polder_sim::answer_for_libc!();
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let host = sim.host("host").start(|| async {
    ///         let (start, date) = (now(), SystemTime::now());
    ///         sleep(Duration::from_secs(10)).await;
    ///         (now() - start, date.elapsed())
    ///     });
    ///     sim.sleep(Duration::from_secs(1)).await;
    ///     host.clock().wall_ahead(Duration::from_secs(60));
    ///     let (passed, by_date) = host.finished().within(Duration::from_secs(10)).await;
    ///     assert_eq!(passed, Duration::from_secs(10));
    /// #   if cfg!(all(target_os = "linux", target_pointer_width = "64")) {
    ///     assert_eq!(by_date.unwrap(), Duration::from_secs(70));
    /// #   }
    /// });
    /// ```
    pub fn wall_ahead(self, step: Duration) -> Clock {
        let step = i64::try_from(nanos(step)).unwrap_or(i64::MAX);
        with_kernel(|kernel| kernel.core.step_wall(self.0, step, false));
        self
    }

    /// Steps only the wall clock back, as [`wall_ahead`](Self::wall_ahead) steps it ahead, but not
    /// before 1970.
    ///
    /// ```standalone_crate
    /// use std::time::{Duration, SystemTime};
    ///
    /// polder_sim::answer_for_libc!();
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let date = SystemTime::now();
    ///     sim.host("test").clock().wall_behind(Duration::from_secs(60));
    ///     sim.sleep(Duration::from_secs(10)).await;
    /// #   if cfg!(all(target_os = "linux", target_pointer_width = "64")) {
    ///     let behind = date.elapsed().unwrap_err().duration();
    ///     assert_eq!(behind, Duration::from_secs(50));
    /// #   }
    /// });
    /// ```
    pub fn wall_behind(self, step: Duration) -> Clock {
        let step = i64::try_from(nanos(step)).unwrap_or(i64::MAX);
        with_kernel(|kernel| kernel.core.step_wall(self.0, -step, false));
        self
    }
}

/// Faults of a host's kernel, returned by [`Host::faults`](super::Host::faults). They are off
/// unless they are set; each but [`late`](Self::late) has a probability from 0 to 1.
/// [`Sim::quiesce`](super::Sim::quiesce) ends them.
///
/// ```
/// polder_sim::check(0..1, |sim| async move {
///     sim.host("server").faults().short(0.2).spurious(0.05).exhausted(0.01);
/// });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Faults(pub(super) usize);

impl Faults {
    /// Sets the probability that a connection is gone when it is accepted (`ECONNABORTED`): its
    /// peer had established it, and finds it reset. `accept` continues with the next one.
    ///
    /// ```
    /// use polder::io::AsyncReadExt;
    /// use polder::net::{TcpListener, TcpStream};
    /// use std::io::ErrorKind;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.host("server").faults().aborted(1.0);
    ///     sim.host("server").start(|| async {
    ///         TcpListener::bind("0.0.0.0:1").await?.accept().await
    ///     });
    ///     sim.sleep(std::time::Duration::from_secs(1)).await; // It listens.
    ///     let mut stream = TcpStream::connect("server:1").await?;
    ///     let error = stream.read(&mut [0]).await.unwrap_err();
    ///     assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the probability is not from 0 to 1.
    #[track_caller]
    pub fn aborted(self, probability: f64) -> Faults {
        self.set(Kind::Aborted, probability)
    }

    /// Sets the probability that no descriptor is left (`EMFILE`) when a socket is created or
    /// accepted, or a file of [`fs`](polder::fs) is opened.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let faults = sim.host("test").faults().exhausted(1.0);
    ///     assert!(UdpSocket::bind("0.0.0.0:1").await.is_err());
    ///     faults.exhausted(0.0);
    ///     assert!(UdpSocket::bind("0.0.0.0:1").await.is_ok());
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the probability is not from 0 to 1.
    #[track_caller]
    pub fn exhausted(self, probability: f64) -> Faults {
        self.set(Kind::Exhausted, probability)
    }

    /// Sets the probability that a read returns, or a write takes, less than it could, but at least
    /// one byte; for TCP and Unix streams.
    ///
    /// ```
    /// use polder::io::AsyncWriteExt;
    /// use polder::net::{TcpListener, TcpStream};
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let mut stream = TcpStream::connect(listener.local_addr()?).await?;
    ///     sim.host("test").faults().short(1.0);
    ///     assert!((1..5).contains(&stream.write(b"hello").await?));
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the probability is not from 0 to 1.
    #[track_caller]
    pub fn short(self, probability: f64) -> Faults {
        self.set(Kind::Short, probability)
    }

    /// Sets the probability that an event reports a socket as readable and writable although it may
    /// not be.
    ///
    /// ```
    /// use polder::net::UdpSocket;
    ///
    /// polder_sim::check(0..10, |sim| async move {
    ///     sim.host("test").faults().spurious(1.0);
    ///     let socket = UdpSocket::bind("0.0.0.0:7").await?;
    ///     socket.send_to(b"hello", "test:7").await?;
    ///     assert_eq!(socket.recv(&mut [0; 8]).await?, 5); // The program does not notice.
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the probability is not from 0 to 1.
    #[track_caller]
    pub fn spurious(self, probability: f64) -> Faults {
        self.set(Kind::Spurious, probability)
    }

    /// Makes timers fire late, by up to `most`: when a worker waits for its earliest timer, its
    /// kernel wakes it later, by a time that the seed draws. (If something else wakes the worker
    /// first, it finds the timers that are due by then.) A timer that is already waited for when
    /// this is called is on time.
    ///
    /// ```
    /// use polder::time::{now, sleep};
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..10, |sim| async move {
    ///     let host = sim.host("host");
    ///     host.faults().late(Duration::from_millis(50));
    ///     let nap = host.start(|| async {
    ///         let start = now();
    ///         sleep(Duration::from_secs(1)).await;
    ///         now() - start
    ///     });
    ///     let took = nap.finished().within(Duration::from_secs(2)).await;
    ///     let most = Duration::from_millis(1_050);
    ///     assert!(Duration::from_secs(1) <= took && took <= most);
    /// });
    /// ```
    pub fn late(self, most: Duration) -> Faults {
        self.change(|own| own.late = nanos(most))
    }

    #[track_caller]
    pub(super) fn set(self, kind: Kind, probability: f64) -> Faults {
        let probability = of(probability);
        self.change(|own| own.set(kind, probability))
    }

    pub(super) fn change(self, f: impl FnOnce(&mut HostFaults)) -> Faults {
        with_kernel(|kernel| kernel.core.host_faults.change(self.0, f));
        self
    }
}
