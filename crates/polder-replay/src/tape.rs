//! The tape: a file of entries, one for each thing that the system gave.
//!
//! ```text
//! file   magic (8 bytes), version (u32), block…
//! block  length of the body (u32), checksum (u64), body; numbers are little-endian
//! body   entry…; the first body has the header, and nothing else
//! entry  clock:  a varint with the lowest bit set: 1 | nanoseconds since the last reading << 1
//!        others: a byte with the lowest bit clear: tag << 4 | failed << 3 | 2 bits, shifted by
//!                one: whether it is of no socket or file, of the last one, or of that whose number
//!                follows; the argument; the answer or error
//! error  varint: its number, or 0 and a kind and a text
//! events varints: socket << 5 | flags << 1 | 1 if another one follows
//! text   its bytes, and 0xff
//! ```
//!
//! No entry crosses the end of a block. The checksum of a block begins with the one before, so
//! blocks cannot be exchanged. A file that ends within a block, or has one with another checksum,
//! is a tape that ends before it.
//!
//! Nothing that is read here is trusted: a length is compared with what is left of the block before
//! anything is allocated.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufReader, IoSliceMut, Read, Write};
use std::net::{SocketAddr, SocketAddrV6};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

use polder::kernel::sockets::{Address, Name};

const MAGIC: &[u8; 8] = b"poldtape";
const VERSION: u32 = 3;
/// The limit of an entry. A larger read than this is not recorded.
pub(crate) const MAX_ENTRY: usize = 64 << 20;
const MAX_BLOCK: usize = MAX_ENTRY + (4 << 20);

/// The beginning of a file.
pub(crate) fn beginning() -> Vec<u8> {
    [&MAGIC[..], &VERSION.to_le_bytes()].concat()
}

/// Returns the beginning of a block with this body, and advances the checksum.
pub(crate) fn block_head(body: &[u8], checksum: &mut u64) -> [u8; 12] {
    *checksum = checked(body, *checksum);
    let mut head = [0; 12];
    head[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
    head[4..].copy_from_slice(&checksum.to_le_bytes());
    head
}

/// FNV-1a over words, with the length. It finds damage, and is no defence.
pub(crate) fn checked(bytes: &[u8], before: u64) -> u64 {
    let mix = |sum: u64, word: u64| {
        (sum ^ word)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(23)
    };
    let mut words = bytes.chunks_exact(8);
    let sum = (&mut words).fold(
        mix(before ^ 0xcbf2_9ce4_8422_2325, bytes.len() as u64),
        |sum, word| mix(sum, u64::from_le_bytes(word.try_into().unwrap_or_default())),
    );
    (words.remainder().iter()).fold(sum, |sum, byte| mix(sum, u64::from(*byte)))
}

macro_rules! tags {
    ($($name:ident $words:literal,)*) => {
        /// The kind of an entry.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub(crate) enum Tag { $($name,)* }

        impl Tag {
            const ALL: &'static [Tag] = &[$(Tag::$name,)*];

            pub(crate) fn words(self) -> &'static str {
                match self { $(Tag::$name => $words,)* }
            }
        }
    };
}

// There are at most 16. Those without words have a text that names the call.
tags! {
    Events "events of sockets",
    Task "a task runs",
    Arrived "the end of a call on a thread, or a signal",
    Notice "a remark",
    End "the end of the run",
    Wall "reading the wall clock",
    Random "random bytes",
    Do "",
    Number "",
    Address "",
    Read "read",
    Peek "peek",
    Receive "receiving a datagram",
    PeekFrom "peeking at a datagram",
    Write "write",
    Clock "reading the clock",
}

/// The head of an entry, before its argument.
pub(crate) struct Head {
    pub(crate) tag: Tag,
    pub(crate) of: Option<u32>,
    pub(crate) has_failed: bool,
}

/// The bit of an entry's first byte that tells of an error.
pub(crate) const FAILED: u8 = 8;

/// Appends a head. `last` is the socket of the last entry that had one.
#[inline]
pub(crate) fn put_head(to: &mut Vec<u8>, tag: Tag, of: Option<u32>, last: &mut Option<u32>) {
    let form = match of {
        None => 0,
        _ if of == *last => 1,
        _ => 2,
    };
    to.push((tag as u8) << 4 | form << 1);
    if let (2, Some(number)) = (form, of) {
        put_number(to, number.into());
        *last = of;
    }
}

