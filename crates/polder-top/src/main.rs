//! The program. Its parts are in the library next to it.

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
    use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
    use std::thread;
    use std::time::Duration;

    use polder_top::app::{App, ends};
    use polder_top::ending::{Ending, Request, restore};
    use polder_top::feed::{Feed, News, QUEUE, follow};
    use polder_top::options::{Command, HELP};
    use polder_top::screen;
    use ratatui::DefaultTerminal;
    use ratatui::buffer::Buffer;
    use ratatui::crossterm::event::{self, Event};
    use ratatui::layout::Rect;
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    use signal_hook::iterator::Signals;

    /// How often the loop checks for lines and requests to end. (A key wakes the loop.)
    const TURN: Duration = Duration::from_millis(100);

    /// The maximum number of keys that wait for the loop. Further keys are dropped.
    const KEYS: usize = 16;

    /// How many lines may be the same as the one before, with `--once`. A program sends its latest
    /// line again to each new connection, and no line otherwise.
    const REPEATED: usize = 16;

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

    /// Reads two lines, since most values are differences.
    fn once(path: &Path, width: u16) -> Result<(), String> {
        let mut app = App::default();
        let mut feed = Feed::connect(path).map_err(|why| why.to_string())?;
        let (mut lines, mut repeated) = (0, 0);
        while lines < 2 {
            let line = feed.next_line().map_err(|why| why.to_string())?;
            if app.line(line) {
                lines += 1;
            } else if repeated == REPEATED {
                return Err("the program says the same again and again".into());
            } else {
                repeated += 1;
            }
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
        // An initial failure is printed as it is, and not on a screen that disappears.
        drop(Feed::connect(&path).map_err(|why| why.to_string())?);
        let ending = Arc::new(Ending::default());
        catch_signals(ending.clone()).map_err(|error| format!("signals: {error}"))?;
        let news = follow(path).map_err(|error| format!("a thread: {error}"))?;
        // Also makes a panic restore the terminal before it is reported.
        let mut terminal = ratatui::try_init().map_err(|error| format!("the terminal: {error}"))?;
        let result = read_keys(ending.clone())
            .and_then(|events| show(&mut terminal, &news, &events, &ending));
        let restored = restore();
        ending.last();
        // The sender of the signal sees that the program was ended by it.
        if let Some(Request::Signal(number)) = ending.requested() {
            let _ = signal_hook::low_level::emulate_default_handler(number);
        }
        result
            .and(restored)
            .map_err(|error| format!("the terminal: {error}"))
    }

    fn catch_signals(ending: Arc<Ending>) -> io::Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT])?;
        let wait = move || {
            for number in signals.forever() {
                ending.request(Request::Signal(number));
            }
        };
        thread::Builder::new().spawn(wait).map(drop)
    }

    /// Reads keys on a separate thread, which never waits for the loop: see `ending`.
    fn read_keys(ending: Arc<Ending>) -> io::Result<Receiver<io::Result<Event>>> {
        let (sender, events) = sync_channel(KEYS);
        let read = move || while read_key(&ending, &sender) {};
        thread::Builder::new().spawn(read)?;
        Ok(events)
    }

    /// Returns whether there may be more.
    fn read_key(ending: &Ending, sender: &SyncSender<io::Result<Event>>) -> bool {
        let event = match event::read() {
            Ok(event) => event,
            Err(error) => {
                // It is the last one, so it may wait.
                let _ = sender.send(Err(error));
                return false;
            }
        };
        if let Event::Key(key) = event
            && ends(key)
        {
            ending.request(Request::Key);
        }
        // This wakes the loop, too. If the queue is full, its contents do that.
        let _ = sender.try_send(Ok(event));
        true
    }

    fn show(
        terminal: &mut DefaultTerminal,
        news: &Receiver<News>,
        events: &Receiver<io::Result<Event>>,
        ending: &Ending,
    ) -> io::Result<()> {
        let mut app = App::default();
        while ending.requested().is_none() {
            // At most as many as are queued: a program that sends without a pause starves nothing
            // else.
            for _ in 0..QUEUE {
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
            match events.recv_timeout(TURN) {
                Ok(event) => {
                    if let Event::Key(key) = event? {
                        app.key(key);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the thread that reads keys has ended"));
                }
            }
        }
        Ok(())
    }
}
