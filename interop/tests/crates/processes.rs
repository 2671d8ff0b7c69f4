//! Processes where the output is enough: the standard library's, on a thread of the pool. (Those of
//! async-process are in `main.rs`.)

use std::process::Command;

use polder::unblock;

use crate::everywhere;

/// The output of children comes from threads of the pool.
#[test]
fn children_output_by_pool_threads() {
    everywhere(|_| async {
        let outputs = (0..10).map(|number: u32| {
            unblock(move || Command::new("echo").arg(number.to_string()).output())
        });
        for (number, output) in outputs.collect::<Vec<_>>().into_iter().enumerate() {
            let output = output.await.expect("it runs");
            assert_eq!(output.stdout, format!("{number}\n").as_bytes());
            assert!(output.status.success());
        }
    });
}
