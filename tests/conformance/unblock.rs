//! The promises of `io::Unblock`: bytes and items in order, and none before it is asked for; every
//! error and panic reaches a caller that awaits; a dropped operation loses and doubles nothing.

use std::future::Future;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};

use crate::support::{LIMIT, eventually, in_every_runtime_alone, message, sized, until, within};
use polder::future::{FutureExt, poll_once, yield_now};
use polder::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, BufReader, Unblock, copy as copy_all};
use polder::stream::StreamExt;

/// Runs an operation on a plain thread, with a deadline.
fn here<F: Future<Output = ()>>(rule: impl FnOnce() -> F + Send + 'static) {
    within(LIMIT, "here", || polder::block_on(rule()));
}

/// Blocks a thread until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn pass(&self) {
        let open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(open, |open| !*open));
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

/// Returns the byte at an offset of the test data, in which no two parts are alike.
fn byte(place: usize) -> u8 {
    (place % 251) as u8 ^ (place >> 16) as u8
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(byte).collect()
}

/// A reader of `length` bytes in pieces of all sizes, sometimes interrupted.
struct Pieces {
    length: usize,
    place: usize,
    calls: usize,
}

impl Pieces {
    fn new(length: usize) -> Pieces {
        Pieces {
            length,
            place: 0,
            calls: 0,
        }
    }
}

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.calls += 1;
        if self.calls % 7 == 0 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let piece = 1 << (self.calls % 18);
        let length = piece.min(buf.len()).min(self.length - self.place);
        for byte_ in &mut buf[..length] {
            *byte_ = byte(self.place);
            self.place += 1;
        }
        Ok(length)
    }
}

/// A writer that keeps what is written, in pieces of all sizes, sometimes interrupted, and counts
/// flushed bytes.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<(Vec<u8>, usize, usize)>>);

impl Kept {
    fn written(&self) -> usize {
        self.0.lock().unwrap().0.len()
    }

    fn flushed(&self) -> usize {
        self.0.lock().unwrap().1
    }
}

impl Write for Kept {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let (bytes, _, calls) = &mut *self.0.lock().unwrap();
        *calls += 1;
        if *calls % 7 == 0 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let length = buf.len().min(1 << (*calls % 18));
        bytes.extend(&buf[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        let (bytes, flushed, _) = &mut *self.0.lock().unwrap();
        *flushed = bytes.len();
        Ok(())
    }
}

#[test]
fn bytes_in_order_at_any_capacity() {
    in_every_runtime_alone(|backend| async move {
        for (capacity, length) in [
            (None, 1_000_000),
            (Some(1), 2_000),
            (Some(5_000), 300_000),
            (Some(100_000), 1_000_000),
        ] {
            let length = sized(backend, length);
            let kept = Kept::default();
            let capacity = capacity.unwrap_or(8 << 20);
            let input = Unblock::with_capacity(capacity, Pieces::new(length));
            let mut output = Unblock::with_capacity(capacity, kept.clone());
            let copied = copy_all(input, &mut output).await.unwrap();
            assert_eq!(copied, length as u64);
            output.flush().await.unwrap();
            assert_eq!(kept.flushed(), length);
            assert!(kept.0.lock().unwrap().0 == bytes(length), "{capacity}");
        }
    });
}

/// Endless; counts the bytes read from it, and the bytes written to it once the gate is open.
#[derive(Clone, Default)]
struct Counted(Gate, Arc<AtomicUsize>);

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.1.fetch_add(buf.len(), SeqCst);
        Ok(buf.len())
    }
}

