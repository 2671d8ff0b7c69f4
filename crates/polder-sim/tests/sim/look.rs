//! A look at one run: stopped at some time, or beside another one.

use polder::fs;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::{sleep, timeout};
use polder_sim::Sim;

use super::failing::{assert_contains, in_a_process, is_inner};
use super::{ms, secs};

/// A client that sends to a server that does not read, and writes a file without a sync.
async fn send(sim: Sim) {
    let server = sim.host("server").start(|| async {
        let listener = TcpListener::bind("0.0.0.0:1").await?;
        let _connection = listener.accept().await?;
        sleep(secs(60)).await;
        std::io::Result::Ok(())
    });
    sim.links().loss(0.1);
    sleep(ms(1)).await;
    let cut = sim.host("client").start(|| async {
        fs::write("/state", "new").await?;
        let mut stream = TcpStream::connect("server:1").await?;
        sleep(secs(1)).await;
        stream.write_all(&[7; 1_000]).await?;
        sleep(secs(60)).await;
        std::io::Result::Ok(())
    });
    sleep(ms(1_050)).await;
    let away = sim.cut(&["client"], &["server"]);
    let _ = cut.finished().within(secs(120)).await;
    drop(away);
    let _ = server.finished().within(secs(120)).await;
}

#[test]
fn child() {
    if is_inner() {
        polder_sim::check(0..2, send);
    }
}

/// A run stops at the time that is asked for and shows each host then.
#[test]
fn run_stops_at_time_and_shows_hosts() {
    let name = "look::child";
    let stop = |until: &str| {
        in_a_process(
            name,
            &[("POLDER_SIM_SEED", "1"), ("POLDER_SIM_STOP_AT", until)],
        )
    };
    let (passes, text) = stop("1.0005s");
    assert!(!passes);
    assert_contains(
        &text,
        &[
            "seed 0x1 stopped at 1.000500 s by POLDER_SIM_STOP_AT\n",
            "    client: running",
            "connected to server:1",
            "not on its disk yet: data of /state, the name /state",
            "replay: POLDER_SIM_SEED=0x1 POLDER_SIM_STOP_AT=1.000500s cargo test look::child",
        ],
    );
    // It sends after a second, and after its handshake. An acknowledgement comes after more than a
    // millisecond.
    let sent = (0..16).map(|nth| format!("{:.4} s", 1.002 + f64::from(nth) / 2_000.0));
    let texts: Vec<String> = sent.map(|until| stop(&until).1).collect();
    let is_under_way = |text: &String| text.contains("1000 bytes not acknowledged");
    assert!(texts.iter().any(is_under_way), "{texts:?}");
    let (passes, text) = stop("1000s");
    assert!(passes);
    assert_contains(&text, &["has ended before the time of POLDER_SIM_STOP_AT"]);
    let (passes, text) = stop("soon");
    assert!(!passes);
    assert_contains(
        &text,
        &["POLDER_SIM_STOP_AT is a time such as 12.3s or 50ms: not \"soon\""],
    );
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_STOP_AT", "1s")]);
    assert!(!passes);
    assert_contains(
        &text,
        &["POLDER_SIM_STOP_AT is for one run: set POLDER_SIM_SEED"],
    );
}

/// Waits for answers of a server that is busy with something else from a second on.
async fn unanswered(sim: Sim) {
    sim.host("server").start(|| async {
        let listener = TcpListener::bind("0.0.0.0:1").await?;
        let (mut stream, _) = listener.accept().await?;
        for _ in 0..10 {
            stream.read_exact(&mut [0]).await?;
            stream.write_all(b"y").await?;
        }
        sleep(secs(60)).await;
        std::io::Result::Ok(())
    });
    sleep(ms(1)).await;
    let mut stream = TcpStream::connect("server:1").await.unwrap();
    while sim.now() < secs(5) {
        stream.write_all(b"x").await.unwrap();
        let mut byte = [0];
        let answer = timeout(secs(1), stream.read_exact(&mut byte)).await;
        assert!(answer.is_ok(), "no answer");
        sleep(ms(100)).await;
    }
}

#[test]
fn report_omits_bytes_already_acknowledged() {
    let until = ("POLDER_SIM_STOP_AT", "1.9s");
    let (_, text) = in_a_process("look::silent", &[("POLDER_SIM_SEED", "0"), until]);
    assert_contains(&text, &["seed 0x0 stopped at 1.9", "1 byte is unread"]);
    assert!(!text.contains("not acknowledged"), "{text}");
}

#[test]
fn silent() {
    if is_inner() {
        polder_sim::check(0..1, unanswered);
    }
}

