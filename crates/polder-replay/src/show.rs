//! Entries in words, and the listing of a tape.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use polder::kernel::sockets::Address;

use crate::deck::Ask;
use crate::tape::{
    Argument, Blocks, Cursor, End, Filled, Head, Kept, Tag, Told, get_events, get_head, get_result,
    get_task, get_value,
};

/// An entry.
pub(crate) struct Entry {
    pub(crate) tag: Tag,
    pub(crate) words: String,
    /// Of what crossed.
    payload: usize,
    nanos: u64,
    task: Option<Told>,
}

/// A call of the program.
pub(crate) fn asked(ask: &Ask) -> String {
    call(ask.tag, ask.socket, &ask.argument)
}

fn call(tag: Tag, socket: Option<u32>, argument: &Argument) -> String {
    let of = socket.map_or(String::new(), |socket| format!(" on {socket}"));
    format!("{}{of}{}", tag.words(), argument.words())
}

pub(crate) fn task((id, _, site): &Told) -> String {
    let site = site
        .as_ref()
        .map_or(String::new(), |site| format!(", spawned at {site}"));
    format!("task {id} runs{site}")
}

/// Returns text of a tape with escapes in the place of what does not print, which a terminal may
/// obey.
pub(crate) fn printable(text: &str) -> String {
    let mut printed = String::new();
    for character in text.chars() {
        match character {
            '"' | '\'' | '\\' => printed.push(character),
            _ => printed.extend(character.escape_debug()),
        }
    }
    printed
}

/// Reads an entry, in words that print. `None`: it is damaged.
pub(crate) fn entry(from: &mut Cursor<'_>, last: &mut Option<u32>) -> Option<Entry> {
    let mut entry = read(from, last)?;
    entry.words = printable(&entry.words);
    Some(entry)
}

fn read(from: &mut Cursor<'_>, last: &mut Option<u32>) -> Option<Entry> {
    let (tag, socket) = match get_head(from, last)? {
        Head::Clock(nanos) => {
            let words = format!(
                "{}: {:?} later",
                Tag::Clock.words(),
                Duration::from_nanos(nanos)
            );
            return Some(Entry {
                tag: Tag::Clock,
                words,
                payload: 0,
                nanos,
                task: None,
            });
        }
        Head::Of(tag, socket) => (tag, socket),
    };
    let argument = Argument::get(tag.form(), from)?;
    let mut words = call(tag, socket, &argument);
    let (mut payload, mut told) = (0, None);
    match tag {
        // It has a form of its own.
        Tag::Clock => return None,
        Tag::Wait => {
            for (socket, flags) in get_events(from, last)? {
                let names = ["readable", "writable", "closed", "error"];
                let set = (0..4)
                    .filter(|bit| flags >> bit & 1 == 1)
                    .map(|bit| names[bit]);
                let _ = write!(
                    words,
                    ", {socket}: {}",
                    set.collect::<Vec<_>>().join(" and ")
                );
            }
        }
        Tag::Task => {
            let found = get_task(from)?;
            words = task(&found);
            told = Some(found);
        }
        Tag::JobDone => {
            let id = from.number()?;
            payload = from.bytes()?.len();
            let _ = write!(words, ": number {id}, {payload} bytes");
        }
        Tag::Signals => {
            let _ = write!(
                words,
                ": number {}, {} times",
                from.number()?,
                from.number()?
            );
        }
        Tag::Notice => {
            let _ = write!(words, ": {}", from.text()?);
        }
        Tag::End => {
            let _ = write!(words, ": {}", get_value::<End>(from)?.words());
        }
        Tag::Wall => {
            return worded::<Duration>(tag, words, from, |time| format!("{time:?} since 1970"));
        }
        Tag::Random => {
            payload = get_value::<Vec<u8>>(from)?.len();
            let _ = write!(words, ": {payload} bytes");
        }
        Tag::Read | Tag::Peek | Tag::Receive | Tag::PeekFrom => match get_result::<Filled>(from)? {
            Ok(Filled(length, flag)) => {
                from.take(length)?;
                payload = length;
                let _ = write!(words, ": {length} bytes");
                if matches!(tag, Tag::Receive | Tag::PeekFrom) {
                    let _ = write!(words, " from {}", get_value::<Address>(from)?);
                }
                words += match (tag, flag) {
                    (_, false) => "",
                    (Tag::Read | Tag::Peek, true) => ", nothing is left",
                    _ => ", the end was lost",
                };
            }
            Err(error) => words += &format!(": {error}"),
        },
        Tag::Accept => return outcome::<Address>(tag, words, from, |peer| format!("from {peer}")),
        Tag::PeerCred => {
            return outcome::<(u64, (u64, u64))>(tag, words, from, |cred| format!("{cred:?}"));
        }
        Tag::LocalAddr | Tag::PeerAddr => {
            return outcome::<Address>(tag, words, from, |it| it.to_string());
        }
        Tag::Write | Tag::Send | Tag::FileWrite => {
            return outcome::<usize>(tag, words, from, |left| match left {
                0 => "all".to_owned(),
                left => format!("{left} bytes are left"),
            });
        }
        Tag::Ready => return outcome::<u32>(tag, words, from, |flags| format!("{flags:04b}")),
        Tag::GetOption => {
            return outcome::<Option<u64>>(tag, words, from, |value| format!("{value:?}"));
        }
        Tag::FileRead => {
            return outcome::<Vec<u8>>(tag, words, from, |bytes| format!("{} bytes", bytes.len()));
        }
        Tag::FileSeek => return outcome::<u64>(tag, words, from, |place| place.to_string()),
        Tag::Job
        | Tag::Bind
        | Tag::Pair
        | Tag::Connect
        | Tag::Register
        | Tag::FinishConnect
        | Tag::SetPeer
        | Tag::Shutdown
        | Tag::SetOption
        | Tag::Listen
        | Tag::FileClone => {
            return outcome::<()>(tag, words, from, |()| "done".to_owned());
        }
    }
    Some(Entry {
        tag,
        words,
        payload,
        nanos: 0,
        task: told,
    })
}