impl Write for Counted {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.pass();
        self.1.fetch_add(buf.len(), SeqCst);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A call reads and writes what is asked for and no more than the capacity.
#[test]
fn call_moves_requested_within_capacity() {
    here(|| async {
        let value = Counted::default();
        value.0.open();
        let count = value.1.clone();
        let mut both = Unblock::with_capacity(4, value);
        for (asked, done) in [(3, 3), (10, 4), (1, 1)] {
            count.store(0, SeqCst);
            assert_eq!(both.read(&mut vec![0; asked]).await.unwrap(), done);
            assert_eq!(both.write(&vec![0; asked]).await.unwrap(), done);
            assert_eq!(count.load(SeqCst), 2 * done);
        }
    });
}

/// Follows a script, one step for each call, and then does nothing.
struct Script<F>(F);

impl<F: FnMut(usize) -> io::Result<usize>> Read for Script<F> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0(buf.len())
    }
}

impl<F: FnMut(usize) -> io::Result<usize>> Write for Script<F> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0(0).map(drop)
    }
}

impl<F: FnMut(usize) -> io::Result<usize>> Seek for Script<F> {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Ok(0)
    }
}

impl<F: FnMut(usize) -> io::Result<usize>> Iterator for Script<F> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.0(0).ok()
    }
}

/// An error of a read is returned and reading goes on.
#[test]
fn read_error_returned_reading_continues() {
    here(|| async {
        let mut call = 0;
        let mut input = Unblock::new(Script(move |_| {
            call += 1;
            match call {
                1 | 3 => Ok(5),
                2 => Err(io::Error::other("on purpose")),
                _ => Ok(0),
            }
        }));
        let mut bytes = [1; 100];
        assert_eq!(input.read(&mut []).await.unwrap(), 0, "nothing is begun");
        assert_eq!(input.read(&mut bytes[..3]).await.unwrap(), 3);
        let error = input.read(&mut bytes).await.unwrap_err();
        assert_eq!(error.to_string(), "on purpose");
        assert_eq!(input.read(&mut bytes).await.unwrap(), 5);
        assert_eq!(input.read(&mut bytes).await.unwrap(), 0);
        assert_eq!(input.read(&mut bytes).await.unwrap(), 0, "and again");
    });
}

/// An error of a write is returned once also where its future was dropped.
#[test]
fn write_error_returned_once_after_drop() {
    /// The first write fails, once the gate is open.
    fn failing(gate: &Gate) -> Unblock<impl Read + Write + Seek + Send + use<>> {
        let (mut failed, gate) = (false, gate.clone());
        let script = Script(move |length| {
            if length > 0 && !std::mem::replace(&mut failed, true) {
                gate.pass();
                Err(io::Error::other("on purpose"))
            } else {
                Ok(length)
            }
        });
        Unblock::new(script)
    }
    fn check<R>(result: io::Result<R>) {
        let error = result.err().expect("it fails");
        assert_eq!(error.to_string(), "on purpose");
    }
    here(|| async {
        let gate = Gate::default();
        let dropped = || async {
            let gate = Gate::default();
            let mut output = failing(&gate);
            assert!(poll_once(output.write(b"x")).await.is_none());
            gate.open();
            output
        };
        gate.open();
        let mut output = failing(&gate);
        check(output.write(b"x").await);
        output.write_all(b"x").await.unwrap();
        output.flush().await.unwrap();

        check(dropped().await.flush().await);
        check(dropped().await.close().await);
        check(dropped().await.write(b"y").await);
        check(dropped().await.read(&mut [0]).await);
        check(dropped().await.seek(SeekFrom::Start(0)).await);

        // A function that is dropped is awaited, too, and what it has written is flushed.
        let flushed = Kept::default();
        let mut value = Unblock::new(flushed.clone());
        let gate = Gate::default();
        let slow = gate.clone();
        let function = move |value: &mut Kept| {
            slow.pass();
            value.write_all(b"bytes").unwrap();
        };
        assert!(poll_once(value.with_mut(function)).await.is_none());
        gate.open();
        value.flush().await.unwrap();
        assert_eq!(flushed.flushed(), 5);

        // An operation without an error result keeps the error for the next one.
        let mut output = dropped().await;
        output.get_mut().await;
        output.with_mut(|_| ()).await;
        check(output.flush().await);
        output.write_all(b"x").await.unwrap();
        output.flush().await.unwrap();

        let mut full = Unblock::new(Script(|_| Ok(0)));
        let error = full.write_all(b"x").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    });
}

