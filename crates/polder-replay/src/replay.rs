//! [`Player`]: the side of a deck that answers from a tape. An entry is consumed by the call that
//! made it when it was recorded; a call that finds another entry ends the replay. What came from
//! elsewhere (events, signals, ends of calls on threads) is given when it is next on the tape: a
//! turn begins by reading the clock, so its place there is unambiguous.

use std::io;
use std::path::Path;

use crate::deck::{Ask, Given};
use crate::show;
use crate::tape::{
    Argument, Blocks, Cursor, End, Head, Program, Tag, Told, get_events, get_head, get_task,
    get_value,
};

pub(crate) struct Player {
    blocks: Blocks,
    body: Vec<u8>,
    at: usize,
    last: Option<u32>,
    /// Those before `at`.
    entries: u64,
    /// The entry before which the replay is to stop.
    until: u64,
    /// Of the recording.
    program: Program,
}

impl Player {
    pub(crate) fn open(path: &Path, until: u64) -> io::Result<Player> {
        let (blocks, program) = Blocks::open(path)?;
        Ok(Player {
            blocks,
            body: Vec::new(),
            at: 0,
            last: None,
            entries: 0,
            until,
            program,
        })
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns the next entry's head, and the cursor behind it. Skips remarks.
    fn peek(&mut self) -> Result<Option<(Head, Cursor<'_>, Option<u32>)>, String> {
        loop {
            while self.at == self.body.len() {
                match self.blocks.next_block() {
                    Ok(Some(body)) => (self.body, self.at) = (body, 0),
                    Ok(None) => return Ok(None),
                    Err(error) => return Err(format!("the tape cannot be read: {error}")),
                }
            }
            if self.entries >= self.until {
                return Err("the replay was to stop here".to_owned());
            }
            let mut last = self.last;
            let mut cursor = Cursor(&self.body[self.at..]);
            let head = get_head(&mut cursor, &mut last).ok_or_else(damaged)?;
            if head != Head::Of(Tag::Notice, None) {
                // Borrowed again, because the loop has it otherwise.
                let left = cursor.0.len();
                return Ok(Some((
                    head,
                    Cursor(&self.body[self.body.len() - left..]),
                    last,
                )));
            }
            let words = cursor.text().ok_or_else(damaged)?;
            let words = show::printable(&words);
            eprintln!("polder-replay: when this was recorded: {words}");
            let left = cursor.0.len();
            self.advance(left, last);
        }
    }

    fn advance(&mut self, left: usize, last: Option<u32>) {
        self.at = self.body.len() - left;
        self.last = last;
        self.entries += 1;
    }

    /// Consumes the next entry. `get` returns `None` if it is another one than the program asks
    /// for, and `Some(None)` if it is damaged.
    #[inline]
    fn next<R>(
        &mut self,
        asked: impl Fn() -> String,
        get: impl FnOnce(Head, &mut Cursor<'_>) -> Option<Option<R>>,
    ) -> Result<R, String> {
        let Some((head, mut cursor, last)) = self.peek()? else {
            return Err(self.ended());
        };
        let read = get(head, &mut cursor);
        let left = cursor.0.len();
        match read {
            Some(Some(value)) => {
                self.advance(left, last);
                Ok(value)
            }
            Some(None) => Err(format!(
                "the tape is damaged, or the program's buffer is smaller than it was: {}",
                asked()
            )),
            None => Err(self.differs(&asked())),
        }
    }

    /// Consumes the next entry, if it is what is asked for, and `get` reads the result.
    pub(crate) fn entry<R>(
        &mut self,
        ask: &Ask,
        get: impl FnOnce(&mut Cursor<'_>) -> Option<R>,
    ) -> Result<R, String> {
        self.next(
            || show::asked(ask),
            |head, from| {
                let is_same = head == Head::Of(ask.tag, ask.socket)
                    && Argument::get(ask.tag.form(), from).as_ref() == Some(&ask.argument);
                is_same.then(|| get(from))
            },
        )
    }

    pub(crate) fn clock(&mut self) -> Result<u64, String> {
        let asked = || Tag::Clock.words().to_owned();
        self.next(asked, |head, _| match head {
            Head::Clock(nanos) => Some(Some(nanos)),
            Head::Of(..) => None,
        })
    }

    pub(crate) fn task(&mut self, told: &Told) -> Result<(), String> {
        self.next(
            || show::task(told),
            |head, from| {
                let is_same =
                    head == Head::Of(Tag::Task, None) && get_task(from).as_ref() == Some(told);
                is_same.then_some(Some(()))
            },
        )
    }

    /// Moves the events of a wait to `given`, if they come now.
    pub(crate) fn events(
        &mut self,
        given: &mut Vec<(u64, u8)>,
        token: impl Fn(u32) -> Option<u64>,
    ) -> Result<(), String> {
        let Some((Head::Of(Tag::Wait, _), mut cursor, mut last)) = self.peek()? else {
            return Ok(());
        };
        let events = get_events(&mut cursor, &mut last).ok_or_else(damaged)?;
        let left = cursor.0.len();
        self.advance(left, last);
        for (socket, flags) in events {
            let unknown = || {
                format!(
                    "the tape has an event of socket {socket}, which the program has not registered"
                )
            };
            given.push((token(socket).ok_or_else(unknown)?, flags));
        }
        Ok(())
    }

    /// Returns what comes from elsewhere now.
    pub(crate) fn delivery(&mut self) -> Result<Option<Given>, String> {
        let Some((head, mut cursor, last)) = self.peek()? else {
            return Ok(None);
        };
        let given = match head {
            Head::Of(Tag::JobDone, _) => cursor
                .number()
                .zip(cursor.bytes())
                .map(|(id, result)| Given::Job(id, result.to_vec())),
            Head::Of(Tag::Signals, _) => cursor
                .number()
                .zip(cursor.number())
                .map(|(number, count)| Given::Signals(number as usize, count)),
            _ => return Ok(None),
        };
        let left = cursor.0.len();
        let given = given.ok_or_else(damaged)?;
        self.advance(left, last);
        Ok(Some(given))
    }

    /// The program has ended. A torn tape may have lost that.
    pub(crate) fn end(&mut self, end: End) -> Result<(), String> {
        let is_same = match self.peek()? {
            Some((Head::Of(Tag::End, _), mut cursor, _)) => get_value(&mut cursor) == Some(end),
            Some(_) => false,
            None => true,
        };
        if is_same {
            Ok(())
        } else {
            Err(self.differs(end.words()))
        }
    }

    fn ended(&self) -> String {
        let damage = self
            .blocks
            .damage
            .as_deref()
            .unwrap_or("the recording was cut off");
        format!("the tape ends here: {damage}")
    }

    /// The next entry is not what the program does.
    fn differs(&mut self, asked: &str) -> String {
        let mut last = self.last;
        let entry = show::entry(&mut Cursor(&self.body[self.at..]), &mut last);
        match entry {
            None => damaged(),
            Some(entry) if entry.tag == Tag::End => {
                format!(
                    "the tape ends here: {}\n  the program: {asked}",
                    entry.words
                )
            }
            Some(entry) => {
                format!(
                    "the replay diverges from the tape\n  the program: {asked}\n  the tape:    {}\n  {CAUSES}",
                    entry.words
                )
            }
        }
    }

    /// Returns the usual causes of a divergence.
    pub(crate) fn causes(&self) -> String {
        let (then, now) = (&self.program, Program::current());
        let mut causes = String::new();
        if then.build != now.build {
            causes += &format!(
                "\n  it was recorded by another build: {}",
                show::printable(&then.path)
            );
        }
        if then.arguments != now.arguments {
            causes += &format!(
                "\n  it was recorded with other arguments: {:?}",
                then.arguments
            );
        }
        causes
    }
}

const CAUSES: &str = "usual causes: a thread that wakes tasks, a foreign descriptor, std::fs, a child process, \
                      an address in memory, randomness or a clock that was not asked through polder, another build";

fn damaged() -> String {
    "the tape is damaged: the next entry cannot be read".to_owned()
}
