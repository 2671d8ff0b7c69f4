//! Readiness and single attempts: everything besides the I/O traits that streams, their halves, and
//! datagram sockets share. Names and meaning are tokio's.
//!
//! A direction counts as ready initially, and again after each event, until an attempt would block.
//! So a socket may be reported ready spuriously; follow it with an attempt that does not wait. See
//! `io/operation.rs` for why no event is lost between the two.
//!
//! Each future is a separate waiter, so any number of them may wait concurrently. A polling
//! function uses the handle's one waiter, so it remembers one task for each direction and handle.
//!
//! These are macros for the sake of their examples: each type has its own. A macro takes
//! `[generics] type, [field], setup`. The field is that of the [`Socket`](super::socket::Socket),
//! which has all functions that are called here. The setup is the hidden beginning of the examples,
//! which makes `near`, of this type, and `far`, the socket at the other end. (`io`, `Context` and
//! `Poll` are the caller's.)

/// Methods for all types that read. `poll` is the name of the polling method; the other names are
/// used in the examples.
macro_rules! readable {
    ([$($generics:tt)*] $type:ty, [$($socket:tt)+], $setup:expr,
        $poll:ident, $try_read:ident, $try_write:ident) => {
        impl<$($generics)*> $type {
            /// Waits until a read is worth an attempt: there are bytes to read, or the end, or an
            /// error.
            ///
            /// So no buffer is needed while no bytes arrive. It may complete spuriously, for
            /// instance at first, when nothing is known yet: an attempt that would block makes the
            /// next call wait for an event. Any number of tasks may wait concurrently; all are
            /// woken.
            ///
            /// ```
            #[doc = $setup]
            #[doc = concat!("far.", stringify!($try_write), "(b\"hello\")?;")]
            /// loop {
            ///     near.readable().await?; // Nothing is allocated while this waits.
            ///     let mut bytes = vec![0; 64];
            #[doc = concat!("    match near.", stringify!($try_read), "(&mut bytes) {")]
            ///         Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            ///         length => break assert_eq!(&bytes[..length?], b"hello"),
            ///     }
            /// }
            /// # std::io::Result::Ok(())
            /// # })?;
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// If the backend cannot wait for another socket.
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: dropping the future has no effect.
            pub async fn readable(&self) -> io::Result<()> {
                self.$($socket)+.ready_in(crate::reactor::Direction::Read).await
            }

            /// [`readable`](Self::readable), for functions that poll.
            ///
            /// A handle remembers one task that polls to read, the last one. Each clone of the
            /// socket is a separate handle.
            ///
            /// ```
            #[doc = $setup]
            /// use std::future::poll_fn;
            ///
            #[doc = concat!("far.", stringify!($try_write), "(b\"hello\")?;")]
            #[doc = concat!("poll_fn(|cx| near.", stringify!($poll), "(cx)).await?;")]
            /// # std::io::Result::Ok(())
            /// # })?;
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// As [`readable`](Self::readable).
            pub fn $poll(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.$($socket)+.ready_in(crate::reactor::Direction::Read).poll(cx)
            }
        }
    };
}
pub(super) use readable;

/// Methods for all types that write.
macro_rules! writable {
    ([$($generics:tt)*] $type:ty, [$($socket:tt)+], $setup:expr,
        $poll:ident, $try_write:ident) => {
        impl<$($generics)*> $type {
            /// Waits until a write is worth an attempt: there is room, or an error.
            ///
            /// It may complete spuriously, for instance at first, when nothing is known yet: an
            /// attempt that would block makes the next call wait for an event. Any number of tasks
            /// may wait concurrently; all are woken.
            ///
            /// ```
            #[doc = $setup]
            /// let written = loop {
            ///     near.writable().await?;
            #[doc = concat!("    match near.", stringify!($try_write), "(b\"hello\") {")]
            ///         Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            ///         length => break length?,
            ///     }
            /// };
            /// assert_eq!(written, 5);
            /// # drop(far);
            /// # std::io::Result::Ok(())
            /// # })?;
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// If the backend cannot wait for another socket.
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: dropping the future has no effect.
            pub async fn writable(&self) -> io::Result<()> {
                self.$($socket)+.ready_in(crate::reactor::Direction::Write).await
            }

            /// [`writable`](Self::writable), for functions that poll.
            ///
            /// A handle remembers one task that polls to write, the last one. Each clone of the
            /// socket is a separate handle.
            ///
            /// ```
            #[doc = $setup]
            /// use std::future::poll_fn;
            ///
            #[doc = concat!("poll_fn(|cx| near.", stringify!($poll), "(cx)).await?;")]
            #[doc = concat!("assert_eq!(near.", stringify!($try_write), "(b\"hello\")?, 5);")]
            /// # drop(far);
            /// # std::io::Result::Ok(())
            /// # })?;
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// As [`writable`](Self::writable).
            pub fn $poll(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.$($socket)+.ready_in(crate::reactor::Direction::Write).poll(cx)
            }
        }
    };
}
pub(super) use writable;

