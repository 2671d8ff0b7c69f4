//! Entries in words, and a tape as a list and as a page.

use std::collections::BTreeMap;
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
        Head::Of(tag, socket) => (tag, socket),
        Head::Clock(nanos) => {
            let later = Duration::from_nanos(nanos);
            return Some(Entry {
                tag: Tag::Clock,
                words: format!("{}: {later:?} later", Tag::Clock.words()),
                payload: 0,
                nanos,
                task: None,
            });
        }
    };
    let mut words = call(tag, socket, &Argument::get(tag.form(), from)?);
    let (mut payload, mut told) = (0, None);
    let result = match tag {
        // It has a form of its own.
        Tag::Clock => return None,
        Tag::Wait => {
            let events = get_events(from, last)?;
            let events = events.iter().map(|(socket, flags)| {
                let names = ["readable", "writable", "closed", "error"];
                let set = (0..4).filter(|bit| flags >> bit & 1 == 1);
                let set: Vec<_> = set.map(|bit| names[bit]).collect();
                (socket, set.join(" and "))
            });
            events.fold(String::new(), |all, (socket, set)| {
                let comma = if all.is_empty() { "" } else { ", " };
                all + comma + &format!("{socket} {set}")
            })
        }
        Tag::Task => {
            let found = get_task(from)?;
            words = task(&found);
            told = Some(found);
            String::new()
        }
        Tag::JobDone => {
            let id = from.number()?;
            payload = from.bytes()?.len();
            format!("number {id}, {payload} bytes")
        }
        Tag::Signals => format!("number {}, {} times", from.number()?, from.number()?),
        Tag::Notice => from.text()?,
        Tag::End => get_value::<End>(from)?.words().to_owned(),
        Tag::Wall => format!("{:?} since 1970", get_value::<Duration>(from)?),
        Tag::Random => {
            payload = get_value::<Vec<u8>>(from)?.len();
            format!("{payload} bytes")
        }
        Tag::Read | Tag::Peek | Tag::Receive | Tag::PeekFrom => match get_result::<Filled>(from)? {
            Ok(Filled(length, flag)) => {
                from.take(length)?;
                payload = length;
                let is_stream = matches!(tag, Tag::Read | Tag::Peek);
                let peer = if is_stream {
                    String::new()
                } else {
                    format!(" from {}", get_value::<Address>(from)?)
                };
                let end = match (flag, is_stream) {
                    (false, _) => "",
                    (true, true) => ", nothing is left",
                    (true, false) => ", the end was lost",
                };
                format!("{length} bytes{peer}{end}")
            }
            Err(error) => error.to_string(),
        },
        Tag::Accept => outcome(from, |peer: Address| format!("from {peer}"))?,
        Tag::PeerCred => outcome(from, |cred: (u64, (u64, u64))| format!("{cred:?}"))?,
        Tag::LocalAddr | Tag::PeerAddr => outcome(from, |it: Address| it.to_string())?,
        Tag::Write | Tag::Send | Tag::FileWrite => outcome(from, |left: usize| match left {
            0 => "all".to_owned(),
            left => format!("{left} bytes are left"),
        })?,
        Tag::Ready => outcome(from, |flags: u32| format!("{flags:04b}"))?,
        Tag::GetOption => outcome(from, |value: Option<u64>| format!("{value:?}"))?,
        Tag::FileRead => outcome(from, |bytes: Vec<u8>| format!("{} bytes", bytes.len()))?,
        Tag::FileSeek => outcome(from, |place: u64| place.to_string())?,
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
        | Tag::FileClone => outcome(from, |()| "done".to_owned())?,
    };
    if !result.is_empty() {
        words += &format!(": {result}");
    }
    Some(Entry {
        tag,
        words,
        payload,
        nanos: 0,
        task: told,
    })
}

fn outcome<T: Kept>(from: &mut Cursor<'_>, of: impl FnOnce(T) -> String) -> Option<String> {
    Some(match get_result(from)? {
        Ok(value) => of(value),
        Err(error) => error.to_string(),
    })
}

/// The numbers of entries, of bytes, and of bytes of payload.
type Sum = [usize; 3];

fn write_sum([entries, bytes, payload]: Sum, name: &str, to: &mut dyn Write) -> io::Result<()> {
    writeln!(
        to,
        "{entries:>9} entries {bytes:>11} bytes {payload:>11} of payload  {name}"
    )
}

/// A tape that is read from its beginning, with the state behind the entry that was read last.
struct Reader {
    blocks: Blocks,
    program: String,
    body: Vec<u8>,
    at: usize,
    last: Option<u32>,
    entries: u64,
    time: Duration,
    /// The task, and the number of its site.
    task: (u64, u64),
    sites: BTreeMap<u64, String>,
    /// Why there is no further entry.
    why: String,
}

