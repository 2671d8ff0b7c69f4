//! A JSON writer. Dropping a guard closes its bracket; keys are literals without special
//! characters. Functions are neither inlined nor generic, since each program has many calls of
//! them.

use std::fmt::{self, Display, Write};
use std::time::{Duration, SystemTime};

use super::seconds::Seconds;

pub(super) struct Json<'a> {
    out: &'a mut String,
    is_empty: bool,
    end: char,
}

impl Json<'_> {
    pub(super) fn object(out: &mut String) -> Json<'_> {
        Json::begin(out, '{', '}')
    }

    pub(super) fn list(out: &mut String) -> Json<'_> {
        Json::begin(out, '[', ']')
    }

    fn begin(out: &mut String, start: char, end: char) -> Json<'_> {
        out.push(start);
        let is_empty = true;
        Json { out, is_empty, end }
    }

    #[inline(never)]
    pub(super) fn next(&mut self) -> &mut String {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(',');
        }
        self.out
    }

    /// Begins a member. The caller writes the value.
    #[inline(never)]
    pub(super) fn key(&mut self, key: &str) -> &mut String {
        let out = self.next();
        // Writing to a string does not fail.
        let _ = write!(out, "\"{key}\":");
        out
    }

    /// Writes a member with a `Display` that is JSON: a number, a boolean, null.
    pub(super) fn value(&mut self, key: &str, value: impl Display) -> &mut Self {
        self.display(key, &value);
        self
    }

    #[inline(never)]
    fn display(&mut self, key: &str, value: &dyn Display) {
        let _ = write!(self.key(key), "{value}");
    }

    pub(super) fn seconds(&mut self, key: &str, duration: Duration) -> &mut Self {
        self.value(key, format_args!("{:.3}", Seconds(duration)))
    }

    pub(super) fn at(&mut self, time: SystemTime) -> &mut Self {
        self.value("at", format_args!("{:.3}", Seconds::of_unix(time)))
    }

    #[inline(never)]
    pub(super) fn text(&mut self, key: &str, text: &str) -> &mut Self {
        write_text(self.key(key), text);
        self
    }

    pub(super) fn list_of<T>(
        &mut self,
        key: &str,
        elements: impl IntoIterator<Item = T>,
        write: impl Fn(T, &mut String),
    ) -> &mut Self {
        let mut list = Json::list(self.key(key));
        for element in elements {
            write(element, list.next());
        }
        drop(list);
        self
    }

    pub(super) fn new_line(&mut self) {
        self.out.push('\n');
    }
}

impl Drop for Json<'_> {
    #[inline(never)]
    fn drop(&mut self) {
        self.out.push(self.end);
    }
}

pub(super) struct OrNull<T>(pub(super) Option<T>);

impl<T: Display> Display for OrNull<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("null"),
        }
    }
}

/// Escapes unprintable characters: names and addresses come from users and peers.
fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            // Rust would escape this quote; JSON does not.
            '\'' => out.push('\''),
            _ if character.escape_debug().len() > 1 => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}
