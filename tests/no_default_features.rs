//! The smallest build, without any feature: the event loop, tasks and time.

use std::io;
use std::time::Duration;

use polder::event::Latch;
use polder::{Backend, Runtime, TaskSet, Timer};

polder::test! {
    async fn the_loop_tasks_and_time_need_no_feature() {
        let latch = Latch::new();
        let mut tasks = TaskSet::new();
        tasks.spawn(async { Timer::after(Duration::from_millis(1)).await });
        let task = polder::spawn_local(async move { latch.set() });
        task.await;
        assert!(tasks.join_next().await.is_some());
    }
}

/// A backend with its feature off is named where it is asked for, and not elsewhere.
#[test]
fn disabled_backend_named_only_where_asked() {
    let mut optional = vec![
        (Backend::AsyncIo, cfg!(feature = "async-io")),
        (Backend::Polling, cfg!(feature = "polling")),
    ];
    // With the feature, the kernel decides.
    if cfg!(all(target_os = "linux", not(feature = "io-uring"))) {
        optional.push((Backend::IoUring, false));
    }
    for (backend, there) in optional {
        let name = backend.name();
        assert_eq!(backend.is_available(), there, "{name}");
        assert_eq!(Backend::available().contains(&backend), there, "{name}");
        let error = "fax".parse::<Backend>().unwrap_err().to_string();
        assert_eq!(error.contains(name), there, "{error}");
        if there {
            continue;
        }
        for error in [
            name.parse::<Backend>().map(drop),
            Runtime::builder().backend(backend).build().map(drop),
        ] {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
            let feature = format!("feature {name}");
            assert!(error.to_string().contains(&feature), "{error}");
        }
    }
}