/// That of the clock is part of its number.
pub(crate) fn get_head(from: &mut Cursor<'_>, last: &mut Option<u32>) -> Option<Head> {
    let is_clock = from.0.first()? & 1 == 1;
    let byte = if is_clock { 0xf0 } else { from.byte()? };
    if byte & 6 == 4 {
        *last = Some(u32::try_from(from.number()?).ok()?);
    }
    let tag = *Tag::ALL.get(usize::from(byte >> 4))?;
    (is_clock == (tag == Tag::Clock)).then_some(Head {
        tag,
        of: if byte & 6 == 0 { None } else { Some((*last)?) },
        has_failed: byte & FAILED != 0,
    })
}

/// Appends a number, 7 bits a byte.
#[inline]
pub(crate) fn put_number(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// Appends a text, which has no byte 0xff.
pub(crate) fn put_text(to: &mut Vec<u8>, text: impl Display) {
    let _ = write!(to, "{text}"); // A vector takes everything.
    to.push(0xff);
}

/// The rest of a body. A method returns `None` if the bytes are no such value.
#[derive(Clone)]
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    #[inline]
    pub(crate) fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
            shift += 7;
        }
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        let end = self.0.iter().position(|byte| *byte == 0xff)?;
        let text = String::from_utf8(self.take(end)?.to_vec()).ok()?;
        self.byte().map(|_| text)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
}

/// A value that is kept on a tape.
pub(crate) trait Kept: Sized {
    fn put(&self, to: &mut Vec<u8>);

    fn get(from: &mut Cursor<'_>) -> Option<Self>;

    /// How many bytes follow, which have filled the buffers of the call.
    fn filled(&self) -> usize {
        0
    }
}

impl Kept for () {
    fn put(&self, _: &mut Vec<u8>) {}

    fn get(_: &mut Cursor<'_>) -> Option<()> {
        Some(())
    }
}

/// Values that are kept as another one.
macro_rules! kept_as {
    ($($name:ty: $other:ty, $to:expr, $of:expr;)*) => {$(
        impl $crate::tape::Kept for $name {
            #[inline]
            fn put(&self, to: &mut Vec<u8>) {
                let convert: fn(&$name) -> $other = $to;
                $crate::tape::Kept::put(&convert(self), to);
            }

            #[inline]
            fn get(from: &mut $crate::tape::Cursor<'_>) -> Option<$name> {
                let convert: fn($other) -> Option<$name> = $of;
                convert($crate::tape::Kept::get(from)?)
            }
        }
    )*};
}
pub(crate) use kept_as;

impl Kept for u64 {
    #[inline]
    fn put(&self, to: &mut Vec<u8>) {
        put_number(to, *self);
    }

    #[inline]
    fn get(from: &mut Cursor<'_>) -> Option<u64> {
        from.number()
    }
}

kept_as! {
    u16: u64, |it| (*it).into(), |it| it.try_into().ok();
    u32: u64, |it| (*it).into(), |it| it.try_into().ok();
    usize: u64, |it| *it as u64, |it| it.try_into().ok();
    i64: u64, |it| *it as u64, |it| Some(it as i64);
    bool: u64, |it| (*it).into(), |it| Some(it == 1);
    String: Vec<u8>, |it| it.as_bytes().to_vec(), |it| String::from_utf8(it).ok();
    OsString: Vec<u8>, |it| it.as_bytes().to_vec(), |it| Some(OsString::from_vec(it));
    Duration: (u64, u32), |it| (it.as_secs(), it.subsec_nanos()),
        |(seconds, nanos)| (nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos));
    End: usize, |it| *it as usize, |it| END.get(it).map(|(end, _)| *end);
}

impl Kept for Vec<u8> {
    fn put(&self, to: &mut Vec<u8>) {
        self.len().put(to);
        to.extend_from_slice(self);
    }

    fn get(from: &mut Cursor<'_>) -> Option<Vec<u8>> {
        let length = usize::get(from)?;
        from.take(length).map(<[u8]>::to_vec)
    }
}