/// Methods for all types that both read and write.
macro_rules! readable_and_writable {
    ($type:ty, $setup:expr, $try_read:ident, $try_write:ident) => {
        impl $type {
            /// Waits until one of the directions in `interest`, reading or writing, is worth an
            /// attempt. Returns those that are.
            ///
            /// It may complete spuriously; see [`readable`](Self::readable) and
            /// [`writable`](Self::writable) for the conditions.
            ///
            /// ```
            #[doc = $setup]
            /// use polder::poller::Interest;
            ///
            #[doc = concat!("far.", stringify!($try_write), "(b\"hello\")?;")]
            /// let ready = near.ready(Interest::READABLE | Interest::WRITABLE).await?;
            /// if ready.is_writable() {
            #[doc = concat!("    near.", stringify!($try_write), "(b\"hello\")?;")]
            /// }
            /// # std::io::Result::Ok(())
            /// # })?;
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// If the backend cannot wait for another socket;
            /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) for an interest that is empty, or
            /// contains anything else.
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: dropping the future has no effect.
            pub async fn ready(
                &self,
                interest: crate::poller::Interest,
            ) -> io::Result<crate::poller::Interest> {
                self.0.ready(interest).await
            }

            /// Calls `operation` once, and returns its result.
            ///
            /// It is meant for a system call on this socket that polder does not know. If that
            /// returns [`WouldBlock`](std::io::ErrorKind::WouldBlock), the next wait for `interest`
            /// waits for an event. So it must not return this for another reason, or the next
            /// waiter may wait too long; and it must operate on this socket, in the directions of
            /// `interest`.
            ///
            /// ```
            #[doc = $setup]
            /// use polder::poller::Interest;
            /// use socket2::SockRef;
            ///
            #[doc = concat!("far.", stringify!($try_write), "(b\"hello\")?;")]
            /// let mut bytes = [std::mem::MaybeUninit::uninit(); 8];
            /// let read = loop {
            ///     near.readable().await?;
            ///     let socket = SockRef::from(&near);
            ///     match near.try_io(Interest::READABLE, || socket.recv(&mut bytes)) {
            ///         Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            ///         read => break read?,
            ///     }
            /// };
            /// assert_eq!(read, 5);
            /// # std::io::Result::Ok(())
            /// # })?;
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// The operation's error; [`InvalidInput`](std::io::ErrorKind::InvalidInput) for an
            /// interest that is empty, or contains anything other than reading and writing: then it
            /// is not called.
            pub fn try_io<R>(
                &self,
                interest: crate::poller::Interest,
                operation: impl FnOnce() -> io::Result<R>,
            ) -> io::Result<R> {
                self.0.try_io(interest, operation)
            }
        }
    };
}
pub(super) use readable_and_writable;

