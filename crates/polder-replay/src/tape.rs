//! The tape: a file of entries, one for each thing that the system gave.
//!
//! ```text
//! file   magic (8 bytes), version (u32), block…
//! block  length of the body (u32), checksum (u64), body; numbers are little-endian
//! body   entry…; the first body has the header, and nothing else
//! entry  clock:  a varint with the lowest bit set: 1 | nanoseconds since the last reading << 1
//!        others: a byte with the lowest bit clear: tag << 2 | (of the last socket, or none) << 1;
//!                the number of the socket or file, if that bit is clear; the argument, the result
//! events varints: socket << 5 | flags << 1 | 1 if another one follows
//! result varint: an error is number << 1 | 1 (0: a kind and a text follow), a success is
//!        what `Kept::head` says << 1, with the rest of the value
//! ```
//!
//! No entry crosses the end of a block. The checksum of a block begins with the one before, so
//! blocks cannot be exchanged. A file that ends within a block, or has one with another checksum,
//! is a tape that ends before it.
//!
//! Nothing that is read here is trusted: a length is compared with what is left of the block before
//! anything is allocated.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, IoSliceMut, Read};
use std::net::{SocketAddr, SocketAddrV6};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

use polder::kernel::sockets::{Address, Name};

const MAGIC: &[u8; 8] = b"poldtape";
const VERSION: u32 = 2;
/// The limit of a body. A larger read than this is not recorded.
pub(crate) const MAX_BLOCK: usize = 64 << 20;

/// The beginning of a file.
pub(crate) fn beginning() -> Vec<u8> {
    [&MAGIC[..], &VERSION.to_le_bytes()].concat()
}

/// Returns the beginning of a block with this body, and advances the checksum.
pub(crate) fn block_head(body: &[u8], checksum: &mut u64) -> [u8; 12] {
    *checksum = checked(body, *checksum);
    let mut head = [0; 12];
    head[..4].copy_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
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
            pub(crate) const ALL: &'static [Tag] = &[$(Tag::$name,)*];

            pub(crate) fn words(self) -> &'static str {
                match self { $(Tag::$name => $words,)* }
            }
        }
    };
}

// New ones are added at the end, with a new version.
tags! {
    Clock "reading the clock",
    Wait "events of sockets",
    Task "a task runs",
    JobDone "the end of a call on a thread",
    Signals "signals",
    Notice "a remark",
    End "the end of the run",
    Job "the beginning of a call on a thread",
    Wall "reading the wall clock",
    Random "random bytes",
    Bind "bind",
    Pair "pair",
    Connect "connect",
    Accept "accept",
    Read "read",
    Peek "peek",
    Write "write",
    Receive "receiving a datagram",
    PeekFrom "peeking at a datagram",
    Send "sending a datagram",
    Register "registering for events",
    FinishConnect "the result of connect",
    LocalAddr "the local address",
    PeerAddr "the peer's address",
    PeerCred "the peer's credentials",
    SetPeer "connecting a datagram socket",
    Shutdown "shutdown",
    Ready "the readiness",
    GetOption "an option",
    SetOption "setting an option",
    Listen "listening to signals",
    // Those of files, which have numbers as sockets have.
    FileRead "reading a file",
    FileWrite "writing to a file",
    FileSeek "seeking in a file",
    FileClone "duplicating a file's handle",
}

/// The form of an entry's argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    None,
    Number,
    Text,
    /// Two bytes of a checksum of what was written.
    Check,
}

impl Tag {
    pub(crate) fn has_socket(self) -> bool {
        use Tag::*;
        (self as u8) >= Accept as u8 && self != Listen
    }

    pub(crate) fn form(self) -> Form {
        use Tag::*;
        match self {
            Register | Shutdown | GetOption => Form::Number,
            Job | Bind | Pair | Connect | SetPeer | SetOption | Listen | FileSeek => Form::Text,
            Write | Send | FileWrite => Form::Check,
            _ => Form::None,
        }
    }
}

/// An entry's argument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Argument {
    None,
    Number(u64),
    Text(String),
    Check(u16),
}

impl Argument {
    pub(crate) fn of_bytes(bytes: &[u8], before: u64) -> Argument {
        Argument::Check(checked(bytes, before) as u16)
    }