#[test]
fn a_seek_takes_what_was_read_ahead_into_account() {
    here(|| async {
        const LENGTH: usize = 300_000;
        for capacity in [1, 1_000, 8 << 20] {
            let mut file = Unblock::with_capacity(capacity, Cursor::new(bytes(LENGTH)));
            let mut some = [0; 10];
            file.read_exact(&mut some).await.unwrap();
            assert_eq!(file.seek(SeekFrom::Current(0)).await.unwrap(), 10);
            file.read_exact(&mut some).await.unwrap();
            assert_eq!(some[..], bytes(20)[10..]);
            assert_eq!(file.seek(SeekFrom::Current(5)).await.unwrap(), 25);
            file.read_exact(&mut some).await.unwrap();
            assert_eq!(some[..], bytes(35)[25..]);
            // A failed seek does not move the position.
            file.seek(SeekFrom::Current(-100)).await.unwrap_err();
            file.read_exact(&mut some).await.unwrap();
            assert_eq!(some[..], bytes(45)[35..]);
            let end = file.seek(SeekFrom::End(-3)).await.unwrap();
            assert_eq!(end, LENGTH as u64 - 3);
            let mut rest = Vec::new();
            file.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, bytes(LENGTH)[LENGTH - 3..]);
            // A dropped seek is still performed, and so is the one after it.
            let _ = poll_once(file.seek(SeekFrom::Start(7))).await;
            assert_eq!(file.seek(SeekFrom::Start(3)).await.unwrap(), 3);
            let _ = poll_once(file.seek(SeekFrom::Start(7))).await;
            file.read_exact(&mut some).await.unwrap();
            assert_eq!(some[..], bytes(17)[7..]);
            // Writes where reading stopped, after a seek.
            let place = file.seek(SeekFrom::Current(0)).await.unwrap();
            assert_eq!(place, 17);
            file.write_all(b"hello").await.unwrap();
            file.seek(SeekFrom::Start(16)).await.unwrap();
            let mut text = [0; 7];
            file.read_exact(&mut text).await.unwrap();
            assert_eq!(&text[1..6], b"hello");
            assert_eq!([text[0], text[6]], [byte(16), byte(22)]);
            let inner = file.into_inner().await.into_inner();
            assert_eq!(inner.len(), LENGTH);
        }
    });
}

/// A seek that is dropped and repeated is made once.
#[test]
fn dropped_seek_repeated_is_made_once() {
    /// Seeks once the gate is open.
    struct Slow(Gate, Cursor<Vec<u8>>);

    impl Seek for Slow {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.0.pass();
            self.1.seek(to)
        }
    }

    here(|| async {
        let gate = Gate::default();
        let mut file = Unblock::new(Slow(gate.clone(), Cursor::default()));
        let by_five = SeekFrom::Current(5);
        assert!(poll_once(file.seek(by_five)).await.is_none());
        gate.open();
        assert_eq!(file.seek(by_five).await.unwrap(), 5);
        assert_eq!(file.seek(by_five).await.unwrap(), 10);
        // Another operation in between: both are made.
        let _ = poll_once(file.seek(by_five)).await;
        file.get_mut().await;
        assert_eq!(file.seek(by_five).await.unwrap(), 20);
    });
}

