//! The program. Its parts are in the library beside it.

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    unix::main()
}

#[cfg(not(unix))]
fn main() -> std::process::ExitCode {
    eprintln!("polder-top: polder tells what a program does where there are Unix sockets only");
    std::process::ExitCode::FAILURE
}

#[cfg(unix)]
mod unix {
    use std::io::{self, IsTerminal, Write};
    use std::path::{Path, PathBuf};
    use std::process::ExitCode;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::TryRecvError;
    use std::time::Duration;

    use polder_top::app::App;
    use polder_top::feed::{Feed, News, follow};
    use polder_top::options::{Command, HELP};
    use polder_top::screen;
    use ratatui::DefaultTerminal;
    use ratatui::buffer::Buffer;
    use ratatui::crossterm::event::{self, Event};
    use ratatui::layout::Rect;
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

    /// Keys, lines and signals are looked for so often.
    const TURN: Duration = Duration::from_millis(100);

    pub fn main() -> ExitCode {
        let command = match Command::parse(std::env::args_os().skip(1)) {
            Ok(command) => command,
            Err(what) => {
                eprintln!("polder-top: {what} (see polder-top --help)");
                return ExitCode::from(2);
            }
        };
        let result = match command {
            Command::Help => print(HELP),
            Command::Version => print(concat!("polder-top ", env!("CARGO_PKG_VERSION"), "\n")),
            Command::Once(path, width) => once(&path, width),
            Command::Watch(path) => watch(path),
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(what) => {
                eprintln!("polder-top: {what}");
                ExitCode::FAILURE
            }
        }
    }

    fn print(text: &str) -> Result<(), String> {
        let mut out = io::stdout().lock();
        let result = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        result.map_err(|error| format!("standard output: {error}"))
    }

    /// Two lines, since most is what differs.
    fn once(path: &Path, width: u16) -> Result<(), String> {
        let mut app = App::new();
        let mut feed = Feed::connect(path).map_err(|why| why.to_string())?;
        let mut lines = 0;
        while lines < 2 {
            let line = feed.next_line().map_err(|why| why.to_string())?;
            lines += usize::from(app.line(line));
        }
        let height = screen::height(&app, width);
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        screen::draw(&app, buffer.area, &mut buffer, true);
        print(&screen::text(&buffer))
    }

    fn watch(path: PathBuf) -> Result<(), String> {
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            return Err("this is no terminal: --once prints text".into());
        }
        // A first failure is seen as it is, and not on a screen that goes away.
        drop(Feed::connect(&path).map_err(|why| why.to_string())?);
        let signal = Arc::new(AtomicUsize::new(0));
        for number in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            signal_hook::flag::register_usize(number, signal.clone(), number as usize)
                .map_err(|error| format!("signals: {error}"))?;
        }
        let news = follow(path).map_err(|error| format!("a thread: {error}"))?;
        // It also has the terminal put right before a panic is reported.
        let mut terminal = ratatui::try_init().map_err(|error| format!("the terminal: {error}"))?;
        let result = show(&mut terminal, &news, &signal);
        let restored = ratatui::try_restore();
        // Whoever has sent it sees that the program has ended by it.
        let number = signal.load(Ordering::Relaxed);
        if number != 0 {
            let _ = signal_hook::low_level::emulate_default_handler(number as i32);
        }
        result
            .and(restored)
            .map_err(|error| format!("the terminal: {error}"))
    }

    fn show(
        terminal: &mut DefaultTerminal,
        news: &std::sync::mpsc::Receiver<News>,
        signal: &AtomicUsize,
    ) -> io::Result<()> {
        let mut app = App::new();
        while !app.has_ended && signal.load(Ordering::Relaxed) == 0 {
            loop {
                match news.try_recv() {
                    Ok(News::Line(line)) => {
                        app.line(*line);
                    }
                    Ok(News::Down(why)) => app.is_down(why),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        return Err(io::Error::other("the thread that reads has ended"));
                    }
                }
            }
            terminal.draw(|frame| screen::draw(&app, frame.area(), frame.buffer_mut(), false))?;
            if event::poll(TURN)?
                && let Event::Key(key) = event::read()?
            {
                app.key(key);
            }
        }
        Ok(())
    }
}