    #[inline]
    pub(crate) fn put(&self, to: &mut Vec<u8>) {
        match self {
            Argument::None => {}
            Argument::Number(number) => put_number(to, *number),
            Argument::Text(text) => put_bytes(to, text.as_bytes()),
            Argument::Check(check) => to.extend_from_slice(&check.to_le_bytes()),
        }
    }

    pub(crate) fn get(form: Form, from: &mut Cursor<'_>) -> Option<Argument> {
        Some(match form {
            Form::None => Argument::None,
            Form::Number => Argument::Number(from.number()?),
            Form::Text => Argument::Text(from.text()?),
            Form::Check => Argument::Check(u16::from_le_bytes(from.array()?)),
        })
    }

    pub(crate) fn words(&self) -> String {
        match self {
            Argument::None => String::new(),
            Argument::Number(number) => format!(" ({number})"),
            Argument::Text(text) => format!(" ({text})"),
            Argument::Check(check) => format!(" of bytes with the checksum {check:04x}"),
        }
    }
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

pub(crate) fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put_number(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// The rest of a body. A method returns `None` if the bytes are no such value.
#[derive(Clone)]
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    #[inline]
    pub(crate) fn byte(&mut self) -> Option<u8> {
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

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.number()?).ok()?;
        self.take(count)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
}

/// The head of an entry, before its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Head {
    /// A reading of the clock, so many nanoseconds after the last one.
    Clock(u64),
    Of(Tag, Option<u32>),
}

/// Appends a head. `last` is the socket of the last entry that had one.
#[inline]
pub(crate) fn put_head(to: &mut Vec<u8>, tag: Tag, socket: Option<u32>, last: &mut Option<u32>) {
    let is_last = socket.is_none() || socket == *last;
    to.push((tag as u8) << 2 | u8::from(is_last) << 1);
    if let (false, Some(number)) = (is_last, socket) {
        put_number(to, number.into());
        *last = socket;
    }
}

pub(crate) fn get_head(from: &mut Cursor<'_>, last: &mut Option<u32>) -> Option<Head> {
    if from.0.first()? & 1 == 1 {
        return Some(Head::Clock(from.number()? >> 1));
    }
    let byte = from.byte()?;
    let tag = *Tag::ALL.get(usize::from(byte >> 2))?;
    if byte & 2 == 0 {
        *last = Some(u32::try_from(from.number()?).ok()?);
    }
    Some(Head::Of(
        tag,
        if tag.has_socket() {
            Some((*last)?)
        } else {
            None
        },
    ))
}

/// The events of a wait, which has one at least: sockets, and flags.
pub(crate) fn put_events(to: &mut Vec<u8>, events: &[(u32, u8)], last: &mut Option<u32>) {
    for (place, (socket, flags)) in events.iter().enumerate() {
        let has_next = u64::from(place + 1 < events.len());
        let event = u64::from(*socket) << 5 | u64::from(*flags & 15) << 1;
        put_number(to, event | has_next);
        *last = Some(*socket);
    }
}

pub(crate) fn get_events(from: &mut Cursor<'_>, last: &mut Option<u32>) -> Option<Vec<(u32, u8)>> {
    let mut events = Vec::new();
    loop {
        let event = from.number()?;
        let socket = u32::try_from(event >> 5).ok()?;
        events.push((socket, (event >> 1 & 15) as u8));
        if event & 1 == 0 {
            *last = Some(socket);
            return Some(events);
        }
    }
}

/// A task: its number, the number of its site, and the site, if that is new.
pub(crate) type Told = (u64, u64, Option<String>);

pub(crate) fn put_task(to: &mut Vec<u8>, (id, site, text): &Told) {
    put_number(to, *id);
    put_number(to, site << 1 | u64::from(text.is_some()));
    if let Some(text) = text {
        put_bytes(to, text.as_bytes());
    }
}

pub(crate) fn get_task(from: &mut Cursor<'_>) -> Option<Told> {
    let (id, site) = (from.number()?, from.number()?);
    let text = if site & 1 == 1 {
        Some(from.text()?)
    } else {
        None
    };
    Some((id, site >> 1, text))
}

