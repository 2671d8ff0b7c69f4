//! [`Player`]: answers from a tape. An entry is consumed by the call that made it when it was
//! recorded; a call that finds another entry ends the replay. What came from elsewhere (events,
//! signals, ends of calls on threads) is given when it is next on the tape: a turn begins by
//! reading the clock, so its place there is unambiguous.

use std::io;
use std::path::Path;

use crate::shared::say;
use crate::tape::{Cursor, FAILED, Head, Kept, Program, Reader, Tag, get_head, put_head};
use crate::words;

pub(crate) struct Player {
    pub(crate) tape: Reader,
    /// The entry before which the replay is to stop.
    until: u64,
    /// The beginning of the entry that the program asks for.
    asked: Vec<u8>,
}

impl Player {
    pub(crate) fn open(path: &Path, until: u64) -> io::Result<Player> {
        let (tape, asked) = (Reader::open(path)?, Vec::new());
        Ok(Player { tape, until, asked })
    }

    /// Returns the next entry's head, and what follows it: how much of the block, and the last
    /// socket. Skips remarks.
    fn peek(&mut self) -> Result<Option<(Head, usize, Option<u32>)>, String> {
        loop {
            let has_next = self.tape.has_next();
            if !has_next.map_err(|error| format!("the tape cannot be read: {error}"))? {
                return Ok(None);
            }
            if self.tape.entries >= self.until {
                return Err("the replay was to stop here".to_owned());
            }
            let (mut cursor, mut last) = (self.tape.rest(), self.tape.last);
            let head = get_head(&mut cursor, &mut last).ok_or_else(damaged)?;
            if head.tag != Tag::Notice {
                return Ok(Some((head, cursor.0.len(), last)));
            }
            let words = cursor.text().ok_or_else(damaged)?;
            let left = cursor.0.len();
            self.tape.advance(left, last);
            let words = words::printable(&words);
            say(format_args!("when this was recorded: {words}"));
        }
    }

    /// Consumes the next entry, if it is the one that is asked for, and `get` reads the answer.
    #[inline]
    pub(crate) fn entry<R>(
        &mut self,
        tag: Tag,
        of: Option<u32>,
        argument: impl FnOnce(&mut Vec<u8>),
        get: impl FnOnce(&mut Cursor<'_>) -> Option<R>,
    ) -> Result<io::Result<R>, String> {
        self.asked.clear();
        put_head(&mut self.asked, tag, of, &mut self.tape.last.clone());
        argument(&mut self.asked);
        let Some((head, _, last)) = self.peek()? else {
            return Err(self.differs());
        };
        if head.has_failed {
            self.asked[0] |= FAILED;
        }
        let Some(answer) = self.tape.rest().0.strip_prefix(&self.asked[..]) else {
            self.asked[0] &= !FAILED;
            return Err(self.differs());
        };
        let mut answer = Cursor(answer);
        let read = if head.has_failed {
            io::Error::get(&mut answer).map(Err)
        } else {
            get(&mut answer).map(Ok)
        };
        let left = answer.0.len();
        let read = read.ok_or_else(|| {
            format!(
                "the tape is damaged, or the program's buffer is smaller than it was: {}",
                words::asked(&self.asked, self.tape.last)
            )
        })?;
        self.tape.advance(left, last);
        Ok(read)
    }

    pub(crate) fn clock(&mut self) -> Result<u64, String> {
        match self.peek()? {
            Some((
                Head {
                    tag: Tag::Clock, ..
                },
                _,
                last,
            )) => {
                let mut cursor = self.tape.rest();
                let nanos = cursor.number().ok_or_else(damaged)? >> 1;
                let left = cursor.0.len();
                self.tape.advance(left, last);
                Ok(nanos)
            }
            _ => {
                self.asked = vec![0x81]; // Without the time.
                Err(self.differs())
            }
        }
    }

    /// Returns what comes from elsewhere now, if it has this tag.
    pub(crate) fn given<T: Kept>(&mut self, tag: Tag) -> Result<Option<T>, String> {
        match self.peek()? {
            Some((head, left, last)) if head.tag == tag => {
                let rest = self.tape.rest().0;
                let mut cursor = Cursor(&rest[rest.len() - left..]);
                let given = T::get(&mut cursor).ok_or_else(damaged)?;
                let left = cursor.0.len();
                self.tape.advance(left, last);
                Ok(Some(given))
            }
            _ => Ok(None),
        }
    }

    /// The next entry is not what the program asks for.
    fn differs(&mut self) -> String {
        let asked = words::asked(&self.asked, self.tape.last);
        let mut last = self.tape.last;
        match self.tape.has_next() {
            Ok(true) => match words::entry(&mut self.tape.rest(), &mut last) {
                None => damaged(),
                Some(entry) if entry.tag == Tag::End => {
                    let why = entry.words;
                    format!("the tape ends here: {why}\n  the program: {asked}")
                }
                Some(entry) => {
                    let found = entry.words;
                    format!(
                        "the replay diverges from the tape\n  the program: {asked}\n  the tape:    {found}\n  {CAUSES}"
                    )
                }
            },
            _ => self.tape.why(),
        }
    }

    /// Returns the usual causes of a divergence.
    pub(crate) fn causes(&self) -> String {
        let (then, now) = (&self.tape.program, Program::current());
        let mut causes = String::new();
        if then.build != now.build {
            let path = words::printable(&then.path);
            causes += &format!("\n  it was recorded by another build: {path}");
        }
        if then.arguments != now.arguments {
            let arguments = &then.arguments;
            causes += &format!(
                "\n  its arguments were {arguments:?} (those of a test's harness do not matter)"
            );
        }
        causes
    }
}

const CAUSES: &str = "usual causes: a thread that wakes tasks, a foreign descriptor, std::fs, a child process, \
                      an address in memory, another build, randomness or a clock that was not asked through polder \
                      (on Linux `polder_replay::answer_for_libc!()`, of the feature `libc`, records both)";

fn damaged() -> String {
    "the tape is damaged: the next entry cannot be read".to_owned()
}