fn plain(tag: Tag, words: String) -> Entry {
    Entry {
        tag,
        words,
        payload: 0,
        nanos: 0,
        task: None,
    }
}

fn worded<T: Kept>(
    tag: Tag,
    words: String,
    from: &mut Cursor<'_>,
    of: impl FnOnce(T) -> String,
) -> Option<Entry> {
    let value = get_value(from)?;
    Some(plain(tag, format!("{words}: {}", of(value))))
}

fn outcome<T: Kept>(
    tag: Tag,
    words: String,
    from: &mut Cursor<'_>,
    of: impl FnOnce(T) -> String,
) -> Option<Entry> {
    let said = match get_result(from)? {
        Ok(value) => of(value),
        Err(error) => error.to_string(),
    };
    Some(plain(tag, format!("{words}: {said}")))
}

#[derive(Default)]
struct Sum {
    entries: u64,
    bytes: usize,
    payload: usize,
}

impl Sum {
    fn add(&mut self, bytes: usize, payload: usize) {
        self.entries += 1;
        self.bytes += bytes;
        self.payload += payload;
    }

    fn line(&self, name: &str) -> String {
        format!(
            "{:>9} entries {:>11} bytes {:>11} of payload  {name}",
            self.entries, self.bytes, self.payload
        )
    }
}

/// Lists the tape at `path`, up to the entry `until`.
pub(crate) fn list(path: &Path, until: u64, to: &mut dyn Write) -> io::Result<()> {
    let (mut blocks, program) = Blocks::open(path)?;
    writeln!(
        to,
        "recorded by {} {}",
        printable(&program.path),
        printable(&program.arguments.join(" "))
    )?;
    let (mut last, mut entries, mut time) = (None, 0_u64, 0_u64);
    let mut current = (0, 0);
    let mut sites = BTreeMap::new();
    let (mut by_tag, mut by_site) = (BTreeMap::<u8, Sum>::new(), BTreeMap::<u64, Sum>::new());
    let mut why = "the tape ends here, without the end of the run".to_owned();
    'tape: while let Some(body) = blocks.next_block()? {
        let mut cursor = Cursor(&body);
        while !cursor.0.is_empty() {
            if entries >= until {
                why = "the list was to stop here".to_owned();
                break 'tape;
            }
            let before = cursor.0.len();
            let Some(found) = entry(&mut cursor, &mut last) else {
                why = format!("entry {entries} is damaged");
                break 'tape;
            };
            time = time.saturating_add(found.nanos);
            if let Some((id, site, text)) = &found.task {
                current = (*id, *site);
                if let Some(text) = text {
                    sites.insert(*site, printable(text));
                }
            }
            let seconds = Duration::from_nanos(time).as_secs_f64();
            writeln!(
                to,
                "{entries:>8} {seconds:>14.9} task {:<5} {}",
                current.0, found.words
            )?;
            let bytes = before - cursor.0.len();
            by_tag
                .entry(found.tag as u8)
                .or_default()
                .add(bytes, found.payload);
            by_site
                .entry(current.1)
                .or_default()
                .add(bytes, found.payload);
            entries += 1;
            if found.tag == Tag::End {
                why.clone_from(&found.words);
            }
        }
    }
    writeln!(to, "{}", blocks.damage.unwrap_or(why))?;
    writeln!(to, "\nby the site where a task was spawned")?;
    for (site, sum) in by_site {
        let name = sites
            .get(&site)
            .map_or("the runtime, before the first task", String::as_str);
        writeln!(to, "{}", sum.line(name))?;
    }
    writeln!(to, "\nby kind")?;
    for (tag, sum) in by_tag {
        writeln!(to, "{}", sum.line(Tag::ALL[usize::from(tag)].words()))?;
    }
    Ok(())
}