/// A value that is kept on a tape. It is a number and the rest, for a short form of lengths.
pub(crate) trait Kept: Sized {
    fn head(&self) -> u64 {
        0
    }

    fn put(&self, _to: &mut Vec<u8>) {}

    fn get(head: u64, from: &mut Cursor<'_>) -> Option<Self>;
}

impl Kept for () {
    fn get(_: u64, _: &mut Cursor<'_>) -> Option<()> {
        Some(())
    }
}

macro_rules! kept_number {
    ($($name:ty)*) => {$(
        impl Kept for $name {
            fn head(&self) -> u64 {
                *self as u64
            }

            fn get(head: u64, _: &mut Cursor<'_>) -> Option<$name> {
                <$name>::try_from(head).ok()
            }
        }
    )*};
}

kept_number!(u16 u32 u64 usize);

impl Kept for i64 {
    fn head(&self) -> u64 {
        *self as u64
    }

    fn get(head: u64, _: &mut Cursor<'_>) -> Option<i64> {
        Some(head as i64)
    }
}

macro_rules! kept_bytes {
    ($($name:ty: $of:expr, $to:expr;)*) => {$(
        impl Kept for $name {
            fn head(&self) -> u64 {
                self.len() as u64
            }

            fn put(&self, to: &mut Vec<u8>) {
                let bytes: fn(&Self) -> &[u8] = $of;
                to.extend_from_slice(bytes(self));
            }

            fn get(head: u64, from: &mut Cursor<'_>) -> Option<$name> {
                let bytes = from.take(usize::try_from(head).ok()?)?.to_vec();
                let whole: fn(Vec<u8>) -> Option<$name> = $to;
                whole(bytes)
            }
        }
    )*};
}

kept_bytes! {
    Vec<u8>: |it| it, Some;
    String: |it| it.as_bytes(), |bytes| String::from_utf8(bytes).ok();
    OsString: |it| it.as_bytes(), |bytes| Some(OsString::from_vec(bytes));
}

/// Each takes a byte at least, which limits what is allocated.
impl<T: Kept> Kept for Vec<T> {
    fn head(&self) -> u64 {
        self.len() as u64
    }

    fn put(&self, to: &mut Vec<u8>) {
        self.iter().for_each(|value| put_value(to, value));
    }

    fn get(head: u64, from: &mut Cursor<'_>) -> Option<Vec<T>> {
        let count = usize::try_from(head).ok()?;
        if count > from.0.len() {
            return None;
        }
        (0..count).map(|_| get_value(from)).collect()
    }
}

/// Structures, as values of their fields.
macro_rules! kept_fields {
    ($($name:ident { $($field:ident)* })*) => {$(
        impl $crate::tape::Kept for $name {
            fn put(&self, to: &mut Vec<u8>) {
                let $name { $($field),* } = self;
                $($crate::tape::put_value(to, $field);)*
            }

            fn get(_: u64, from: &mut $crate::tape::Cursor<'_>) -> Option<$name> {
                Some($name { $($field: $crate::tape::get_value(from)?),* })
            }
        }
    )*};
}
pub(crate) use kept_fields;

impl<T: Kept> Kept for Option<T> {
    fn head(&self) -> u64 {
        u64::from(self.is_some())
    }

    fn put(&self, to: &mut Vec<u8>) {
        if let Some(value) = self {
            put_value(to, value);
        }
    }

    fn get(head: u64, from: &mut Cursor<'_>) -> Option<Option<T>> {
        match head {
            0 => Some(None),
            1 => get_value(from).map(Some),
            _ => None,
        }
    }
}

impl<A: Kept, B: Kept> Kept for (A, B) {
    fn put(&self, to: &mut Vec<u8>) {
        put_value(to, &self.0);
        put_value(to, &self.1);
    }

    fn get(_: u64, from: &mut Cursor<'_>) -> Option<(A, B)> {
        Some((get_value(from)?, get_value(from)?))
    }
}

impl Kept for Duration {
    fn head(&self) -> u64 {
        self.as_secs()
    }

    fn put(&self, to: &mut Vec<u8>) {
        put_number(to, self.subsec_nanos().into());
    }