/// A panic of the value reaches the awaiting task, and the value stays usable.
#[test]
fn panic_of_value_reaches_awaiter() {
    async fn panics<T>(operation: impl Future<Output = T>) {
        let result = AssertUnwindSafe(operation).catch_unwind().await;
        match result {
            Ok(_) => panic!("it does not panic"),
            Err(panic) => assert_eq!(message(&*panic), "on purpose"),
        }
    }
    fn once() -> Unblock<Script<impl FnMut(usize) -> io::Result<usize> + Send>> {
        let mut panicked = false;
        Unblock::new(Script(move |length| {
            if std::mem::replace(&mut panicked, true) {
                Ok(length)
            } else {
                panic!("on purpose")
            }
        }))
    }
    here(|| async {
        let mut bytes = [0; 5];
        let mut input = once();
        panics(input.read(&mut bytes)).await;
        assert_eq!(input.read(&mut bytes).await.unwrap(), 5);

        let mut output = once();
        panics(output.write_all(b"x")).await;
        output.write_all(b"x").await.unwrap();
        output.flush().await.unwrap();

        let mut items = once();
        panics(items.next()).await;
        assert_eq!(items.next().await, Some(0));

        let mut value = Unblock::new(5);
        panics(value.with_mut(|_| panic!("on purpose"))).await;
        assert_eq!(value.with_mut(|value| *value + 1).await, 6);
        // Dropped, so that the next operation gets the panic.
        let gate = Gate::default();
        let opened = gate.clone();
        let given_up = value.with_mut(move |_| {
            opened.pass();
            panic!("on purpose");
        });
        assert!(poll_once(given_up).await.is_none());
        gate.open();
        panics(value.get_mut()).await;
        assert_eq!(*value.get_mut().await, 5);
    });
}

#[test]
fn giving_up_an_operation_loses_nothing() {
    in_every_runtime_alone(|_| async {
        let mut input = BufReader::new(Unblock::with_capacity(100, Pieces::new(5_000)));
        let mut all = Vec::<u8>::new();
        let mut some = [0; 7];
        loop {
            match poll_once(input.read(&mut some)).await {
                Some(Ok(0)) => break,
                Some(read) => all.extend(&some[..read.unwrap()]),
                None => yield_now().await,
            }
        }
        assert!(all == bytes(5_000));

        let kept = Kept::default();
        let mut output = Unblock::with_capacity(100, kept.clone());
        let all = bytes(5_000);
        let mut written = 0;
        while written < all.len() {
            match poll_once(output.write(&all[written..])).await {
                Some(length) => {
                    written += length.unwrap();
                    let _ = poll_once(output.flush()).await;
                }
                None => yield_now().await,
            }
        }
        output.flush().await.unwrap();
        assert!(kept.0.lock().unwrap().0 == all);

        // A function runs to its end even if its future is dropped.
        let called = Arc::new(AtomicBool::new(false));
        let mut value = Unblock::new(5);
        let then = called.clone();
        let _ = poll_once(value.with_mut(move |_| then.store(true, SeqCst))).await;
        assert_eq!(*value.get_mut().await, 5);
        assert!(called.load(SeqCst));
    });
}

/// A stop that was given up does not stop what goes on.
#[test]
fn stop_abandoned_stops_nothing() {
    here(|| async {
        let gate = Gate::default();
        let opened = gate.clone();
        let begun = Arc::new(AtomicBool::new(false));
        let begins = begun.clone();
        let mut left = 3;
        let mut input = Unblock::new(Script(move |length: usize| {
            begins.store(true, SeqCst);
            opened.pass();
            left = std::cmp::max(left, 1) - 1;
            Ok(if left > 0 { length.min(5) } else { 0 })
        }));
        let mut some = [0; 5];
        assert!(poll_once(input.read(&mut some)).await.is_none());
        until("a thread reads", || begun.load(SeqCst)).await;
        assert!(poll_once(input.get_mut()).await.is_none());
        gate.open();
        input.read_exact(&mut some).await.unwrap();
        input.read_exact(&mut some).await.unwrap();
        assert_eq!(input.read(&mut some).await.unwrap(), 0);
    });
}

