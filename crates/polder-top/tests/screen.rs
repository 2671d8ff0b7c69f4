//! The frames drawn for a real program, and for a malicious one.

use polder_top::app::App;
use polder_top::line::{Line, MAX_BUCKETS, MAX_GROUPS, MAX_HINTS};
use polder_top::screen;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;

#[path = "../examples/picture.rs"]
mod picture;

fn app(lines: &str) -> App {
    let mut app = App::default();
    for line in lines.lines() {
        app.line(Line::parse(line.as_bytes()).unwrap());
    }
    app
}

/// Draws as on a terminal of this size.
fn frame(app: &App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let frame = terminal
        .draw(|frame| screen::draw(app, frame.area(), frame.buffer_mut(), false))
        .unwrap();
    screen::text(frame.buffer)
}

/// Draws as `--once` prints.
fn whole(app: &App, width: u16) -> String {
    let area = Rect::new(0, 0, width, screen::height(app, width));
    let mut buffer = Buffer::empty(area);
    screen::draw(app, area, &mut buffer, true);
    screen::text(&buffer)
}

const PROGRAM: &str = include_str!("program.jsonl");

/// A program is seen with its workers tasks and hints.
#[test]
fn program_shown_with_workers_tasks_hints() {
    let text = whole(&app(PROGRAM), 160);
    for part in [
        "program  process ",
        "epoll, 412 tasks",
        "spawned 0/s",
        "polls take  50 % ≤ ",
        "timers late 50 % ≤ ",
        "worker 0  █",
        "worker 2  ░",
        "TASKS▼",
        "reads TCP",
        "\"reloader\" examples/program.rs:",
        "block_on examples/program.rs:",
        "does not read TCP, which is readable",
        "hint: descriptor ",
    ] {
        assert!(text.contains(part), "there is no {part}:\n{text}");
    }
    assert!(!text.contains("q ends"), "{text}");
    // Nothing is cut: the last line is that of the last hint.
    let last = text.trim_end().lines().last().unwrap();
    assert!(last.ends_with("waits for something else"), "{text}");
}

/// A screen has keys and all of what is selected and no size is too small.
#[test]
fn screen_fits_any_size_with_keys() {
    let mut app = app(PROGRAM);
    app.key(KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
    let text = frame(&app, 100, 30);
    assert!(text.contains("q ends"), "{text}");
    assert!(text.contains("polled for"), "{text}");
    app.key(KeyEvent::new(KeyCode::Char('p'), KeyModifiers::NONE));
    assert!(frame(&app, 100, 30).contains("PAUSED"));
    for size in [(1, 1), (7, 3), (20, 60), (300, 5), (40, 12)] {
        frame(&app, size.0, size.1);
        frame(&App::default(), size.0, size.1);
    }
}

/// A program that has gone is said so and what was seen stays.
#[test]
fn ended_program_said_and_last_view_kept() {
    let mut app = App::default();
    assert!(frame(&app, 80, 24).contains("waiting for the program"));
    app.is_down("nobody listens".into());
    assert!(frame(&app, 80, 24).contains("nobody listens"));
    for line in PROGRAM.lines() {
        app.line(Line::parse(line.as_bytes()).unwrap());
    }
    assert!(!frame(&app, 120, 24).contains("GONE"));
    app.is_down("the program has ended".into());
    let text = frame(&app, 120, 24);
    assert!(text.contains("GONE: the program has ended"), "{text}");
    assert!(text.contains("reads TCP"), "{text}");
}

/// Input from the socket is escaped on the terminal, and hostile input does no harm.
///
/// Control characters in every text, impossible numbers, and large amounts of everything.
#[test]
fn socket_input_escaped_on_terminal() {
    let evil = r#""\u001b]0;owned\u0007\u001b[2J\r\n\u009b31m\u202eabc""#;
    let group = format!(
        r#"{{"spawned_at":{evil},"name":{evil},"state":{evil},"waits_for":{evil},"tasks":{max},
        "oldest":1e308,"idle":-5,"last_polled":-1e308,"recent_polls":{max}}}"#,
        max = u64::MAX
    );
    let worker = format!(
        r#"{{"state":"silent","since":1e308,"task":1,"spawned_at":{evil},"metrics":{{"tasks":{max},
        "longest_queue":{max},"polls":{max},"poll_seconds":{{"sum":-1,"counts":[{counts}]}}}}}}"#,
        max = u64::MAX,
        counts = vec![u64::MAX.to_string(); MAX_BUCKETS].join(","),
    );
    let of = |uptime: u32| {
        format!(
            r#"{{"polder_top":1,"program":{evil},"process":{max},"uptime":{uptime},"runtimes":[{{
            "number":{max},"backend":{evil},"tasks":{max},"unreported":{max},"within":1e-300,
            "workers":[{workers}],"groups":[{groups}],"left_out":{{"groups":{max},"tasks":{max},
            "hints":{max}}},"hints":[{hints}]}}]}}"#,
            max = u64::MAX,
            workers = vec![worker.clone(); 50].join(","),
            groups = vec![group.clone(); MAX_GROUPS].join(","),
            hints = vec![format!("{{\"text\":{evil}}}"); MAX_HINTS].join(","),
        )
        .replace('\n', "")
    };
    let app = app(&format!("{}\n{}", of(1), of(2)));
    for text in [frame(&app, 120, 40), frame(&app, 10, 10), whole(&app, 120)] {
        let raw = text
            .chars()
            .find(|it| it.is_control() && *it != '\n' || *it == '\u{202e}');
        assert_eq!(raw, None, "{text:?}");
    }
    assert!(frame(&app, 120, 40).contains("\\u{1b}"));
}

/// A worker that does not answer stands out with what it runs.
#[test]
fn unresponsive_worker_stands_out() {
    let line =
        r#"{"polder_top":1,"uptime":UP,"runtimes":[{"workers":[{"state":"silent","since":3.2,
        "task":17,"spawned_at":"src/index.rs:88:5"}]}]}"#
            .replace('\n', "");
    let app = app(&format!(
        "{}\n{}",
        line.replace("UP", "1"),
        line.replace("UP", "2")
    ));
    let text = whole(&app, 120);
    let words = "100 %  DOES NOT ANSWER for 3.2 s: task 17, spawned at src/index.rs:88:5";
    assert!(text.contains(words), "{text}");
}

/// The picture in the documentation is what is drawn.
///
/// `ci/picture.sh` writes it.
#[test]
fn picture_in_docs_is_current() {
    let drawn = include_str!("../../../docs/top.svg");
    assert!(
        picture::picture() == drawn,
        "docs/top.svg is old: run ci/picture.sh"
    );
}