/// Each takes a byte at least, which limits what is allocated.
impl<T: Kept> Kept for Vec<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self.len().put(to);
        self.iter().for_each(|value| value.put(to));
    }

    fn get(from: &mut Cursor<'_>) -> Option<Vec<T>> {
        let count = usize::get(from).filter(|count| *count <= from.0.len())?;
        (0..count).map(|_| T::get(from)).collect()
    }
}

/// Structures, as values of their fields.
macro_rules! kept_fields {
    ($($name:ident { $($field:ident)* })*) => {$(
        impl $crate::tape::Kept for $name {
            fn put(&self, to: &mut Vec<u8>) {
                $($crate::tape::Kept::put(&self.$field, to);)*
            }

            fn get(from: &mut $crate::tape::Cursor<'_>) -> Option<$name> {
                Some($name { $($field: $crate::tape::Kept::get(from)?),* })
            }
        }
    )*};
}
pub(crate) use kept_fields;

impl<T: Kept> Kept for Option<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self.is_some().put(to);
        self.iter().for_each(|value| value.put(to));
    }

    fn get(from: &mut Cursor<'_>) -> Option<Option<T>> {
        if bool::get(from)? {
            return T::get(from).map(Some);
        }
        Some(None)
    }
}

impl<A: Kept, B: Kept> Kept for (A, B) {
    fn put(&self, to: &mut Vec<u8>) {
        self.0.put(to);
        self.1.put(to);
    }

    fn get(from: &mut Cursor<'_>) -> Option<(A, B)> {
        Some((A::get(from)?, B::get(from)?))
    }

    fn filled(&self) -> usize {
        self.0.filled()
    }
}

impl Kept for Address {
    fn put(&self, to: &mut Vec<u8>) {
        let (form, bytes): (u64, _) = match self {
            Address::Internet(SocketAddr::V4(address)) => (0, address.ip().octets().to_vec()),
            Address::Internet(SocketAddr::V6(address)) => (1, address.ip().octets().to_vec()),
            Address::Unix(Name::Unnamed) => (2, Vec::new()),
            Address::Unix(Name::Path(name)) => (3, name.clone()),
            Address::Unix(Name::Abstract(name)) => (4, name.clone()),
        };
        (form, bytes).put(to);
        if let Address::Internet(address) = self {
            address.port().put(to);
        }
        if let Address::Internet(SocketAddr::V6(address)) = self {
            (address.flowinfo(), address.scope_id()).put(to);
        }
    }

    fn get(from: &mut Cursor<'_>) -> Option<Address> {
        let (form, bytes) = <(u64, Vec<u8>)>::get(from)?;
        Some(match form {
            0 => {
                let ip: [u8; 4] = bytes.try_into().ok()?;
                Address::Internet((ip, u16::get(from)?).into())
            }
            1 => {
                let ip: [u8; 16] = bytes.try_into().ok()?;
                let (port, (flow, scope)) = Kept::get(from)?;
                Address::Internet(SocketAddrV6::new(ip.into(), port, flow, scope).into())
            }
            2 => Address::Unix(Name::Unnamed),
            3 => Address::Unix(Name::Path(bytes)),
            4 => Address::Unix(Name::Abstract(bytes)),
            _ => return None,
        })
    }
}

/// The kinds of errors that have no number.
const KINDS: [io::ErrorKind; 13] = {
    use io::ErrorKind::*;
    [
        Other,
        NotFound,
        PermissionDenied,
        InvalidInput,
        InvalidData,
        UnexpectedEof,
        Unsupported,
        TimedOut,
        WouldBlock,
        Interrupted,
        AlreadyExists,
        WriteZero,
        ConnectionReset,
    ]
};

impl Kept for io::Error {
    fn put(&self, to: &mut Vec<u8>) {
        let number = self.raw_os_error().filter(|number| *number > 0);
        put_number(to, number.unwrap_or(0) as u64);
        if number.is_none() {
            let kind = KINDS.iter().position(|kind| *kind == self.kind());
            kind.unwrap_or(0).put(to);
            put_text(to, self);
        }
    }