/// An iterator gives its items in their order and none before it is asked for.
#[test]
fn iterator_items_in_order_on_demand() {
    in_every_runtime_alone(|_| async {
        let items = Unblock::new(0..100);
        assert!(items.collect::<Vec<_>>().await.into_iter().eq(0..100));
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let endless = std::iter::repeat_with(move || counted.fetch_add(1, SeqCst));
        let mut endless = Unblock::new(endless);
        for index in 0..30 {
            // One that is not awaited is not lost, and no other one is made meanwhile.
            let item = match poll_once(endless.next()).await {
                Some(item) => item,
                None => {
                    endless.with_mut(|_| ()).await;
                    assert_eq!(count.load(SeqCst), index + 1);
                    endless.next().await
                }
            };
            assert_eq!((item, count.load(SeqCst)), (Some(index), index + 1));
        }
        // Items may follow a `None`.
        let mut left = [Some(1), None, Some(2)].into_iter();
        let mut some = Unblock::new(std::iter::from_fn(move || left.next().flatten()));
        assert_eq!(some.next().await, Some(1));
        assert_eq!(some.next().await, None);
        assert_eq!(some.next().await, Some(2));
        assert_eq!(some.next().await, None);
        // Returns the inner value.
        let mut rest = Unblock::new(0..10);
        assert_eq!(rest.next().await, Some(0));
        assert_eq!(rest.into_inner().await.next(), Some(1));
    });
}

/// Reports its drop.
struct Held<T>(T, #[allow(dead_code)] Arc<()>);

impl<T: Read> Read for Held<T> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl<T: Write> Write for Held<T> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<T: Iterator> Iterator for Held<T> {
    type Item = T::Item;

    fn next(&mut self) -> Option<T::Item> {
        self.0.next()
    }
}

impl<T: Seek> Seek for Held<T> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.0.seek(position)
    }
}

#[test]
fn dropped_at_any_moment_it_lets_go_of_the_value() {
    let held = Arc::new(());
    let value = held.clone();
    here(|| async move {
        let mut some = [0; 3];
        drop(Unblock::new(Held(0, value.clone())));
        for polls in 0..3 {
            let mut input = Unblock::new(Held(Counted::default(), value.clone()));
            for _ in 0..polls {
                let _ = poll_once(input.read(&mut some)).await;
            }
            drop(input);
            let mut items = Unblock::new(Held(0_u64.., value.clone()));
            for _ in 0..polls {
                let _ = poll_once(items.next()).await;
            }
            drop(items);
            let mut file = Unblock::new(Held(Cursor::new(bytes(100)), value.clone()));
            for _ in 0..polls {
                let _ = poll_once(file.seek(SeekFrom::Start(5))).await;
                let _ = poll_once(file.with_mut(|_| ())).await;
            }
            drop(file);
        }
        // Full, so that no thread is running.
        let mut full = Unblock::with_capacity(1, Held(Counted::default(), value.clone()));
        full.read_exact(&mut some).await.unwrap();
        drop(full);
        // In a blocking call.
        let gate = Gate::default();
        let opened = gate.clone();
        let mut blocked = Unblock::new(Held(
            Script(move |length| {
                opened.pass();
                Ok(length)
            }),
            value,
        ));
        assert!(poll_once(blocked.read(&mut some)).await.is_none());
        drop(blocked);
        gate.open();
    });
    eventually("every value is gone", || Arc::strong_count(&held) == 1);
}

/// A write that has completed is with the value which a flush or closing flushes.
#[test]
fn write_completed_is_flushed_to_value() {
    in_every_runtime_alone(|_| async {
        for length in [1, 100, 200_000] {
            let kept = Kept::default();
            let mut output = Unblock::new(kept.clone());
            output.write_all(&bytes(length)).await.unwrap();
            assert_eq!((kept.written(), kept.flushed()), (length, 0));
            output.flush().await.unwrap();
            assert_eq!(kept.flushed(), length);
            output.write_all(b"x").await.unwrap();
            output.close().await.unwrap();
            assert_eq!(kept.flushed(), length + 1);
            let last = Arc::strong_count(&kept.0);
            assert_eq!(last, 1, "closing lets go of the value");
        }
    });
}

