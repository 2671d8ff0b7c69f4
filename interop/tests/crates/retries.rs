//! Retries by backon, which waits by polder's timer.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use backon::{ExponentialBuilder, Retryable};
use polder::net::unix::{UnixListener, UnixStream};

use crate::everywhere;

#[test]
fn backon_connects_again_until_there_is_a_server() {
    everywhere(|_| async {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("server");
        let (mut waits, mut listener) = (Vec::new(), None);
        let backoff = ExponentialBuilder::default().with_min_delay(Duration::from_millis(1));
        let start = Instant::now();
        let connect = || UnixStream::connect(&path);
        let connected = connect
            .retry(backoff.with_max_times(5))
            .sleep(polder::time::sleep)
            .when(|error| error.kind() == ErrorKind::NotFound)
            .notify(|_, wait| {
                waits.push(wait);
                if waits.len() == 3 {
                    listener = Some(UnixListener::bind(&path));
                }
            })
            .await;
        connected.expect("the server has come");
        assert_eq!(waits, [1, 2, 4].map(Duration::from_millis));
        assert!(start.elapsed() >= waits.iter().sum::<Duration>());
        assert!(listener.is_some_and(|listener| listener.is_ok()));
    });
}
