//! The test program, started again to run a single test: for tests about a whole process.

use std::io::{ErrorKind, Read};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Returns the command that runs this test alone, in an environment that requests no diagnostics.
pub fn again(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test knows where it is"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    for variable in ["POLDER_DUMP", "POLDER_STALL", "POLDER_TRACE", "POLDER_TOP"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    command
}

/// Waits for the end of a child, and returns its output. Panics if it is not done within the limit.
pub fn ended(mut child: Child, what: &str, limit: Duration) -> Output {
    // Read meanwhile: a full pipe would block the child.
    let [stdout, stderr] = [
        Collected::of(child.stdout.take()),
        Collected::of(child.stderr.take()),
    ];
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break status;
        }
        if start.elapsed() > limit {
            child.kill().expect("a child can be ended");
            child.wait().expect("a child can be waited for");
            // Not to its end: a child of its own may hold the pipe.
            let stderr = stderr.bytes.lock().unwrap();
            let text = String::from_utf8_lossy(&stderr);
            panic!("{what}: not done after {limit:?}:\n{text}");
        }
        thread::sleep(Duration::from_millis(1));
    };
    Output {
        status,
        stdout: stdout.whole(),
        stderr: stderr.whole(),
    }
}

/// The output of a child, as far as a thread has read it.
struct Collected {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Collected {
    fn of(pipe: Option<impl Read + Send + 'static>) -> Collected {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let collected = bytes.clone();
        let reader = thread::spawn(move || {
            let mut room = [0; 4096];
            if let Some(mut pipe) = pipe {
                loop {
                    match pipe.read(&mut room) {
                        Ok(0) => break,
                        Ok(read) => collected.lock().unwrap().extend_from_slice(&room[..read]),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}"),
                    }
                }
            }
        });
        Collected { bytes, reader }
    }

    fn whole(self) -> Vec<u8> {
        self.reader.join().expect("the output is read");
        std::mem::take(&mut self.bytes.lock().unwrap())
    }
}