    fn get(head: u64, from: &mut Cursor<'_>) -> Option<Duration> {
        let nanos = u32::try_from(from.number()?).ok()?;
        (nanos < 1_000_000_000).then(|| Duration::new(head, nanos))
    }
}

impl Kept for Address {
    fn head(&self) -> u64 {
        match self {
            Address::Internet(SocketAddr::V4(_)) => 0,
            Address::Internet(SocketAddr::V6(_)) => 1,
            Address::Unix(Name::Unnamed) => 2,
            Address::Unix(Name::Path(_)) => 3,
            Address::Unix(Name::Abstract(_)) => 4,
        }
    }

    fn put(&self, to: &mut Vec<u8>) {
        match self {
            Address::Internet(SocketAddr::V4(address)) => {
                to.extend_from_slice(&address.ip().octets());
                put_number(to, address.port().into());
            }
            Address::Internet(SocketAddr::V6(address)) => {
                to.extend_from_slice(&address.ip().octets());
                put_number(to, address.port().into());
                put_number(to, address.flowinfo().into());
                put_number(to, address.scope_id().into());
            }
            Address::Unix(Name::Unnamed) => {}
            Address::Unix(Name::Path(name) | Name::Abstract(name)) => put_bytes(to, name),
        }
    }

    fn get(head: u64, from: &mut Cursor<'_>) -> Option<Address> {
        Some(match head {
            0 => {
                let ip = from.array::<4>()?;
                Address::Internet(SocketAddr::from((ip, get_value::<u16>(from)?)))
            }
            1 => {
                let ip = from.array::<16>()?.into();
                let (port, flow) = (get_value(from)?, get_value(from)?);
                let address = SocketAddrV6::new(ip, port, flow, get_value(from)?);
                Address::Internet(address.into())
            }
            2 => Address::Unix(Name::Unnamed),
            3 => Address::Unix(Name::Path(from.bytes()?.to_vec())),
            4 => Address::Unix(Name::Abstract(from.bytes()?.to_vec())),
            _ => return None,
        })
    }
}

pub(crate) fn put_value(to: &mut Vec<u8>, value: &impl Kept) {
    put_number(to, value.head());
    value.put(to);
}

pub(crate) fn get_value<T: Kept>(from: &mut Cursor<'_>) -> Option<T> {
    let head = from.number()?;
    T::get(head, from)
}

/// The kinds of errors that have no number.
const KINDS: [io::ErrorKind; 12] = {
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
    ]
};

#[inline]
pub(crate) fn put_result<T: Kept>(to: &mut Vec<u8>, result: &io::Result<T>) {
    match result {
        Ok(value) => {
            put_number(to, value.head() << 1);
            value.put(to);
        }
        Err(error) => put_error(to, error),
    }
}

pub(crate) fn put_error(to: &mut Vec<u8>, error: &io::Error) {
    match error.raw_os_error() {
        Some(number) if number > 0 => put_number(to, (number as u64) << 1 | 1),
        _ => {
            let kind = KINDS.iter().position(|kind| *kind == error.kind());
            put_number(to, 1);
            put_number(to, kind.unwrap_or(0) as u64);
            put_bytes(to, error.to_string().as_bytes());
        }
    }
}

pub(crate) fn get_result<T: Kept>(from: &mut Cursor<'_>) -> Option<io::Result<T>> {
    let head = from.number()?;
    if head & 1 == 0 {
        return T::get(head >> 1, from).map(Ok);
    }
    Some(Err(match i32::try_from(head >> 1).ok()? {
        0 => {
            let kind = *KINDS.get(usize::try_from(from.number()?).ok()?)?;
            io::Error::new(kind, from.text()?)
        }
        number => io::Error::from_raw_os_error(number),
    }))
}

/// The length of what was read, and a flag: whether nothing is left, or the end was lost. The bytes
/// follow.
#[derive(Clone, Copy)]
pub(crate) struct Filled(pub(crate) usize, pub(crate) bool);

impl Kept for Filled {
    fn head(&self) -> u64 {
        (self.0 as u64) << 1 | u64::from(self.1)
    }

