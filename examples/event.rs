//! `Event` and `Latch`: set before the wait, after it, and from another thread; and a foreign loop
//! that drives the runtime by turns that never block.
//!
//! ```text
//! cargo run --release --example event
//! ```

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use polder::event::Latch;
use polder::time::sleep;
use polder::{Event, Runtime};

fn main() -> io::Result<()> {
    let runtime = Runtime::new()?;
    runtime.block_on(async {
        // A set before the wait is kept.
        let event = Arc::new(Event::new());
        event.set();
        event.wait().await;
        println!("set before the wait: passed at once");

        // A wait before the set: another task sets it.
        let setter = event.clone();
        let task = polder::spawn(async move {
            sleep(Duration::from_millis(10)).await;
            setter.set();
        });
        event.wait().await;
        task.await;
        println!("set after the wait: woken by a task");

        // Another thread sets it.
        let setter = event.clone();
        let thread = thread::spawn(move || {
            thread::sleep(Duration::from_millis(10));
            setter.set();
        });
        event.wait().await;
        thread.join().expect("the thread sets the event");
        println!("set by another thread: woken");

        // Each set releases one waiter; a latch releases them all.
        let start = Arc::new(Latch::new());
        let tasks: Vec<_> = (1..=3)
            .map(|number| {
                let (start, event) = (start.clone(), event.clone());
                polder::spawn(async move {
                    start.wait().await;
                    event.wait().await;
                    println!("task {number}: released");
                })
            })
            .collect();
        println!("three tasks wait for the latch, and then for the event");
        start.set();
        for task in tasks {
            event.set();
            task.await;
        }
    });

    // A foreign loop: it does its own work, and lets the runtime do what is ready.
    let event = Arc::new(Event::new());
    let waiter = event.clone();
    let task = runtime.spawn(async move { waiter.wait().await });
    let mut frames = 0;
    while !task.is_finished() {
        frames += 1;
        if frames == 5 {
            event.set();
        }
        runtime.turn(Duration::ZERO);
    }
    println!("a foreign loop drove the runtime for {frames} frames");
    Ok(())
}