/// Methods for streams and their read halves.
macro_rules! try_reads {
    ([$($generics:tt)*] $type:ty, [$($socket:tt)+], $setup:expr) => {
        crate::net::readiness::readable!(
            [$($generics)*] $type, [$($socket)+], $setup, poll_read_ready, try_read, try_write
        );

        impl<$($generics)*> $type {
            /// Reads the available bytes, without waiting. Returns their number; `Ok(0)` means the
            /// end, or an empty buffer.
            ///
            /// It asks the kernel even if the socket does not count as [readable](Self::readable).
            ///
            /// ```
            #[doc = $setup]
            /// let mut bytes = [0; 8];
            /// let nothing = near.try_read(&mut bytes).unwrap_err();
            /// assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
            /// far.try_write(b"hello")?;
            /// near.readable().await?;
            /// assert_eq!(near.try_read(&mut bytes)?, 5);
            /// # std::io::Result::Ok(())
            /// # })?;
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) if there is nothing; any error of the
            /// system call.
            pub fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
                self.$($socket)+.try_read(bytes)
            }

            /// A hint: whether a [wait](Self::readable) has seen that the peer will send no more,
            /// or reading was shut down here. Unread bytes may remain.
            ///
            /// On a backend with edges it becomes true even while nothing waits: a task that
            /// computes an answer learns that its client is gone. On others it becomes true during
            /// a wait, and without [hints](crate::poller::Capabilities::hints) never. Once true, it
            /// stays true; `false` proves nothing.
            ///
            /// ```
            #[doc = $setup]
            /// drop(far);
            /// while near.try_read(&mut [0; 8]).is_err() {
            ///     near.readable().await?;
            /// }
            /// println!("the peer is gone: {}", near.is_read_closed());
            /// # std::io::Result::Ok(())
            /// # })?;
            /// # std::io::Result::Ok(())
            /// ```
            pub fn is_read_closed(&self) -> bool {
                self.$($socket)+.is_read_closed()
            }

            /// [`try_read`](Self::try_read) into several buffers, one after the other.
            ///
            /// ```
            #[doc = $setup]
            /// use std::io::IoSliceMut;
            ///
            /// far.try_write(b"hello")?;
            /// let (mut head, mut tail) = ([0; 2], [0; 8]);
            /// let mut buffers = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut tail)];
            /// let length = loop {
            ///     near.readable().await?;
            ///     match near.try_read_vectored(&mut buffers) {
            ///         Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            ///         length => break length?,
            ///     }
            /// };
            /// assert_eq!((length, &head, &tail[..3]), (5, b"he", &b"llo"[..]));
            /// # std::io::Result::Ok(())
            /// # })?;
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// As [`try_read`](Self::try_read).
            pub fn try_read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.$($socket)+.try_read_vectored(buffers)
            }

            /// Waits for bytes without consuming them: the next read returns the same bytes again.
            /// Returns their number, which is zero at the end.
            ///
            /// ```
            #[doc = $setup]
            /// far.try_write(b"hello")?;
            /// let mut bytes = [0; 8];
            /// let length = near.peek(&mut bytes).await?;
            /// assert_eq!(near.try_read(&mut bytes)?, length); // They were still there.
            /// # std::io::Result::Ok(())
            /// # })?;
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// Any error of the system call.
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: nothing is consumed.
            pub async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
                self.$($socket)+.peek(bytes).await
            }

            /// [`peek`](Self::peek), for functions that poll: see
            /// [`poll_read_ready`](Self::poll_read_ready).
            ///
            /// ```
            #[doc = $setup]
            /// use std::future::poll_fn;
            ///
            /// far.try_write(b"hello")?;
            /// let mut bytes = [0; 8];
            /// let length = poll_fn(|cx| near.poll_peek(cx, &mut bytes)).await?;
            /// assert_eq!(near.try_read(&mut bytes)?, length); // They were still there.
            /// # std::io::Result::Ok(())
            /// # })?;
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// Any error of the system call.
            pub fn poll_peek(
                &self,
                cx: &mut Context<'_>,
                bytes: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                self.$($socket)+.poll_peek(cx, bytes)
            }
        }
    };
}
pub(super) use try_reads;

/// Methods for streams and their write halves.
macro_rules! try_writes {
    ([$($generics:tt)*] $type:ty, [$($socket:tt)+], $setup:expr) => {
        crate::net::readiness::writable!(
            [$($generics)*] $type, [$($socket)+], $setup, poll_write_ready, try_write
        );

        impl<$($generics)*> $type {
            /// Writes as much as there is room for, without waiting. Returns the number of bytes.
            ///
            /// ```
            #[doc = $setup]
            /// let full = loop {
            ///     if let Err(error) = near.try_write(&[0; 4096]) {
            ///         break error;
            ///     }
            /// };
            /// assert_eq!(full.kind(), std::io::ErrorKind::WouldBlock);
            /// # drop(far);
            /// # std::io::Result::Ok(())
            /// # })?;
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) if there is no room; any error of the
            /// system call.
            pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
                self.$($socket)+.try_write(bytes)
            }

            /// [`try_write`](Self::try_write) from several buffers, one after the other.
            ///
            /// ```
            #[doc = $setup]
            /// use std::io::IoSlice;
            ///
            /// let buffers = [IoSlice::new(b"he"), IoSlice::new(b"llo")];
            /// assert_eq!(near.try_write_vectored(&buffers)?, 5);
            /// # drop(far);
            /// # std::io::Result::Ok(())
            /// # })?;
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// As [`try_write`](Self::try_write).
            pub fn try_write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
                self.$($socket)+.write_vectored(buffers).attempt()
            }
        }
    };
}
pub(super) use try_writes;

