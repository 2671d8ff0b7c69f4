//! Timers: sleeping, timeouts, intervals.
//!
//! A timer never fires early. It can be made, polled and dropped on any thread, and moves to the
//! worker that polls it. A deadline too far away to be represented never passes.
//!
//! ```
//! use polder::time::{interval, sleep, timeout};
//! use std::time::Duration;
//!
//! polder::block_on(async {
//!     let mut ticks = interval(Duration::from_millis(2));
//!     sleep(Duration::from_millis(1)).await;
//!     assert!(timeout(Duration::from_secs(5), ticks.tick()).await.is_ok());
//! });
//! ```
//!
//! # Which one to use
//!
//! * A single wait: [`sleep`], [`sleep_until`]. A limit for another future: [`timeout()`],
//!   [`timeout_at`].
//! * A period: [`interval()`], which ticks immediately and then every period;
//!   [`MissedTickBehavior`] says how missed ticks are treated.
//! * A deadline that changes while it is awaited, and programs that use async-io: [`Timer`]. Its
//!   [`interval`](Timer::interval) first fires after one period, and always bursts.
//!
//! # Retries
//!
//! Each attempt has a time limit and a new connection: on the old one, a late response would be
//! taken for that of the next request. The pauses double, up to a limit. The server may have
//! executed the request: give non-idempotent requests an idempotency key.
//!
//! ```
//! # #[cfg(feature = "net")] {
//! use polder::io::{AsyncReadExt, AsyncWriteExt, Result};
//! use polder::net::{SocketAddr, TcpStream};
//! use polder::time::{sleep, timeout};
//! use std::time::Duration;
//!
//! const LIMIT: Duration = Duration::from_secs(5);
//! const MAX_PAUSE: Duration = Duration::from_secs(30);
//!
//! async fn attempt(server: SocketAddr) -> Result<[u8; 2]> {
//!     let mut stream = TcpStream::connect_timeout(server, LIMIT).await?;
//!     let ask = async {
//!         stream.write_all(b"hi").await?;
//!         let mut answer = [0; 2];
//!         stream.read_exact(&mut answer).await?;
//!         Result::Ok(answer)
//!     };
//!     timeout(LIMIT, ask).await?
//! }
//!
//! async fn answer(server: SocketAddr) -> [u8; 2] {
//!     let mut pause = Duration::from_millis(100);
//!     loop {
//!         match attempt(server).await {
//!             Ok(answer) => return answer,
//!             Err(error) => eprintln!("{server}: {error}; again after {pause:?}"),
//!         }
//!         sleep(pause).await;
//!         pause = MAX_PAUSE.min(2 * pause);
//!     }
//! }
//! # polder::block_on(async {
//! #     let listener = polder::net::TcpListener::bind("127.0.0.1:0").await?;
//! #     let server = listener.local_addr()?;
//! #     polder::spawn(async move {
//! #         drop(listener.accept().await);
//! #         let (mut stream, _) = listener.accept().await.unwrap();
//! #         let mut request = [0; 2];
//! #         stream.read_exact(&mut request).await.unwrap();
//! #         stream.write_all(b"ho").await.unwrap();
//! #     })
//! #     .detach();
//! #     assert_eq!(&answer(server).await, b"ho");
//! #     std::io::Result::Ok(())
//! # })?;
//! # } std::io::Result::Ok(())
//! ```

mod interval;
mod timeout;
mod timer;

pub use interval::{Interval, MissedTickBehavior, interval, interval_at};
pub use timeout::{Elapsed, Timeout, timeout, timeout_at};
pub use timer::{Sleep, Timer, sleep, sleep_until};

use std::time::Instant;

/// Returns the current time of the clock that timers use: [`Instant::now`], or a simulated world's
/// time.
///
/// ```
/// use polder::time::{now, sleep_until};
/// use std::time::Duration;
///
/// let deadline = now() + Duration::from_millis(1);
/// polder::block_on(sleep_until(deadline));
/// assert!(now() >= deadline);
/// ```
#[doc(alias = "Instant")]
#[must_use]
pub fn now() -> Instant {
    if let Some(kernel) = crate::kernel::current() {
        kernel.reads_clock();
    }
    crate::clock::now()
}