#[test]
fn what_was_closed_is_an_error() {
    here(|| async {
        let mut file = Unblock::new(Cursor::new(vec![1]));
        file.close().await.unwrap();
        assert_eq!(format!("{file:?}"), "Unblock { io: <closed> }");
        file.flush().await.unwrap();
        file.close().await.unwrap();
        let closed = |error: io::Error| assert!(error.to_string().contains("closed"), "{error}");
        closed(file.read(&mut [0]).await.unwrap_err());
        closed(file.write(&[0]).await.unwrap_err());
        closed(file.seek(SeekFrom::Start(0)).await.unwrap_err());
        let panic = AssertUnwindSafe(file.get_mut()).catch_unwind().await;
        assert!(message(&*panic.unwrap_err()).contains("closed"));
    });
}

/// Bytes of a dropped read are kept by a flush and by a function.
#[test]
fn dropped_reads_bytes_kept_by_flush() {
    here(|| async {
        let mut file = Unblock::new(Cursor::new(bytes(100)));
        let mut some = [0; 10];
        let read = poll_once(file.read(&mut some)).await;
        let seen = read.map_or(0, |length| length.unwrap());
        file.flush().await.unwrap();
        file.with_mut(|_| ()).await;
        file.read_exact(&mut some).await.unwrap();
        assert_eq!(some[..], bytes(100)[seen..seen + 10]);
    });
}

/// Operations that are always ready let other tasks run.
#[test]
fn always_ready_yields_to_others() {
    here(|| async {
        let done = Arc::new(AtomicBool::new(false));
        let then = done.clone();
        let other = polder::spawn(async move { then.store(true, SeqCst) });
        let mut input = Unblock::new(Counted::default());
        let mut some = [0; 1];
        while !done.load(SeqCst) {
            input.read_exact(&mut some).await.unwrap();
        }
        other.await;
    });
}

/// Reads of bytes that a dropped read has left let other tasks run.
#[test]
fn dropped_reads_bytes_yield_to_others() {
    here(|| async {
        let mut input = Unblock::new(io::repeat(7));
        let (mut many, mut one) = ([0; 1 << 12], [0; 1]);
        while poll_once(input.read(&mut many)).await.is_some() {}
        // From here on nothing is waited for: the bytes are here.
        input.read_exact(&mut one).await.unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let then = done.clone();
        let other = polder::spawn(async move { then.store(true, SeqCst) });
        for _ in 1..many.len() {
            input.read_exact(&mut one).await.unwrap();
        }
        assert!(done.load(SeqCst), "they take no budget");
        other.await;
    });
}

#[test]
fn works_in_other_executors_and_without() {
    within(LIMIT, "on a plain thread", || {
        futures_lite::future::block_on(async {
            let mut input = Unblock::with_capacity(1_000, Pieces::new(200_000));
            let mut all = Vec::new();
            input.read_to_end(&mut all).await.unwrap();
            assert!(all == bytes(200_000));
            let mut output = Unblock::new(Vec::new());
            output.write_all(&all).await.unwrap();
            assert!(output.into_inner().await == all);
        });
    });
}

/// The same, of a type that polder does not know: its descriptor is not seen.
#[cfg(unix)]
struct Wrapped(std::fs::File);

