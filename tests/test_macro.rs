//! `polder::test!`: on every backend, with a limit that even a blocking test cannot outlast.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use polder::{Backend, Handle};

// A glob import of a macro called `test` does not break `#[test]`.
#[allow(unused_imports)]
use polder::*;

static SEEN: Mutex<Vec<Backend>> = Mutex::new(Vec::new());

mod made {
    use super::*;

    polder::test! {
        /// It has documentation.
        pub(super) async fn runs_on_every_backend() -> io::Result<()> {
            SEEN.lock().unwrap().push(Handle::current().backend());
            polder::time::sleep(Duration::from_millis(1)).await;
            Ok(())
        }

        #[should_panic = "the test returned an error: \"on purpose\""]
        async fn an_error_is_a_failure() -> Result<(), &'static str> {
            Err("on purpose")
        }
    }

    polder::test! {
        limit = Duration::from_millis(50);

        #[should_panic = "test_macro::made::waits_for_ever, on "]
        async fn waits_for_ever() {
            std::future::pending().await
        }

        #[should_panic = "not done after 50ms"]
        async fn blocks_its_thread() {
            loop {
                std::thread::park();
            }
        }
    }
}

#[test]
fn a_test_runs_once_on_each_backend() {
    made::runs_on_every_backend();
    let seen = SEEN.lock().unwrap().clone();
    for backend in Backend::available() {
        assert!(seen.contains(&backend), "not run on {backend}");
    }
}