impl Reader {
    fn open(path: &Path) -> io::Result<Reader> {
        let (blocks, program) = Blocks::open(path)?;
        let program = format!("{} {}", program.path, program.arguments.join(" "));
        Ok(Reader {
            blocks,
            program: printable(&program),
            body: Vec::new(),
            at: 0,
            last: None,
            entries: 0,
            time: Duration::ZERO,
            task: (0, 0),
            sites: BTreeMap::new(),
            why: "the tape ends here, without the end of the run".to_owned(),
        })
    }

    /// Returns the next entry, and its length, unless it is the entry `until`.
    fn next(&mut self, until: u64) -> io::Result<Option<(Entry, usize)>> {
        while self.at == self.body.len() {
            let Some(body) = self.blocks.next_block()? else {
                self.why = self.blocks.damage.take().unwrap_or(self.why.clone());
                return Ok(None);
            };
            (self.body, self.at) = (body, 0);
        }
        if self.entries >= until {
            self.why = "the list was to stop here".to_owned();
            return Ok(None);
        }
        let mut cursor = Cursor(&self.body[self.at..]);
        let Some(found) = entry(&mut cursor, &mut self.last) else {
            self.why = format!("entry {} is damaged", self.entries);
            return Ok(None);
        };
        let length = self.body.len() - self.at - cursor.0.len();
        self.at += length;
        self.entries += 1;
        self.time = self.time.saturating_add(Duration::from_nanos(found.nanos));
        if let Some((id, site, text)) = &found.task {
            self.task = (*id, *site);
            if let Some(text) = text {
                self.sites.insert(*site, printable(text));
            }
        }
        if found.tag == Tag::End {
            self.why.clone_from(&found.words);
        }
        Ok(Some((found, length)))
    }
}

/// Lists the tape at `path`, up to the entry `until`.
pub(crate) fn list(path: &Path, until: u64, to: &mut dyn Write) -> io::Result<()> {
    let mut tape = Reader::open(path)?;
    writeln!(to, "recorded by {}", tape.program)?;
    let (mut by_tag, mut by_site) = (BTreeMap::<u8, Sum>::new(), BTreeMap::<u64, Sum>::new());
    while let Some((found, bytes)) = tape.next(until)? {
        let (number, seconds) = (tape.entries - 1, tape.time.as_secs_f64());
        let (task, site) = tape.task;
        let words = &found.words;
        writeln!(to, "{number:>8} {seconds:>14.9} task {task:<5} {words}")?;
        for sum in [
            by_tag.entry(found.tag as u8).or_default(),
            by_site.entry(site).or_default(),
        ] {
            for (sum, more) in sum.iter_mut().zip([1, bytes, found.payload]) {
                *sum += more;
            }
        }
    }
    writeln!(to, "{}\n\nby the site where a task was spawned", tape.why)?;
    for (site, sum) in by_site {
        let name = tape.sites.get(&site).map(String::as_str);
        write_sum(
            sum,
            name.unwrap_or("the runtime, before the first task"),
            to,
        )?;
    }
    writeln!(to, "\nby kind")?;
    for (tag, sum) in by_tag {
        write_sum(sum, Tag::ALL[usize::from(tag)].words(), to)?;
    }
    Ok(())
}

/// The rows of a page, which are the last ones: a browser shows so many without delay.
const ROWS: u64 = 3_000;

/// Writes the page of the tape at `path`, up to the entry `until`.
pub(crate) fn page(path: &Path, until: u64, to: &mut dyn Write) -> io::Result<()> {
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
    let page = include_str!("page.html");
    let (head, end) = page.split_once("<!-- rows -->\n").unwrap_or((page, ""));
    let mut tape = Reader::open(path)?;
    let is_row = |entry: &Entry| !matches!(entry.tag, Tag::Clock | Tag::Task);
    let (mut rows, mut place) = (0, 0);
    while let Some((found, _)) = tape.next(until)? {
        rows += u64::from(is_row(&found));
    }
    let (program, why) = (escape(&tape.program), escape(&tape.why));
    writeln!(to, "{head}<p>recorded by {program}<p>{why}<table>")?;
    for (site, name) in &tape.sites {
        writeln!(
            to,
            "<tr class=site style=--lane:{site}><td><td><td><td>{}",
            escape(name)
        )?;
    }
    tape = Reader::open(path)?;
    while let Some((found, _)) = tape.next(until)? {
        place += u64::from(is_row(&found));
        if is_row(&found) && place + ROWS > rows {
            let (number, seconds) = (tape.entries - 1, tape.time.as_secs_f64());
            let (task, site) = match found.tag {
                Tag::Wait | Tag::JobDone | Tag::Signals | Tag::Notice | Tag::End => {
                    Default::default()
                }
                _ => (tape.task.0.to_string(), tape.task.1),
            };
            let words = escape(&found.words);
            writeln!(
                to,
                "<tr class=entry style=--lane:{site}><td>{number}<td>{seconds:.9}<td>{task}<td>{words}"
            )?;
        }
    }
    write!(to, "</table>\n{end}")
}
