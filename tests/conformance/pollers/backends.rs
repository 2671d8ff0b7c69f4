//! [`Backend`] as a value: names, what is available, `POLDER_BACKEND`.

use std::collections::HashSet;
use std::io;

use polder::poller::Poller;
use polder::{Backend, Runtime};

use super::{fails, in_a_child, open};

/// Every name that a backend has, here or elsewhere.
const NAMES: [&str; 5] = ["epoll", "kqueue", "event-ports", "iocp", "poll"];

/// Asserts that the error lists the available backends.
#[track_caller]
fn lists_what_is_available(error: &io::Error) {
    for backend in Backend::available() {
        let message = error.to_string();
        assert!(message.contains(backend.name()), "{backend}: {message}");
    }
}

#[test]
fn the_available_backends_begin_with_the_default() {
    let available = Backend::available();
    assert_eq!(available.first(), Some(&Backend::default()));
    let different: HashSet<_> = available.iter().collect();
    assert_eq!(different.len(), available.len(), "each once");
    for backend in available {
        assert!(backend.is_available());
        assert_eq!(open(backend).backend(), backend);
    }
}

#[test]
fn a_backends_name_can_be_read_back() {
    for backend in Backend::available() {
        let name = backend.to_string();
        assert_eq!(name, backend.name());
        assert_eq!(name.parse::<Backend>().unwrap(), backend);
        let shouted = format!(" {}\n", name.to_uppercase());
        assert_eq!(shouted.parse::<Backend>().unwrap(), backend);
        assert_eq!(format!("{backend:>20}").len(), 20, "it can be aligned");
    }
}

#[test]
fn a_name_that_means_nothing_and_a_backend_that_is_not_here_are_errors() {
    for name in ["", "fax", "epoll2", "epo ll"] {
        let error = fails(name.parse::<Backend>(), io::ErrorKind::InvalidInput, name);
        lists_what_is_available(&error);
    }
    let available: Vec<_> = Backend::available().iter().map(|b| b.name()).collect();
    for name in NAMES.into_iter().filter(|name| !available.contains(name)) {
        let error = fails(name.parse::<Backend>(), io::ErrorKind::Unsupported, name);
        assert!(error.to_string().contains(name), "{error}");
        lists_what_is_available(&error);
    }
    for backend in [Backend::Kqueue, Backend::Iocp, Backend::EventPorts] {
        if !backend.is_available() {
            let opened = Poller::new(backend);
            let error = fails(opened, io::ErrorKind::Unsupported, backend.name());
            lists_what_is_available(&error);
            let built = Runtime::builder().backend(backend).build().map(drop);
            fails(built, io::ErrorKind::Unsupported, backend.name());
        }
    }
}

/// The child's half of the tests of `POLDER_BACKEND`: the backend of the environment is used.
fn environment_is_heeded() {
    let expected = std::env::var("POLDER_BACKEND").map(|name| match &*name {
        "" => Ok(Backend::default()), // As if it were not set.
        name => name.parse::<Backend>(),
    });
    match expected {
        Err(_) => {
            assert_eq!(Backend::from_env().unwrap(), Backend::default());
            assert_eq!(Runtime::new().unwrap().backend(), Backend::default());
        }
        Ok(Ok(backend)) => {
            assert_eq!(Backend::from_env().unwrap(), backend);
            assert_eq!(Runtime::new().unwrap().backend(), backend);
            // A backend that is given explicitly takes precedence.
            for other in Backend::available() {
                let runtime = Runtime::builder().backend(other).build().unwrap();
                assert_eq!(runtime.backend(), other);
            }
        }
        Ok(Err(expected)) => {
            for error in [Backend::from_env().map(drop), Runtime::new().map(drop)] {
                let error = fails(error, expected.kind(), "a bad POLDER_BACKEND");
                assert!(error.to_string().contains("POLDER_BACKEND"), "{error}");
                lists_what_is_available(&error);
            }
            // It is not asked where the program chooses.
            for backend in Backend::available() {
                Runtime::builder().backend(backend).build().unwrap();
            }
        }
    }
}

#[test]
fn the_environment_chooses_the_backend() {
    const NAME: &str = "pollers::backends::the_environment_chooses_the_backend";
    in_a_child(NAME, &[], environment_is_heeded);
    in_a_child(NAME, &[("POLDER_BACKEND", "")], environment_is_heeded);
    for backend in Backend::available() {
        let variables = [("POLDER_BACKEND", backend.name())];
        in_a_child(NAME, &variables, environment_is_heeded);
    }
}

#[test]
fn an_environment_that_names_no_backend_is_an_error() {
    const NAME: &str = "pollers::backends::an_environment_that_names_no_backend_is_an_error";
    let available: Vec<_> = Backend::available().iter().map(|b| b.name()).collect();
    let absent = NAMES.into_iter().filter(|name| !available.contains(name));
    for name in ["fax", " "].into_iter().chain(absent.take(1)) {
        in_a_child(NAME, &[("POLDER_BACKEND", name)], environment_is_heeded);
    }
}