#[cfg(unix)]
impl Read for Wrapped {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

#[cfg(unix)]
impl Write for Wrapped {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Returns the two ends of a pipe, which do not block: as Node, ssh and other programs leave the
/// standard streams.
#[cfg(unix)]
pub fn pipe() -> (std::fs::File, std::fs::File) {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    for end in [&reader, &writer] {
        rustix::io::ioctl_fionbio(end, true).unwrap();
    }
    (reader.into(), writer.into())
}

/// Far more than a pipe holds, so that the writer waits for the reader, and then the reader for a
/// writer that pauses. The reader's first attempt finds nothing.
#[cfg(unix)]
#[test]
fn what_does_not_block_is_waited_for() {
    async fn passes_all(input: impl Read + Send + 'static, output: impl Write + Send + 'static) {
        const LENGTH: usize = 1 << 20;
        let (mut input, mut output) = (Unblock::new(input), Unblock::new(output));
        let begun = Arc::new(AtomicBool::new(false));
        let reads = begun.clone();
        let reader = polder::spawn(async move {
            let mut all = vec![0; 1];
            let first = input.read(&mut all);
            let first = std::pin::pin!(first);
            reads.store(true, SeqCst);
            assert_eq!(first.await.unwrap(), 1);
            input.read_to_end(&mut all).await.unwrap();
            all
        });
        until("the reader has begun", || begun.load(SeqCst)).await;
        let all = bytes(LENGTH);
        for part in all.chunks(LENGTH / 2) {
            output.write_all(part).await.unwrap();
            output.flush().await.unwrap();
        }
        output.close().await.unwrap();
        assert!(reader.await == all);
    }
    here(|| async {
        let (reader, writer) = pipe();
        passes_all(reader, writer).await;
        let (reader, writer) = pipe();
        passes_all(Wrapped(reader), Wrapped(writer)).await;
        let (reader, writer) = pipe();
        passes_all(Arc::new(reader), Arc::new(writer)).await;
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        passes_all(far, near).await;
    });
}

/// The wait ends when there are bytes: otherwise each one takes a second, and the rounds are too
/// many for the deadline.
#[cfg(unix)]
#[test]
fn a_wait_ends_with_the_bytes_that_come() {
    let rounds = 2 * LIMIT.as_secs();
    here(move || async move {
        let ((there, near), (back, far)) = (pipe(), pipe());
        let echo = copy_all(Unblock::new(there), Unblock::new(far));
        let echo = polder::spawn(echo);
        let (mut output, mut input) = (Unblock::new(near), Unblock::new(back));
        for round in 0..rounds {
            let mut bytes = [0; 8];
            output.write_all(&round.to_ne_bytes()).await.unwrap();
            input.read_exact(&mut bytes).await.unwrap();
            assert_eq!(u64::from_ne_bytes(bytes), round);
        }
        drop(output);
        assert_eq!(echo.await.unwrap(), 8 * rounds);
    });
}

/// A flush and a seek that would block are repeated.
#[test]
fn flush_and_seek_retried_on_would_block() {
    struct Reluctant(usize);
    impl Reluctant {
        fn attempt<R>(&mut self, result: R) -> io::Result<R> {
            self.0 += 1;
            match self.0 % 4 {
                0 => Ok(result),
                1 => Err(io::ErrorKind::Interrupted.into()),
                _ => Err(io::ErrorKind::WouldBlock.into()),
            }
        }
    }
    impl Read for Reluctant {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            self.attempt(buf.len())
        }
    }
    impl Write for Reluctant {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.attempt(buf.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.attempt(())
        }
    }
    impl Seek for Reluctant {
        fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
            self.attempt(7)
        }
    }
    here(|| async {
        let mut value = Unblock::new(Reluctant(0));
        assert_eq!(value.read(&mut [0; 3]).await.unwrap(), 3);
        assert_eq!(value.write(&[0; 3]).await.unwrap(), 3);
        value.flush().await.unwrap();
        assert_eq!(value.seek(SeekFrom::Start(7)).await.unwrap(), 7);
        let calls = value.get_mut().await.0;
        assert_eq!(calls, 16, "each once more after each refusal");
    });
}

/// Nothing will come, and nobody waits for it any more: the thread gives the value back.
#[cfg(unix)]
#[test]
fn a_wait_ends_with_its_unblock() {
    let held = Arc::new(());
    let value = held.clone();
    here(|| async move {
        let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        let mut known = Unblock::new(near);
        let attempts = Arc::new(AtomicUsize::new(0));
        let attempted = attempts.clone();
        let never = Script(move |_| {
            attempted.fetch_add(1, SeqCst);
            Err(io::ErrorKind::WouldBlock.into())
        });
        let mut unknown = Unblock::new(Held(never, value));
        assert!(poll_once(known.read(&mut [0])).await.is_none());
        assert!(poll_once(unknown.read(&mut [0])).await.is_none());
        until("both wait", || attempts.load(SeqCst) > 5).await;
        drop((known, unknown));
        until("the socket is closed", || {
            matches!(far.read(&mut [0]), Ok(0))
        })
        .await;
    });
    eventually("the value is gone", || Arc::strong_count(&held) == 1);
}

