//! Entries in words.

use std::time::Duration;

use polder::kernel::sockets::Address;

use crate::tape::{Cursor, End, Event, Filled, Head, Kept, Tag, get_head};

/// An entry.
pub(crate) struct Entry {
    pub(crate) tag: Tag,
    /// The kind of the program's request, without details.
    pub(crate) kind: String,
    pub(crate) words: String,
    /// The number of bytes that crossed.
    pub(crate) payload: usize,
    pub(crate) nanos: u64,
    /// Of a task: its number, that of its site, and the site, if that is new.
    pub(crate) task: Option<(u64, u64, Option<String>)>,
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

/// Returns what the program asks for, which is an entry without its answer.
pub(crate) fn asked(asked: &[u8], mut last: Option<u32>) -> String {
    let clock = || Tag::Clock.words().to_owned();
    question(&mut Cursor(asked), &mut last).map_or_else(clock, |(_, entry)| printable(&entry.words))
}

/// Reads an entry, in words that print. `None`: it is damaged.
pub(crate) fn entry(from: &mut Cursor<'_>, last: &mut Option<u32>) -> Option<Entry> {
    let (head, mut entry) = question(from, last)?;
    let answer = if head.has_failed {
        std::io::Error::get(from)?.to_string()
    } else {
        answer(&mut entry, from, last)?
    };
    if !answer.is_empty() {
        entry.words += &format!(": {answer}");
    }
    entry.words = printable(&entry.words);
    entry.kind = printable(&entry.kind);
    Some(entry)
}

fn question(from: &mut Cursor<'_>, last: &mut Option<u32>) -> Option<(Head, Entry)> {
    let head = get_head(from, last)?;
    let of = head
        .of
        .map_or(String::new(), |socket| format!(" on {socket}"));
    let (mut text, mut nanos, mut task) = (head.tag.words().to_owned(), 0, None);
    let mut kind = text.clone();
    match head.tag {
        Tag::Do | Tag::Number | Tag::Address => {
            text = from.text()?;
            kind = text.split(" (").next()?.to_owned();
            text += &of;
        }
        Tag::Write => {
            let check = u16::from_le_bytes(from.array()?);
            text += &format!("{of} of bytes with the checksum {check:04x}");
        }
        Tag::Task => {
            let (id, site) = <(u64, u64)>::get(from)?;
            let place = if site & 1 == 1 {
                Some(from.text()?)
            } else {
                None
            };
            let spawned = place.as_ref().map(|place| format!(", spawned at {place}"));
            text = format!("task {id} runs{}", spawned.unwrap_or_default());
            task = Some((id, site >> 1, place));
        }
        Tag::End => text = End::get(from)?.words().to_owned(),
        Tag::Clock => {
            nanos = from.number()? >> 1;
            text += &format!(": {:?} later", Duration::from_nanos(nanos));
        }
        _ => text += &of,
    }
    let entry = Entry {
        tag: head.tag,
        kind,
        words: text,
        payload: 0,
        nanos,
        task,
    };
    Some((head, entry))
}

/// Reads the answer of what has not failed.
fn answer(entry: &mut Entry, from: &mut Cursor<'_>, last: &mut Option<u32>) -> Option<String> {
    Some(match entry.tag {
        Tag::Task | Tag::End | Tag::Clock | Tag::Do => String::new(),
        Tag::Events => {
            let events = Vec::<Event>::get(from)?;
            *last = events.last().map(|event| event.0);
            let events = events.iter().map(|(socket, flags, _)| {
                let names = ["readable", "writable", "closed", "error"];
                let set = (0..4).filter(|bit| flags >> bit & 1 == 1);
                let set: Vec<_> = set.map(|bit| names[bit]).collect();
                format!("{socket} {}", set.join(" and "))
            });
            events.collect::<Vec<_>>().join(", ")
        }
        Tag::Arrived => {
            let (id, bytes) = <(u64, Vec<u8>)>::get(from)?;
            entry.payload = bytes.len();
            format!("number {id}, {} bytes", bytes.len())
        }
        Tag::Notice => from.text()?,
        Tag::Wall => format!("{:?} since 1970", Duration::get(from)?),
        Tag::Random => {
            entry.payload = Vec::<u8>::get(from)?.len();
            format!("{} bytes", entry.payload)
        }
        Tag::Number => Option::<u64>::get(from)?.map_or("none".to_owned(), |it| it.to_string()),
        Tag::Address => Address::get(from)?.to_string(),
        Tag::Read | Tag::Peek | Tag::Receive | Tag::PeekFrom => {
            let Filled(length, flag) = Filled::get(from)?;
            let is_stream = matches!(entry.tag, Tag::Read | Tag::Peek);
            let peer = if is_stream {
                String::new()
            } else {
                format!(" from {}", Address::get(from)?)
            };
            from.take(length)?;
            entry.payload = length;
            let end = match (flag, is_stream) {
                (false, _) => "",
                (true, true) => ", nothing is left",
                (true, false) => ", the end was lost",
            };
            format!("{length} bytes{peer}{end}")
        }
        Tag::Write => match usize::get(from)? {
            0 => "all".to_owned(),
            left => format!("{left} bytes are left"),
        },
    })
}
