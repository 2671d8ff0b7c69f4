//! A program that serves its metrics over HTTP, as in docs/DIAGNOSTICS.md, and is read by a client;
//! and by Prometheus, if `POLDER_PROMETHEUS` names its folder (see `ci/prometheus.sh`).
//!
//! The program's work is over when it is scraped, except for the answers, which the future of
//! `block_on` writes one after the other. So most of its metrics stay constant, and every reader
//! must see the same values.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use polder::diagnostics::Metrics;
use polder::event::Latch;
use polder::future::{self, yield_now};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::TcpListener;
use polder::time::sleep;
use polder::{Handle, Runtime};
use serde_json::Value;

/// The time limit for Prometheus to start, and to read the metrics.
const LIMIT: Duration = Duration::from_secs(60);

/// The number of the program's completed tasks, and of those that wait for ever.
const DONE: usize = 1_000;
const LEFT: usize = 7;

/// The program; ends on drop.
struct Program {
    address: SocketAddr,
    handle: Handle,
    end: Arc<Latch>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Program {
    fn start() -> Program {
        let (sender, receiver) = mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = Runtime::builder().workers(2).build().unwrap();
            let left = (0..LEFT).map(|_| runtime.spawn(future::pending::<()>()));
            let left: Vec<_> = left.collect();
            let tasks: Vec<_> = (0..DONE).map(|_| runtime.spawn(works())).collect();
            runtime.block_on(async {
                for task in tasks {
                    task.await;
                }
                sleep(Duration::from_millis(1)).await;
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let end = Arc::new(Latch::new());
                let address = listener.local_addr().unwrap();
                (sender.send((address, Handle::current(), end.clone()))).unwrap();
                future::or(end.wait(), serve(listener)).await;
            });
            drop(left);
        });
        let (address, handle, end) = receiver.recv().unwrap();
        Program {
            address,
            handle,
            end,
            thread: Some(thread),
        }
    }

    /// Returns its metrics at this moment.
    fn says(&self) -> String {
        self.handle.metrics().to_string()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end.set();
        let ended = self.thread.take().map(thread::JoinHandle::join);
        assert!(thread::panicking() || matches!(ended, Some(Ok(()))));
    }
}

async fn works() {
    for _ in 0..20 {
        yield_now().await;
    }
}

async fn serve(listener: TcpListener) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        // A client that disconnects must not affect the next one.
        let _ = answer(stream).await;
    }
}

async fn answer(mut stream: polder::net::TcpStream) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < 16 << 10 {
        let mut byte = [0];
        stream.read_exact(&mut byte).await?;
        head.extend(byte);
    }
    let text = Handle::current().metrics().to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        Metrics::CONTENT_TYPE,
        text.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(text.as_bytes()).await
}

/// Returns the head and the body of an answer.
fn get(address: SocketAddr, path: &str) -> io::Result<(String, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LIMIT))?;
    // (An HTTP/1.0 answer is not chunked.)
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or(io::ErrorKind::InvalidData)?;
    Ok((head.into(), body.into()))
}

/// Names with labels, and their values.
type Samples = BTreeMap<String, f64>;

/// Parses the samples of a text.
fn samples(text: &str) -> Samples {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let labels = labels.trim_end_matches('}').split(',');
            let labels = labels.filter_map(|label| {
                let (key, value) = label.split_once('=')?;
                Some((key, value.trim_matches('"')))
            });
            (series_of(name, labels), value.parse().expect("a number"))
        })
        .collect()
}

/// Returns the normalized name of a series: limits become numbers, however they are written.
fn series_of<'a>(name: &str, labels: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let labels: BTreeMap<&str, String> = labels
        .map(|(key, value)| match (key, value.parse::<f64>()) {
            ("le", Ok(limit)) => (key, limit.to_string()),
            _ => (key, value.into()),
        })
        .collect();
    format!("{name} {labels:?}")
}