/// Keeps each write, once the gate is open.
#[derive(Clone, Default)]
struct Writes(Gate, Arc<Mutex<Vec<Vec<u8>>>>);

impl Write for Writes {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.pass();
        self.1.lock().unwrap().push(buf.to_vec());
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn slices_are_written_in_one_call() {
    let parts = |parts: &[&'static [u8]]| -> Vec<io::IoSlice<'static>> {
        parts.iter().map(|part| io::IoSlice::new(part)).collect()
    };
    here(move || async move {
        let writes = Writes::default();
        writes.0.open();
        let mut output = Unblock::with_capacity(6, writes.clone());
        let empty = output.write_vectored(&parts(&[b"", b""])).await;
        assert_eq!(empty.unwrap(), 0);
        let written = output.write_vectored(&parts(&[b"", b"ab", b"c"])).await;
        assert_eq!(written.unwrap(), 3);
        let written = output.write_vectored(&parts(&[b"defg", b"hi", b"j"])).await;
        assert_eq!(written.unwrap(), 6, "the capacity");
        assert_eq!(*writes.1.lock().unwrap(), [&b"abc"[..], b"defghi"]);
    });
}

/// As of a write of one slice. The same bytes may be in other slices.
#[test]
fn slices_of_a_dropped_write_are_written_once() {
    here(|| async {
        for (again, expected) in [
            (["ab", "cde"], vec!["abcd"]),
            (["abcd", ""], vec!["abcd"]),
            (["abx", "d"], vec!["abcd", "abxd"]),
            (["abc", ""], vec!["abcd", "abc"]),
        ] {
            let writes = Writes::default();
            let mut output = Unblock::new(writes.clone());
            let slices = ["a", "bcd"].map(|part| io::IoSlice::new(part.as_bytes()));
            assert!(poll_once(output.write_vectored(&slices)).await.is_none());
            writes.0.open();
            let slices = again.map(|part| io::IoSlice::new(part.as_bytes()));
            let written = output.write_vectored(&slices).await.unwrap();
            let last = *expected.last().unwrap();
            assert_eq!(written, last.len());
            let expected: Vec<_> = expected.iter().map(|text| text.as_bytes()).collect();
            assert_eq!(*writes.1.lock().unwrap(), expected);
        }
    });
}

#[test]
fn an_error_of_a_dropped_read_is_returned_once() {
    here(|| async {
        let gate = Gate::default();
        let (opened, mut failed) = (gate.clone(), false);
        let mut input = Unblock::new(Script(move |_| {
            opened.pass();
            if std::mem::replace(&mut failed, true) {
                Ok(0)
            } else {
                Err(io::Error::other("on purpose"))
            }
        }));
        assert!(poll_once(input.read(&mut [0])).await.is_none());
        gate.open();
        // Another operation waits for the end of the read, and does not take its error.
        input.get_mut().await;
        let error = input.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.to_string(), "on purpose");
        assert_eq!(input.read(&mut [0]).await.unwrap(), 0);
    });
}

/// An end that a dropped read has found is returned.
#[test]
fn end_found_by_dropped_read_returned() {
    here(|| async {
        let gate = Gate::default();
        let (opened, mut calls) = (gate.clone(), 0);
        let mut input = Unblock::new(Script(move |length| {
            opened.pass();
            calls += 1;
            Ok(if calls == 1 { 0 } else { length })
        }));
        assert!(poll_once(input.read(&mut [0])).await.is_none());
        gate.open();
        input.get_mut().await;
        assert_eq!(input.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(input.read(&mut [0]).await.unwrap(), 1);
    });
}
