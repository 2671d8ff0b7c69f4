//! [`Backend`] as a value: names, availability, `POLDER_BACKEND`.

use std::collections::HashSet;
use std::io;

use polder::poller::Poller;
use polder::{Backend, Runtime};
#[cfg(unix)]
use rustix::process::Resource;

use super::{fails, in_a_child, open};
#[cfg(unix)]
use crate::child::limit;

/// Every name that a backend has, here or elsewhere.
const NAMES: [&str; 5] = ["epoll", "kqueue", "event-ports", "iocp", "poll"];

/// Asserts that the error lists the available backends.
#[track_caller]
fn lists_what_is_available(error: &io::Error) {
    let names: Vec<_> = Backend::available().iter().map(|it| it.name()).collect();
    let list = format!("available: {}", names.join(", "));
    assert!(error.to_string().ends_with(&list), "{error}");
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

/// A name that means nothing and a backend that is not here are errors.
#[test]
fn unknown_name_and_absent_backend_are_errors() {
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

/// If only a feature is missing for a backend, the error names it.
#[test]
fn missing_feature_named_by_error() {
    let mut features = vec![
        (Backend::AsyncIo, cfg!(feature = "async-io")),
        (Backend::Polling, Backend::Polling.is_available()),
    ];
    if cfg!(target_os = "linux") {
        features.push((Backend::IoUring, cfg!(feature = "io-uring")));
    }
    for (backend, _) in features.into_iter().filter(|(_, is_on)| !is_on) {
        let parsed = backend.name().parse::<Backend>();
        let error = fails(parsed, io::ErrorKind::Unsupported, backend.name());
        let words = format!("without polder's feature {backend};");
        assert!(error.to_string().contains(&words), "{error}");
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
            // The variable is ignored where the program chooses a backend.
            for backend in Backend::available() {
                Runtime::builder().backend(backend).build().unwrap();
            }
        }
    }
}

#[test]
fn the_environment_chooses_the_backend() {
    let in_a_child = |variables: &[_]| {
        in_a_child(variables, || {
            environment_is_heeded();
        })
    };
    in_a_child(&[]);
    in_a_child(&[("POLDER_BACKEND", "")]);
    for backend in Backend::available() {
        in_a_child(&[("POLDER_BACKEND", backend.name())]);
    }
}

/// An environment that names no backend is an error.
#[test]
fn environment_without_backend_is_error() {
    let available: Vec<_> = Backend::available().iter().map(|b| b.name()).collect();
    let absent = NAMES.into_iter().filter(|name| !available.contains(name));
    for name in ["fax", " "].into_iter().chain(absent.take(1)) {
        in_a_child(&[("POLDER_BACKEND", name)], || {
            environment_is_heeded();
        });
    }
}

/// Returns the backends that are not available here, with any features.
fn absent() -> Vec<Backend> {
    let others = [Backend::Kqueue, Backend::Iocp, Backend::EventPorts];
    others.into_iter().filter(|it| !it.is_available()).collect()
}

#[test]
fn of_a_list_the_first_that_opens_is_taken() {
    let absent = absent();
    for backend in Backend::available() {
        let wishes: Vec<_> = absent.iter().copied().chain([backend]).collect();
        assert_eq!(Poller::first_of(wishes.clone()).unwrap().backend(), backend);
        for workers in [1, 2] {
            let builder = Runtime::builder().workers(workers);
            let runtime = builder.backends(wishes.clone()).build().unwrap();
            assert_eq!(runtime.backend(), backend);
        }
        let names: Vec<_> = wishes.iter().map(|wish| wish.name()).collect();
        assert_eq!(Backend::parse_list(&names.join(" , ")).unwrap(), wishes);
    }
}

/// A list of which none can be opened says why of each.
#[test]
fn list_of_unopenable_says_why_of_each() {
    let absent = absent();
    let names: Vec<_> = absent.iter().map(|backend| backend.name()).collect();
    let built = Runtime::builder().backends(absent.clone()).build();
    for result in [
        Poller::first_of(absent.clone()).map(drop),
        Backend::parse_list(&names.join(",")).map(drop),
        built.map(drop),
    ] {
        let error = fails(result, io::ErrorKind::Unsupported, "none is there");
        lists_what_is_available(&error);
        for name in &names {
            assert!(error.to_string().contains(name), "{name}: {error}");
        }
    }
    fails(Poller::first_of([]), io::ErrorKind::InvalidInput, "no wish");
    let none = Runtime::builder().backends([]).build().map(drop);
    fails(none, io::ErrorKind::InvalidInput, "no wish");
    for names in ["", ",", "poll,", "poll,fax", "poll;select"] {
        let error = fails(
            Backend::parse_list(names),
            io::ErrorKind::InvalidInput,
            names,
        );
        lists_what_is_available(&error);
    }
}

/// A list for which there are no descriptors says so.
#[cfg(unix)]
#[test]
fn list_without_descriptors_says_so() {
    in_a_child(&[], || {
        let mut wishes = Backend::available();
        // Its reactor is per process, and panics if it cannot be created.
        wishes.retain(|backend| *backend != Backend::AsyncIo);
        limit(Resource::Nofile, 0);
        let opened = Poller::first_of(wishes.clone());
        limit(Resource::Nofile, 1024);
        let words = opened.expect_err("no descriptor may be opened").to_string();
        for backend in wishes {
            assert!(words.contains(&format!("backend {backend}: ")), "{words}");
        }
        assert!(words.contains("ulimit -n"), "{words}");
    });
}

/// The child's half: the list of the environment, in which all but the first are available.
fn the_rest_of_the_list_is_there() {
    let list = Backend::list_from_env().unwrap();
    assert!(list.iter().all(|backend| backend.is_available()));
    assert_eq!(Backend::from_env().unwrap(), list[0]);
    assert_eq!(Runtime::new().unwrap().backend(), list[0]);
    let names = std::env::var("POLDER_BACKEND").unwrap();
    assert_ne!(names.split(',').next(), Some(list[0].name()));
}

#[test]
fn the_environment_may_have_a_list() {
    let first = absent()[0].name();
    for backend in Backend::available() {
        let list = format!("{first},{backend},poll");
        in_a_child(&[("POLDER_BACKEND", &list)], || {
            the_rest_of_the_list_is_there();
        });
    }
}

/// A ring that is refused is passed over and alone says why.
///
/// The refusals of a container's filter, of a sandbox, and of an old kernel.
#[cfg(target_os = "linux")]
#[test]
fn refused_ring_skipped_or_explained() {
    const ERRNO: &str = "POLDER_TEST_ERRNO";
    let reasons = [
        (libc::EPERM, io::ErrorKind::PermissionDenied, "seccomp"),
        (libc::ENOSYS, io::ErrorKind::Unsupported, "sandbox"),
        (libc::EINVAL, io::ErrorKind::InvalidInput, "6.1"),
    ];
    for (errno, ..) in reasons {
        let number = errno.to_string();
        let variables = [("POLDER_BACKEND", "io-uring,poll"), (ERRNO, &*number)];
        in_a_child(&variables, || {
            let errno: libc::c_int = std::env::var(ERRNO).unwrap().parse().unwrap();
            let Some((_, kind, reason)) = reasons.into_iter().find(|it| it.0 == errno) else {
                panic!("an errno of another test");
            };
            // Before the first ring is requested.
            crate::support::refuse(&[libc::SYS_io_uring_setup], errno);
            assert_eq!(Runtime::new().unwrap().backend(), Backend::Poll);
            assert!(!Backend::IoUring.is_available());
            assert!(!Backend::available().contains(&Backend::IoUring));
            let wishes = [Backend::IoUring, Backend::Epoll];
            assert_eq!(Poller::first_of(wishes).unwrap().backend(), Backend::Epoll);
            let built = Runtime::builder().backend(Backend::IoUring).build();
            for result in [
                Poller::new(Backend::IoUring).map(drop),
                "io-uring".parse::<Backend>().map(drop),
                Backend::parse_list("io-uring").map(drop),
                built.map(drop),
            ] {
                let error = result.expect_err("there is no ring");
                let words = error.to_string();
                assert!(words.contains("backend io-uring"), "{words}");
                if cfg!(all(
                    feature = "io-uring",
                    any(
                        target_arch = "x86",
                        target_arch = "arm",
                        target_arch = "s390x"
                    )
                )) {
                    // The crate io-uring does not support these architectures.
                    assert!(words.contains("Linux for"), "{words}");
                } else if cfg!(feature = "io-uring") {
                    assert_eq!(error.kind(), kind, "{words}");
                    assert!(words.contains("io_uring_setup"), "{words}");
                    assert!(words.contains(reason), "{words}");
                } else {
                    assert!(words.contains("feature io-uring"), "{words}");
                }
            }
        });
    }
}

/// ci/kqueue.sh runs this test by its name.
#[cfg(polder_kqueue_model)]
#[test]
fn the_model_of_kqueue_is_among_the_backends() {
    assert!(Backend::available().contains(&Backend::Kqueue));
    let poller = open(Backend::Kqueue);
    poller.notify().unwrap();
    assert!(super::wait(&poller, None).is_empty());
}