    fn get(head: u64, _: &mut Cursor<'_>) -> Option<Filled> {
        Some(Filled(usize::try_from(head >> 1).ok()?, head & 1 == 1))
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
pub(crate) fn get_buffers(
    from: &mut Cursor<'_>,
    filled: Filled,
    buffers: &mut [IoSliceMut<'_>],
) -> Option<()> {
    let mut bytes = from.take(filled.0)?;
    for buffer in buffers {
        let (first, rest) = bytes.split_at(bytes.len().min(buffer.len()));
        buffer[..first.len()].copy_from_slice(first);
        bytes = rest;
    }
    bytes.is_empty().then_some(())
}

/// Returns how much was written, of which the tape has how much was left.
pub(crate) fn written(wanted: usize, left: usize) -> io::Result<usize> {
    let damaged = || bad("the tape is damaged: more was left than written");
    wanted.checked_sub(left).ok_or_else(damaged)
}

/// The program of a tape.
#[derive(Clone, PartialEq, Eq, Debug)]
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
        Program {
            build: read().unwrap_or_default(),
            path: path.to_string_lossy().into_owned(),
            arguments: std::env::args_os()
                .skip(1)
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

impl Kept for End {
    fn head(&self) -> u64 {
        *self as u64
    }

    fn get(head: u64, _: &mut Cursor<'_>) -> Option<End> {
        [End::Returned, End::Panicked, End::Limit, End::TooLarge]
            .get(usize::try_from(head).ok()?)
            .copied()
    }
}

impl End {
    pub(crate) fn words(self) -> &'static str {
        match self {
            End::Returned => "the future returned",
            End::Panicked => "the future panicked",
            End::Limit => "the limit was reached, and the run went on unrecorded",
            End::TooLarge => "a single entry was too large, and the run went on unrecorded",
        }
    }
}

/// The blocks of a file.
pub(crate) struct Blocks {
    file: BufReader<Box<dyn Read>>,
    checksum: u64,
    /// Why there is no further block, if that is not the end of the file.
    pub(crate) damage: Option<String>,
}

pub(crate) fn bad(words: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words.into())
}

impl Blocks {
    /// Opens a tape, and reads its header.
    pub(crate) fn open(path: &Path) -> io::Result<(Blocks, Program)> {
        let named = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("the tape {}: {error}", path.display()),
            )
        };
        let file = File::open(path).map_err(named)?;
        Blocks::read(Box::new(file)).map_err(named)
    }

    pub(crate) fn read(file: Box<dyn Read>) -> io::Result<(Blocks, Program)> {
        let mut file = BufReader::new(file);
        let mut beginning = [0; 12];
        (file.read_exact(&mut beginning)).map_err(|_| bad("it is no tape: it is too short"))?;
        let version = u32::from_le_bytes(beginning[8..].try_into().unwrap_or_default());
        if beginning[..8] != MAGIC[..] {
            return Err(bad("it is no tape"));
        }
        if version != VERSION {
            return Err(bad(format!(
                "it has version {version}, and this reads version {VERSION}"
            )));
        }
        let mut blocks = Blocks {
            file,
            checksum: 0,
            damage: None,
        };
        let body = blocks
            .next_block()?
            .ok_or_else(|| bad("it has no header"))?;
        let program = get_value(&mut Cursor(&body)).ok_or_else(|| bad("its header is damaged"))?;
        Ok((blocks, program))
    }

    /// Returns the next body; `None` after the last one that is whole.
    pub(crate) fn next_block(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut head = Vec::new();
        (&mut self.file).take(12).read_to_end(&mut head)?;
        if head.is_empty() || self.damage.is_some() {
            return Ok(None);
        }
        let mut cursor = Cursor(&head);
        let found = cursor
            .array()
            .map(u32::from_le_bytes)
            .zip(cursor.array().map(u64::from_le_bytes));
        let Some((length, checksum)) = found.filter(|(length, _)| *length as usize <= MAX_BLOCK)
        else {
            self.damage = Some("it is torn, or damaged, where a block begins".to_owned());
            return Ok(None);
        };
        // The length is not allocated before that much is there.
        let mut body = Vec::new();
        (&mut self.file)
            .take(length.into())
            .read_to_end(&mut body)?;
        let sum = checked(&body, self.checksum);
        if body.len() != length as usize || sum != checksum {
            self.damage = Some("its last block is torn, or damaged".to_owned());
            return Ok(None);
        }
        self.checksum = sum;
        Ok(Some(body))
    }
}