#[test]
fn a_client_reads_the_numbers_as_they_are() {
    let program = Program::start();
    let before = program.handle.metrics();
    let (head, body) = get(program.address, "/metrics").unwrap();
    let after = program.handle.metrics();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: application/openmetrics-text; version=1.0.0"));
    assert!(body.ends_with("\n# EOF\n"), "{body}");
    let read = samples(&body);
    assert_eq!(read.len(), samples(&before.to_string()).len());
    for (name, value) in [
        ("polder_tasks", LEFT),
        ("polder_spawned_total", DONE + LEFT),
        ("polder_ended_total", DONE),
    ] {
        assert_eq!(
            read[&series_of(name, [].into_iter())],
            value as f64,
            "{name}"
        );
    }
    let pairs = before.workers.iter().zip(&after.workers);
    for (index, (before, after)) in pairs.enumerate() {
        let of_worker = |name: &str| {
            let index = index.to_string();
            read[&series_of(name, [("worker", index.as_str())].into_iter())]
        };
        // (A worker counts a poll a moment after the end of its task can be seen.)
        let polls = before.polls as f64..=after.polls as f64;
        assert!(
            polls.contains(&of_worker("polder_polls_total")),
            "{polls:?}"
        );
        let timed = before.poll_times.count() as f64..=after.poll_times.count() as f64;
        assert!(
            timed.contains(&of_worker("polder_poll_seconds_count")),
            "{timed:?}"
        );
    }
}

