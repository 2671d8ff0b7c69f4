//! `polder::test!`: on every backend, or on those of `POLDER_BACKEND`, with a limit that even a
//! blocking test cannot outlast.

use std::io;
use std::process::{Command, Output};
use std::sync::Mutex;
use std::time::Duration;

use polder::{Backend, Handle};

// A glob import of a macro called `test` does not break `#[test]`.
#[allow(unused_imports)]
use polder::*;

const VARIABLE: &str = "POLDER_BACKEND";

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

        /// For the tests that start it again.
        async fn says_its_backend() {
            println!("on {}.", Handle::current().backend());
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
    let expected = match std::env::var_os(VARIABLE).filter(|names| !names.is_empty()) {
        Some(_) => Backend::list_from_env().unwrap(),
        None => Backend::available(),
    };
    for backend in expected {
        assert!(seen.contains(&backend), "not run on {backend}");
    }
}

/// Runs a test that prints its backend, with this value of the variable.
fn says_its_backend(names: &str) -> Output {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "made::says_its_backend", "--nocapture"]);
    again.env(VARIABLE, names).output().unwrap()
}

#[test]
fn a_test_runs_on_the_backends_of_the_variable_alone() {
    let available = Backend::available();
    let last = available[available.len() - 1];
    for (names, expected) in [
        (last.to_string(), vec![last]),
        (format!("{last},{}", available[0]), vec![last, available[0]]),
        (String::new(), available),
    ] {
        let output = says_its_backend(&names);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{names}: {said}");
        let seen = said.split("on ").skip(1);
        let seen: Vec<_> = seen.filter_map(|it| it.split_once('.')).collect();
        let seen: Vec<_> = seen.iter().map(|it| it.0.to_owned()).collect();
        let expected: Vec<_> = expected.iter().map(Backend::to_string).collect();
        assert_eq!(seen, expected, "{names}: {said}");
    }
}

#[test]
fn a_variable_without_a_backend_fails_the_test() {
    let output = says_its_backend("nonsense");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("POLDER_BACKEND: there is no backend \"nonsense\""),
        "{said}"
    );
}