/// A page shows what each task waited for at many moments.
#[test]
fn page_shows_waits_at_many_moments() {
    let (passes, text) = in_a_process("look::silent", &[]);
    assert!(!passes);
    assert_contains(&text, &["no answer\n", "timeline: "]);
    let path = text.split_once("  timeline: ").unwrap().1;
    let page = std::fs::read_to_string(path.lines().next().unwrap()).unwrap();
    assert_contains(&page, &["<input id=\"slider\" type=\"range\"", "<script>"]);
    let moments: Vec<(u64, &str)> = (page.split("<details data-at=\"").skip(1))
        .map(|rest| {
            let (at, rest) = rest.split_once('"').unwrap();
            let words = rest.split_once("<pre>\n").unwrap().1;
            (at.parse().unwrap(), words.split_once("</pre>").unwrap().0)
        })
        .collect();
    assert!(moments.is_sorted_by(|one, other| one.0 < other.0));
    assert!((30..=201).contains(&moments.len()), "{}", moments.len());
    let at = |nanos| {
        let next = moments.partition_point(|moment| moment.0 <= nanos);
        moments[next - 1].1
    };
    assert_contains(at(500_000_000), &["server: running", "reads TCP"]);
    let (last, words) = moments.last().unwrap();
    let micros = last / 1_000;
    let end = format!(
        "failed at {}.{:06} s",
        micros / 1_000_000,
        micros % 1_000_000
    );
    assert_contains(&page, &[&end]);
    assert_contains(words, &["waits: does not read TCP", "1 byte is unread"]);
}

/// Two runs are compared up to their first difference.
#[test]
fn runs_compared_to_first_difference() {
    let name = "look::child";
    let compare = |runs| in_a_process(name, &[("POLDER_SIM_DIFF", runs)]);
    let (_, text) = compare("0x1 0x1");
    assert_contains(&text, &["0x1 and 0x1 are the same run"]);
    let (passes, text) = compare("0x1 0x1:fork500000000=0x1");
    assert!(!passes);
    assert_contains(
        &text,
        &[
            "0x1 and 0x1:fork500000000=0x1 differ first at ",
            "Both had before:\n",
            "The first run had: ",
            "The second has:    ",
        ],
    );
    let at = text.split_once("differ first at ").unwrap().1;
    let at: f64 = at.split(' ').next().unwrap().parse().unwrap();
    assert!(at >= 0.5, "{text}");
    for runs in ["0x1", "0x1 0x2 0x3", "0x1 what"] {
        let (passes, text) = compare(runs);
        assert!(!passes);
        assert_contains(
            &text,
            &["POLDER_SIM_DIFF is two runs, as of POLDER_SIM_REPLAY"],
        );
    }
}

/// Connects to an address that no host has, and fails.
async fn nobody(sim: Sim) {
    let limit = secs(1);
    let _ = TcpStream::connect_timeout("10.0.77.77:1", limit).await;
    assert_eq!(sim.choose(2), 2, "it fails");
}

#[test]
fn to_nobody() {
    if is_inner() {
        polder_sim::check(0..1, nobody);
    }
}

/// Addresses that no host has are told and explored too.
#[test]
fn addresses_without_host_are_reported() {
    let (passes, text) = in_a_process("look::to_nobody", &[]);
    assert!(!passes);
    assert_contains(
        &text,
        &[
            "seed 0x0 failed at",
            "what led there",
            "is lost",
            "timeline: ",
        ],
    );
    let (_, text) = in_a_process(
        "look::to_nobody",
        &[("POLDER_SIM_DIFF", "0x1 0x1:choose1=1")],
    );
    assert_contains(&text, &["0x1 and 0x1:choose1=1"]);
}

/// Two halves are apart for a while, and then a host is killed.
async fn apart(sim: Sim) {
    let hosts = ["a", "b", "c", "d"].map(|name| sim.host(name).start(std::future::pending::<()>));
    let cut = sim.cut(&["a", "b"], &["c", "d"]);
    sleep(secs(1)).await;
    drop(cut);
    for _ in 0..20 {
        let pause = hosts[1].pause();
        sleep(ms(10)).await;
        drop(pause);
    }
    hosts[2].kill();
    panic!("it is down");
}

#[test]
fn tale() {
    if is_inner() {
        polder_sim::check(0..1, apart);
    }
}

/// Returns the lines of a report under this one.
fn story<'a>(text: &'a str, title: &str) -> Vec<&'a str> {
    let story = text.split_once(title).expect(text).1.lines();
    story.take_while(|line| line.starts_with("    ")).collect()
}

/// A report tells what was unusual in a dozen lines.
#[test]
fn report_unusual_in_a_dozen_lines() {
    let (passes, text) = in_a_process("look::tale", &[]);
    assert!(!passes);
    let story = self::story(&text, "  what led there in the shrunk run:\n");
    assert_eq!((story[0], story.len()), ("    … 31 more", 13), "{text}");
    assert_eq!(story[12], "    1.200000 s c: killed");
    assert_eq!(story[11], "    1.200000 s b: resumed");
    // With no more than a dozen there is no such line, and what happens at once is one of them.
    let (_, text) = in_a_process(
        "look::tale",
        &[("POLDER_SIM_SEED", "0"), ("POLDER_SIM_STOP_AT", "1.02s")],
    );
    let story = self::story(&text, "  what led there:\n");
    assert_eq!(
        story[0], "    0.000000 s a: cut off from c, and 3 more at once",
        "{text}"
    );
    assert_eq!(
        story[1],
        "    1.000000 s a: reaches c again, and 3 more at once"
    );
}