/// Prometheus, with its folder. Dropping this ends the process and removes the folder.
struct Prometheus {
    child: Child,
    folder: PathBuf,
    address: SocketAddr,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Prometheus {
    /// Scrapes `program` once a second.
    fn start(programs: &Path, program: SocketAddr) -> Prometheus {
        let mut attempts = (0..3).map(|_| Prometheus::try_start(programs, program));
        attempts.find_map(|it| it).expect("Prometheus has a port")
    }

    /// Returns `None` if it has ended before it answered: it does not report its port, so it gets
    /// one that was free just now, and another process may have that by then.
    fn try_start(programs: &Path, program: SocketAddr) -> Option<Prometheus> {
        let folder = std::env::temp_dir().join(format!("polder-scrape-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let settings = folder.join("settings.yml");
        let text = format!(
            "global:\n  scrape_interval: 1s\n\
             scrape_configs:\n  - job_name: polder\n    static_configs:\n      - targets: ['{program}']\n"
        );
        std::fs::write(&settings, text).unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let child = Command::new(programs.join("prometheus"))
            .arg(format!("--config.file={}", settings.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("Prometheus starts");
        let mut this = Prometheus {
            child,
            folder,
            address,
        };
        let start = Instant::now();
        while get(address, "/-/ready").is_err() {
            if this.child.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(start.elapsed() < LIMIT, "Prometheus does not answer");
            thread::sleep(Duration::from_millis(100));
        }
        Some(this)
    }

    /// Returns the answer of its HTTP API, or `None` if it is not running yet.
    fn ask(&mut self, path: &str) -> Option<Value> {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("Prometheus has ended: {status}");
        }
        let (head, body) = get(self.address, path).ok()?;
        if !head.contains(" 200 OK") {
            return None;
        }
        let value = serde_json::from_str::<Value>(&body).unwrap();
        assert_eq!(value["status"], "success");
        Some(value["data"].clone())
    }

    /// Returns the latest value of each series of the program.
    fn samples(&mut self) -> Option<Samples> {
        // {__name__=~"polder_.+"}
        let data = self.ask("/api/v1/query?query=%7B__name__%3D~%22polder_.%2B%22%7D")?;
        let series = data["result"].as_array().unwrap().iter();
        Some(series.map(sample).collect())
    }

    fn is_up(&mut self) -> bool {
        let data = self.ask("/api/v1/query?query=up%7Bjob%3D%22polder%22%7D");
        data.is_some_and(|data| data["result"][0]["value"][1] == "1")
    }
}

fn sample(series: &Value) -> (String, f64) {
    let Value::Object(labels) = &series["metric"] else {
        panic!("no labels in {series:?}");
    };
    let own =
        (labels.iter()).filter(|(key, _)| !["__name__", "instance", "job"].contains(&key.as_str()));
    let own = own.map(|(key, value)| (key.as_str(), value.as_str().unwrap()));
    let [time, value] = &series["value"].as_array().unwrap()[..] else {
        panic!("no value in {series:?}");
    };
    assert!(time.as_f64().unwrap() > 1e9, "{series:?}");
    let value = value.as_str().unwrap().parse();
    let name = series["metric"]["__name__"].as_str().unwrap();
    (series_of(name, own), value.expect("a number"))
}

/// Checks that each value in Prometheus is one that the program had between two moments. Skips
/// gauges that change with each answer.
fn agree(before: &Samples, read: &Samples, after: &Samples) -> Result<(), String> {
    let names = |samples: &Samples| samples.keys().cloned().collect::<Vec<_>>();
    if names(before) != names(read) {
        return Err(format!("{:?} instead of {:?}", names(read), names(before)));
    }
    for (name, value) in read {
        let changes = [
            "polder_worker_parked",
            "polder_worker_sources",
            "polder_open_sockets",
        ];
        let is_between = before[name] <= *value && *value <= after[name];
        if !is_between && !changes.iter().any(|it| name.starts_with(it)) {
            return Err(format!(
                "{name}: {value}, not {} to {}",
                before[name], after[name]
            ));
        }
    }
    Ok(())
}

/// Returns a text's families, each with its type, help and unit.
fn families(text: &str) -> BTreeMap<String, [String; 3]> {
    let mut families = BTreeMap::<String, [String; 3]>::new();
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        let [Some("#"), Some(what), Some(name), Some(words)] = [(); 4].map(|()| words.next())
        else {
            continue;
        };
        let place = ["TYPE", "HELP", "UNIT"].iter().position(|it| *it == what);
        families.entry(name.into()).or_default()[place.expect("a known line")] = words.into();
    }
    families
}

/// The same text in the format before OpenMetrics, which promtool checks: counters are declared by
/// their full names, no metric is an `info`, and units are left out.
fn before_open_metrics(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("# UNIT"));
    let lines: Vec<&str> = lines.filter(|line| *line != "# EOF").collect();
    let families = families(text);
    let told = lines
        .iter()
        .map(|line| match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            ["#", what, name, words] => match (families[name][0].as_str(), what) {
                ("counter", _) => format!("# {what} {name}_total {words}\n"),
                ("info", "TYPE") => format!("# TYPE {name}_info gauge\n"),
                ("info", _) => format!("# {what} {name}_info {words}\n"),
                _ => format!("{line}\n"),
            },
            _ => format!("{line}\n"),
        });
    told.collect()
}

/// Prometheus reads the numbers with their types and has the same.
#[test]
fn prometheus_reads_numbers_and_types() {
    let Some(programs) = std::env::var_os("POLDER_PROMETHEUS").map(PathBuf::from) else {
        return eprintln!("not run: POLDER_PROMETHEUS does not say where Prometheus is");
    };
    let program = Program::start();
    let mut prometheus = Prometheus::start(&programs, program.address);
    let (start, before) = (Instant::now(), samples(&program.says()));
    loop {
        let read = prometheus.samples().filter(|read| !read.is_empty());
        let result = match &read {
            Some(read) => agree(&before, read, &samples(&program.says())),
            None => Err("it has not read anything".into()),
        };
        match result {
            Ok(()) => break,
            Err(words) => assert!(start.elapsed() < LIMIT, "after {LIMIT:?}: {words}"),
        }
        thread::sleep(Duration::from_millis(100));
    }
    assert!(prometheus.is_up());
    let text = program.says();
    let metadata = prometheus.ask("/api/v1/metadata").unwrap();
    for (name, expected) in families(&text) {
        let [of_family] = &metadata[&name].as_array().unwrap()[..] else {
            panic!("{name}: {metadata:?}");
        };
        let told = ["type", "help", "unit"].map(|key| of_family[key].as_str().unwrap().to_owned());
        assert_eq!(told, expected, "{name}");
    }
    for kind in ["info", "gauge", "counter", "histogram"] {
        assert!(
            families(&text).values().any(|it| it[0] == kind),
            "no {kind}"
        );
    }
    check(&programs, &before_open_metrics(&text));
}

/// Asserts that promtool has no complaint about the text.
fn check(programs: &Path, text: &str) {
    let mut promtool = Command::new(programs.join("promtool"));
    promtool.args(["check", "metrics"]);
    promtool
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = promtool.spawn().expect("promtool starts");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    assert!(output.status.success(), "{said:?}");
    assert_eq!(said, ["", ""], "of {text}");
}