/// Methods for datagram sockets, most of them for connected ones. `$with_address` converts the
/// address of what was received. (`SocketAddr` is the caller's too.)
macro_rules! datagrams {
    ($type:ty, $with_address:ident, $setup:expr) => {
        crate::net::readiness::readable!(
            [] $type, [0], $setup, poll_recv_ready, try_recv, try_send
        );
        crate::net::readiness::writable!([] $type, [0], $setup, poll_send_ready, try_send);
        crate::net::readiness::readable_and_writable!($type, $setup, try_recv, try_send);

        impl $type {
            /// [`recv`](Self::recv), for functions that poll: see
            /// [`poll_recv_ready`](Self::poll_recv_ready).
            ///
            /// ```
            #[doc = $setup]
            /// use std::future::poll_fn;
            ///
            /// far.send(b"hello").await?;
            /// let mut bytes = [0; 8];
            /// assert_eq!(poll_fn(|cx| near.poll_recv(cx, &mut bytes)).await?, 5);
            /// # std::io::Result::Ok(())
            /// # })?;
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// Any error of the system call.
            pub fn poll_recv(
                &self,
                cx: &mut Context<'_>,
                bytes: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                self.0.recv(bytes, crate::net::socket::Receive::Take).poll(cx)
            }

            /// [`recv_from`](Self::recv_from), for functions that poll: see
            /// [`poll_recv_ready`](Self::poll_recv_ready).
            ///
            /// ```
            #[doc = $setup]
            /// use std::future::poll_fn;
            ///
            /// far.send(b"hello").await?;
            /// let mut bytes = [0; 8];
            /// let (length, _from) = poll_fn(|cx| near.poll_recv_from(cx, &mut bytes)).await?;
            /// assert_eq!(&bytes[..length], b"hello");
            /// # std::io::Result::Ok(())
            /// # })?;
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// As [`recv_from`](Self::recv_from).
            pub fn poll_recv_from(
                &self,
                cx: &mut Context<'_>,
                bytes: &mut [u8],
            ) -> Poll<io::Result<(usize, SocketAddr)>> {
                let received = self.0.recv_from(bytes, crate::net::socket::Receive::Take);
                received.poll(cx)?.map($with_address)
            }

            /// [`send`](Self::send), for functions that poll: see
            /// [`poll_send_ready`](Self::poll_send_ready).
            ///
            /// ```
            #[doc = $setup]
            /// use std::future::poll_fn;
            ///
            /// assert_eq!(poll_fn(|cx| near.poll_send(cx, b"hello")).await?, 5);
            /// assert_eq!(far.recv(&mut [0; 8]).await?, 5);
            /// # std::io::Result::Ok(())
            /// # })?;
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// Any error of the system call.
            pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                self.0.send(bytes, None).poll(cx)
            }

            /// Receives an available datagram, without waiting. Returns its length.
            ///
            /// It asks the kernel even if the socket does not count as [readable](Self::readable).
            ///
            /// ```
            #[doc = $setup]
            /// let mut bytes = [0; 8];
            /// let nothing = near.try_recv(&mut bytes).unwrap_err();
            /// assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
            /// far.send(b"hello").await?;
            /// near.readable().await?;
            /// assert_eq!(near.try_recv(&mut bytes)?, 5);
            /// # std::io::Result::Ok(())
            /// # })?;
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) if there is no datagram; any error of
            /// the system call.
            pub fn try_recv(&self, bytes: &mut [u8]) -> io::Result<usize> {
                self.0.recv(bytes, crate::net::socket::Receive::Take).attempt()
            }

            /// Receives an available datagram, without waiting. Returns its length and its sender's
            /// address.
            ///
            /// ```
            #[doc = $setup]
            /// far.send(b"hello").await?;
            /// let mut bytes = [0; 8];
            /// let (length, _from) = loop {
            ///     near.readable().await?;
            ///     match near.try_recv_from(&mut bytes) {
            ///         Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            ///         received => break received?,
            ///     }
            /// };
            /// assert_eq!(&bytes[..length], b"hello");
            /// # std::io::Result::Ok(())
            /// # })?;
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no datagram; any error of the
            /// system call.
            pub fn try_recv_from(&self, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
                let received = self.0.recv_from(bytes, crate::net::socket::Receive::Take);
                $with_address(received.attempt()?)
            }

            /// Sends a datagram to the peer, without waiting.
            ///
            /// ```
            #[doc = $setup]
            /// assert_eq!(near.try_send(b"hello")?, 5);
            /// assert_eq!(far.recv(&mut [0; 8]).await?, 5);
            /// # std::io::Result::Ok(())
            /// # })?;
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) if there is no room; any error of the
            /// system call, for instance that there is no peer.
            pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
                self.0.send(bytes, None).attempt()
            }
        }
    };
}
pub(super) use datagrams;
