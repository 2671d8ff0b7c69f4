//! An HTTP/1.1 server: hyper, on polder's sockets and timers. The site is in `src/http.rs`. After
//! Ctrl-C or SIGTERM it finishes the current responses.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use interop::{Arguments, Limited, http, served, told};
use polder::event::Latch;
use polder::net::serve;

const USAGE: &str = "http [ADDR] [--timeout-ms N] [--backend NAME]";

/// How long responses may take after Ctrl-C.
const GRACE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    interop::main(USAGE, run)
}

fn run(arguments: &Arguments) -> std::io::Result<()> {
    let limit = arguments.limit();
    arguments.runtime()?.block_on(async {
        let stopped = interop::stopped()?;
        let stop = Arc::new(Latch::new());
        let listener = arguments.listen().await?;
        let server = serve(listener, |stream, peer| {
            let stop = stop.clone();
            async move {
                let stream = Limited::new(stream, limit);
                told(peer, http::connection(stream, limit, stop.wait()).await);
            }
        })
        .limit(10_000)
        .until(async {
            stopped.await;
            stop.set();
        })
        .grace(GRACE);
        served(server).await
    })
}
