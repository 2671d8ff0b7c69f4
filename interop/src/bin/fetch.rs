//! Fetches URLs, some at a time, with a progress bar on standard error.
//!
//! ```text
//! cd interop; cargo run --release --bin fetch < urls
//! ```
//! Standard input has an `http` URL on each line. Standard output gets a line for each, in the
//! order in which they are done: the number of bytes, or the error.

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, Uri};
use indicatif::{ProgressBar, ProgressStyle};
use polder::net::TcpStream;
use polder::time::timeout;
use polder::{TaskSet, unblock};
use polder_hyper::Stream;

const AT_ONCE: usize = 10; // More would keep the servers, and the descriptors, busy.
const LIMIT: Duration = Duration::from_secs(30);

fn main() -> io::Result<()> {
    polder::block_on(async {
        let urls: Vec<_> = unblock(|| io::stdin().lines().collect::<io::Result<_>>()).await?;
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}, {eta} left");
        let bar = ProgressBar::new(urls.len() as u64).with_style(style.expect("it is valid"));
        let (mut fetches, mut urls) = (TaskSet::new(), urls.into_iter());
        loop {
            // The next ones begin as others end.
            for url in urls.by_ref().take(AT_ONCE - fetches.len()) {
                fetches.spawn(async move {
                    let fetched = timeout(LIMIT, fetch(&url)).await;
                    (fetched.unwrap_or_else(|late| Err(late.into())), url)
                });
            }
            let Some((fetched, url)) = fetches.join_next().await else {
                break;
            };
            bar.set_message(url.clone());
            bar.inc(1); // And it makes way for the line:
            bar.suspend(|| match fetched {
                Ok(bytes) => writeln!(io::stdout(), "{bytes} bytes: {url}"),
                Err(error) => writeln!(io::stdout(), "{error}: {url}"),
            })?;
        }
        bar.finish_and_clear();
        Ok(())
    })
}

async fn fetch(url: &str) -> Result<usize, Box<dyn Error + Send + Sync>> {
    let url: Uri = url.parse()?;
    let (Some("http"), Some(host)) = (url.scheme_str(), url.host()) else {
        return Err("it is no URL of http".into());
    };
    let host = host.trim_matches(['[', ']']); // Around an IPv6 address.
    let stream = TcpStream::connect((host, url.port_u16().unwrap_or(80))).await?;
    let (mut requests, connection) = http1::handshake(Stream::new(stream)).await?;
    let _connection = polder::spawn(connection); // Cancelled when this function returns.
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let named = authority.rsplit('@').next().unwrap_or(host);
    let request = Request::get(path)
        .header(HOST, named)
        .body(Empty::<Bytes>::new())?;
    let answer = requests.send_request(request).await?;
    if !answer.status().is_success() {
        return Err(answer.status().to_string().into());
    }
    let (mut body, mut bytes) = (answer.into_body(), 0);
    while let Some(frame) = body.frame().await {
        bytes += frame?.data_ref().map_or(0, Bytes::len);
    }
    Ok(bytes)
}