    fn get(from: &mut Cursor<'_>) -> Option<io::Error> {
        Some(match i32::try_from(from.number()?).ok()? {
            0 => io::Error::new(*KINDS.get(usize::get(from)?)?, from.text()?),
            number => io::Error::from_raw_os_error(number),
        })
    }
}

/// The result of a call on a thread.
impl<T: Kept> Kept for io::Result<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self.is_ok().put(to);
        match self {
            Ok(value) => value.put(to),
            Err(error) => error.put(to),
        }
    }

    fn get(from: &mut Cursor<'_>) -> Option<io::Result<T>> {
        if bool::get(from)? {
            return T::get(from).map(Ok);
        }
        io::Error::get(from).map(Err)
    }
}

/// The length of what was read, and a flag: whether nothing is left, or the end was lost. The bytes
/// follow.
#[derive(Clone, Copy)]
pub(crate) struct Filled(pub(crate) usize, pub(crate) bool);

impl Kept for Filled {
    #[inline]
    fn put(&self, to: &mut Vec<u8>) {
        put_number(to, (self.0 as u64) << 1 | u64::from(self.1));
    }

    fn get(from: &mut Cursor<'_>) -> Option<Filled> {
        let number = from.number()?;
        Some(Filled(usize::try_from(number >> 1).ok()?, number & 1 == 1))
    }

    fn filled(&self) -> usize {
        self.0
    }
}

/// An event: of which socket, its flags, and the token of its registration, which is not kept.
pub(crate) type Event = (u32, u8, u64);

/// The events of a wait, which has one at least.
impl Kept for Vec<Event> {
    fn put(&self, to: &mut Vec<u8>) {
        for (place, (socket, flags, _)) in self.iter().enumerate() {
            let has_next = u64::from(place + 1 < self.len());
            put_number(
                to,
                u64::from(*socket) << 5 | u64::from(flags & 15) << 1 | has_next,
            );
        }
    }

    fn get(from: &mut Cursor<'_>) -> Option<Vec<Event>> {
        let mut events = Vec::new();
        loop {
            let event = from.number()?;
            events.push((u32::try_from(event >> 5).ok()?, (event >> 1 & 15) as u8, 0));
            if event & 1 == 0 {
                return Some(events);
            }
        }
    }
}

/// Appends the first bytes that the buffers have.
#[inline]
pub(crate) fn put_buffers(to: &mut Vec<u8>, mut length: usize, buffers: &[IoSliceMut<'_>]) {
    for buffer in buffers {
        let part = &buffer[..length.min(buffer.len())];
        to.extend_from_slice(part);
        length -= part.len();
    }
}

/// Fills the buffers. Fails if they are smaller than the recorded ones.
pub(crate) fn get_buffers(mut bytes: &[u8], buffers: &mut [IoSliceMut<'_>]) -> Option<()> {
    for buffer in buffers {
        let (first, rest) = bytes.split_at(bytes.len().min(buffer.len()));
        buffer[..first.len()].copy_from_slice(first);
        bytes = rest;
    }
    bytes.is_empty().then_some(())
}

/// The program of a tape.
pub(crate) struct Program {
    pub(crate) path: String,
    /// The length of its file, and the checksum of its beginning, which has the number of the
    /// build: another one is another build.
    pub(crate) build: (u64, u64),
    pub(crate) arguments: Vec<String>,
}

impl Program {
    /// Returns this process's.
    pub(crate) fn current() -> Program {
        let path = std::env::current_exe().unwrap_or_default();
        let read = || -> io::Result<(u64, u64)> {
            let file = File::open(&path)?;
            let length = file.metadata()?.len();
            let mut beginning = Vec::new();
            file.take(64 << 10).read_to_end(&mut beginning)?;
            Ok((length, checked(&beginning, 0)))
        };
        let arguments = std::env::args_os().skip(1);
        Program {
            build: read().unwrap_or_default(),
            path: path.to_string_lossy().into_owned(),
            arguments: arguments
                .map(|it| it.to_string_lossy().into_owned())
                .collect(),
        }
    }
}

kept_fields! { Program { path build arguments } }

/// How a tape ends that was not torn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Returned,
    Panicked,
    /// The run went on.
    Limit,
    /// The run went on: what was to be recorded is larger than a block.
    TooLarge,
}

const END: [(End, &str); 4] = [
    (End::Returned, "the future returned"),
    (End::Panicked, "the future panicked"),
    (
        End::Limit,
        "the limit was reached, and the run went on unrecorded",
    ),
    (
        End::TooLarge,
        "a single entry was too large, and the run went on unrecorded",
    ),
];

impl End {
    pub(crate) fn words(self) -> &'static str {
        END[self as usize].1
    }
}

