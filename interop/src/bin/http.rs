//! An HTTP/1.1 server: hyper, on polder's sockets and timers. The site is in `src/http.rs`. After
//! Ctrl-C or SIGTERM it finishes the current responses.

use std::process::ExitCode;
use std::time::Duration;

use hyper::service::service_fn;
use interop::{Arguments, http, served_by_hyper};
use polder_hyper::serve;

const USAGE: &str = "http [ADDR] [--timeout-ms N] [--backend NAME]";

/// How long responses may take after Ctrl-C.
const GRACE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    interop::main(USAGE, run)
}

fn run(arguments: &Arguments) -> std::io::Result<()> {
    arguments.runtime()?.block_on(async {
        let stopped = interop::stopped()?;
        let server = serve(arguments.listen().await?, service_fn(http::answer))
            .timeout(arguments.limit())
            .limit(10_000)
            .until(stopped)
            .grace(GRACE);
        served_by_hyper(server).await
    })
}
