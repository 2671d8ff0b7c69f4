//! `polder::test!` as an attribute, with the crate macro_rules_attribute.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use macro_rules_attribute::apply;
use polder::Backend;
use polder::net::{TcpListener, TcpStream};

static RUNS: AtomicUsize = AtomicUsize::new(0);

/// Runs once on each backend, whether or not it has run before.
#[apply(polder::test!)]
async fn a_test_with_the_attribute_runs_on_each_backend() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let _client = TcpStream::connect(listener.local_addr()?).await?;
    listener.accept().await?;
    RUNS.fetch_add(1, SeqCst);
    Ok(())
}

#[test]
fn it_has_run_as_often_as_there_are_backends() {
    let before = RUNS.load(SeqCst);
    a_test_with_the_attribute_runs_on_each_backend();
    // The harness may run it concurrently.
    assert!(RUNS.load(SeqCst) >= before + Backend::available().len());
}

#[apply(polder::test!)]
#[should_panic = "on purpose"]
async fn a_panic_fails_with_the_attribute() {
    panic!("on purpose");
}
