//! A tape as a list and as a page.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use crate::tape::{Reader, Tag};
use crate::words::{self, Entry, printable};

/// A tape that is shown, with the state behind the entry that was read last.
struct Shown {
    tape: Reader,
    until: u64,
    program: String,
    time: Duration,
    /// The task, and the number of its site.
    task: (u64, u64),
    sites: BTreeMap<u64, String>,
    /// Why there is no further entry.
    why: String,
}

impl Shown {
    fn open(path: &Path, until: Option<u64>) -> io::Result<Shown> {
        let tape = Reader::open(path)?;
        let program = format!("{} {}", tape.program.path, tape.program.arguments.join(" "));
        Ok(Shown {
            why: String::new(),
            tape,
            until: until.unwrap_or(u64::MAX),
            program: printable(&program),
            time: Duration::ZERO,
            task: (0, 0),
            sites: BTreeMap::new(),
        })
    }

    /// Returns the next entry, and its length.
    fn next(&mut self) -> io::Result<Option<(Entry, usize)>> {
        let tape = &mut self.tape;
        if !tape.has_next()? {
            if self.why.is_empty() {
                self.why = tape.why();
            }
            return Ok(None);
        }
        if tape.entries >= self.until {
            self.why = "the list was to stop here".to_owned();
            return Ok(None);
        }
        let (mut cursor, mut last) = (tape.rest(), tape.last);
        let Some(found) = words::entry(&mut cursor, &mut last) else {
            self.why = format!("entry {} is damaged", tape.entries);
            return Ok(None);
        };
        let left = cursor.0.len();
        let length = tape.advance(left, last);
        self.time = self.time.saturating_add(Duration::from_nanos(found.nanos));
        if let Some((id, site, place)) = &found.task {
            self.task = (*id, *site);
            if let Some(place) = place {
                self.sites.insert(*site, printable(place));
            }
        }
        if found.tag == Tag::End {
            self.why.clone_from(&found.words);
        }
        Ok(Some((found, length)))
    }
}

/// The numbers of entries, of bytes, and of bytes of payload, by what is in words.
type Sums = BTreeMap<String, [usize; 3]>;

fn write_sums(sums: Sums, by: &str, to: &mut dyn Write) -> io::Result<()> {
    writeln!(to, "\nby {by}")?;
    for (name, [entries, bytes, payload]) in sums {
        let bytes = format!("{bytes:>11} bytes {payload:>11} of payload");
        writeln!(to, "{entries:>9} entries {bytes}  {name}")?;
    }
    Ok(())
}

/// Lists the tape at `path` in lines, up to the entry `until`: what `polder-replay show` prints.
///
/// ```
/// # let path = std::env::temp_dir().join(format!("show-{}.tape", std::process::id()));
/// polder_replay::record(&path, async {})?;
/// let mut text = Vec::new();
/// polder_replay::show(&path, None, &mut text)?;
/// assert!(String::from_utf8_lossy(&text).contains("the future returned"));
/// # std::fs::remove_file(path)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The file is no tape, or an error of `to`.
pub fn show(path: impl AsRef<Path>, until: Option<u64>, to: &mut dyn Write) -> io::Result<()> {
    let mut tape = Shown::open(path.as_ref(), until)?;
    writeln!(to, "recorded by {}", tape.program)?;
    let (mut by_kind, mut by_site) = (Sums::new(), Sums::new());
    while let Some((found, bytes)) = tape.next()? {
        let (number, seconds) = (tape.tape.entries - 1, tape.time.as_secs_f64());
        let (task, site) = tape.task;
        let words = &found.words;
        writeln!(to, "{number:>8} {seconds:>14.9} task {task:<5} {words}")?;
        let site = tape.sites.get(&site).cloned();
        let site = site.unwrap_or("the runtime, before the first task".to_owned());
        for sum in [
            by_kind.entry(found.kind).or_default(),
            by_site.entry(site).or_default(),
        ] {
            for (sum, more) in sum.iter_mut().zip([1, bytes, found.payload]) {
                *sum += more;
            }
        }
    }
    writeln!(to, "{}", tape.why)?;
    write_sums(by_site, "the site where a task was spawned", to)?;
    write_sums(by_kind, "kind", to)
}

/// The rows of a page, which are the last ones: a browser shows so many without delay.
const ROWS: usize = 3_000;

/// Draws the tape at `path` as a page, up to the entry `until`: what `polder-replay show --page`
/// writes. It has the last 3,000 entries (readings of the clock are left
/// out), a lane for the tasks of each spawn site, and a slider,
/// which shows what each task did last.
///
/// ```
/// # let path = std::env::temp_dir().join(format!("page-{}.tape", std::process::id()));
/// polder_replay::record(&path, async {})?;
/// let mut html = Vec::new();
/// polder_replay::page(&path, None, &mut html)?;
/// assert!(String::from_utf8_lossy(&html).contains("the future returned"));
/// # std::fs::remove_file(path)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The file is no tape, or an error of `to`.
pub fn page(path: impl AsRef<Path>, until: Option<u64>, to: &mut dyn Write) -> io::Result<()> {
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
    let page = include_str!("page.html");
    let (head, end) = page.split_once("<!-- rows -->\n").unwrap_or((page, ""));
    let mut tape = Shown::open(path.as_ref(), until)?;
    let mut rows = VecDeque::new();
    while let Some((found, _)) = tape.next()? {
        let (task, site) = match found.tag {
            Tag::Clock | Tag::Task => continue,
            Tag::Events | Tag::Arrived | Tag::Notice | Tag::End => (String::new(), 0),
            _ => (tape.task.0.to_string(), tape.task.1),
        };
        let (number, seconds) = (tape.tape.entries - 1, tape.time.as_secs_f64());
        let cells = format!(
            "<td>{number}<td>{seconds:.9}<td>{task}<td>{}",
            escape(&found.words)
        );
        rows.push_back(format!("<tr class=entry style=--lane:{site}>{cells}"));
        if rows.len() > ROWS {
            rows.pop_front();
        }
    }
    let (program, why) = (escape(&tape.program), escape(&tape.why));
    writeln!(to, "{head}<p>recorded by {program}<p>{why}<table>")?;
    for (site, name) in &tape.sites {
        let name = escape(name);
        writeln!(
            to,
            "<tr class=site style=--lane:{site}><td><td><td><td>{name}"
        )?;
    }
    for row in rows {
        writeln!(to, "{row}")?;
    }
    write!(to, "</table>\n{end}")
}