pub(crate) fn bad(words: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words.into())
}

/// Adds the path of a tape to an error.
pub(crate) fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("the tape {}: {error}", path.display()),
    )
}

/// A tape that is read, entry by entry.
pub(crate) struct Reader {
    file: BufReader<File>,
    checksum: u64,
    /// Why there is no further block, if that is not the end of the file.
    damage: Option<&'static str>,
    pub(crate) program: Program,
    body: Vec<u8>,
    at: usize,
    /// The socket of the last entry that had one.
    pub(crate) last: Option<u32>,
    /// The number of those that were read.
    pub(crate) entries: u64,
}

impl Reader {
    /// Opens a tape, and reads its header.
    pub(crate) fn open(path: &Path) -> io::Result<Reader> {
        let open = File::open(path).and_then(Reader::of);
        open.map_err(|error| named(path, &error))
    }

    fn of(file: File) -> io::Result<Reader> {
        let mut reader = Reader {
            file: BufReader::new(file),
            checksum: 0,
            damage: None,
            program: Program::current(),
            body: Vec::new(),
            at: 0,
            last: None,
            entries: 0,
        };
        let mut beginning = [0; 12];
        let read = reader.file.read_exact(&mut beginning);
        let version = u32::from_le_bytes([8, 9, 10, 11].map(|place| beginning[place]));
        if read.is_err() || beginning[..8] != MAGIC[..] {
            return Err(bad("it is no tape"));
        }
        if version != VERSION {
            let words = format!("it has version {version}, and this reads version {VERSION}");
            return Err(bad(words));
        }
        reader.next_block()?;
        if reader.body.is_empty() {
            return Err(bad("it has no header"));
        }
        let program = Program::get(&mut reader.rest());
        reader.program = program.ok_or_else(|| bad("its header is damaged"))?;
        reader.at = reader.body.len();
        Ok(reader)
    }

    /// Reads the next body, which is empty after the last one that is whole.
    fn next_block(&mut self) -> io::Result<()> {
        (self.body, self.at) = (Vec::new(), 0);
        let mut head = Vec::new();
        (&mut self.file).take(12).read_to_end(&mut head)?;
        if head.is_empty() || self.damage.is_some() {
            return Ok(());
        }
        let mut cursor = Cursor(&head);
        let length = cursor.array().map_or(u32::MAX, u32::from_le_bytes);
        let checksum = cursor.array().map(u64::from_le_bytes);
        self.damage = Some("it is torn, or damaged");
        if length as usize > MAX_BLOCK {
            return Ok(());
        }
        // The length is not allocated before that much is there.
        let mut body = Vec::new();
        (&mut self.file)
            .take(length.into())
            .read_to_end(&mut body)?;
        self.checksum = checked(&body, self.checksum);
        if body.len() == length as usize && Some(self.checksum) == checksum {
            (self.body, self.damage) = (body, None);
        }
        Ok(())
    }

    /// Returns whether there is another entry.
    #[inline]
    pub(crate) fn has_next(&mut self) -> io::Result<bool> {
        if self.at == self.body.len() {
            self.next_block()?;
        }
        Ok(self.at < self.body.len())
    }

    /// Returns the next entry, and what follows it.
    pub(crate) fn rest(&self) -> Cursor<'_> {
        Cursor(&self.body[self.at..])
    }

    /// Goes on where so many bytes of the body are left. Returns the length of the entry.
    pub(crate) fn advance(&mut self, left: usize, last: Option<u32>) -> usize {
        let before = std::mem::replace(&mut self.at, self.body.len() - left);
        self.last = last;
        self.entries += 1;
        self.at - before
    }

    /// Says why there is no further entry.
    pub(crate) fn why(&self) -> String {
        let why = self.damage.unwrap_or("the recording was cut off");
        format!("the tape ends here: {why}")
    }
}
