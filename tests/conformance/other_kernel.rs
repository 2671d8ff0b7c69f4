//! A second implementor of [`Kernel`], written by hand, beside the simulator: a clock that stands
//! still while anything is ready, and sockets of UDP that receive what they have sent. So the seam
//! needs nothing that only the simulator has.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::BorrowedFd;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use polder::kernel::sockets::{Address, Flag, Number, Opt, Socket, SocketType, Sockets, TcpOption};
use polder::kernel::{self, Kernel, Poller, READABLE, WRITABLE};
use polder::net::UdpSocket;
use polder::runtime::custom::CustomRuntime;
use polder::time::sleep;

/// What the kernel has, as everything is on one thread: one worker, one socket, one timer.
struct State {
    now: Option<Instant>,
    deadline: Option<Instant>,
    is_woken: bool,
    /// The token of the socket's registration.
    token: Option<u64>,
    /// Whether the poller has to report the socket.
    is_due: bool,
    /// Sent, and not received yet, each with the address that it was sent to.
    datagrams: VecDeque<(Vec<u8>, Address)>,
}

static STATE: Mutex<State> = Mutex::new(State {
    now: None,
    deadline: None,
    is_woken: false,
    token: None,
    is_due: false,
    datagrams: VecDeque::new(),
});

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn ready(&self) -> u8 {
        WRITABLE
            | if self.datagrams.is_empty() {
                0
            } else {
                READABLE
            }
    }
}

struct Echo;

impl Kernel for Echo {
    fn now(&self) -> Instant {
        *state().now.get_or_insert_with(Instant::now)
    }

    fn sockets(&self) -> Option<&dyn Sockets> {
        Some(&Echo)
    }
}

fn not_here<T>() -> io::Result<T> {
    Err(ErrorKind::Unsupported.into())
}

impl Sockets for Echo {
    fn bind(
        &self,
        _: SocketType,
        address: Option<&Address>,
        _: usize,
    ) -> io::Result<Box<dyn Socket>> {
        match address {
            Some(address) => Ok(Box::new(EchoSocket(address.clone()))),
            None => not_here(),
        }
    }

    fn pair(&self, _: SocketType) -> io::Result<[Box<dyn Socket>; 2]> {
        not_here()
    }

    fn connect(&self, _: SocketType, _: &Address) -> io::Result<Box<dyn Socket>> {
        not_here()
    }
}

/// A socket, with its address.
#[derive(Debug)]
struct EchoSocket(Address);

impl Socket for EchoSocket {
    fn id(&self) -> u64 {
        7
    }

    fn ready(&self) -> io::Result<u8> {
        Ok(state().ready())
    }

    fn kind(&self) -> &'static str {
        "echo"
    }

    fn lend(&self) -> BorrowedFd<'_> {
        unreachable!("nothing asks for a descriptor")
    }

    fn finish_connect(&self) -> io::Result<()> {
        not_here()
    }

    fn local_addr(&self) -> io::Result<Address> {
        Ok(self.0.clone())
    }

    fn peer_addr(&self) -> io::Result<Address> {
        Err(ErrorKind::NotConnected.into())
    }

    fn set_peer(&self, _: &Address) -> io::Result<()> {
        not_here()
    }

    fn shutdown(&self, _: Shutdown, _: Shutdown) -> io::Result<()> {
        not_here()
    }

    fn accept(&self) -> io::Result<(Box<dyn Socket>, Address)> {
        not_here()
    }

    fn read(&self, _: &mut [IoSliceMut<'_>], _: bool) -> io::Result<(usize, bool)> {
        not_here()
    }

    fn write(&self, _: &[IoSlice<'_>]) -> io::Result<usize> {
        not_here()
    }

    fn receive(&self, bytes: &mut [u8], _: bool) -> io::Result<(usize, Address, bool)> {
        let (datagram, from) = (state().datagrams.pop_front()).ok_or(ErrorKind::WouldBlock)?;
        let len = datagram.len().min(bytes.len());
        bytes[..len].copy_from_slice(&datagram[..len]);
        Ok((len, from, len < datagram.len()))
    }

    fn send(&self, bytes: &[u8], to: Option<&Address>) -> io::Result<usize> {
        let to = to.ok_or(ErrorKind::NotConnected)?.clone();
        let mut state = state();
        state.datagrams.push_back((bytes.to_vec(), to));
        (state.is_due, state.is_woken) = (true, true);
        Ok(bytes.len())
    }

    fn flag(&self, _: Flag) -> io::Result<bool> {
        Ok(false)
    }

    fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(None)
    }

    fn number(&self, _: Number) -> io::Result<u32> {
        not_here()
    }

    fn tcp_option(&self, _: TcpOption) -> io::Result<Option<u32>> {
        Ok(None)
    }

    fn set(&self, _: Opt) -> io::Result<()> {
        Ok(())
    }
}

/// The poller of the only worker.
struct EchoPoller;

impl Poller for EchoPoller {
    fn register(&self, _: u64, token: u64, _: u8) -> io::Result<()> {
        let mut state = state();
        (state.token, state.is_due, state.is_woken) = (Some(token), true, true);
        Ok(())
    }

    fn deregister(&self, _: u64) -> io::Result<()> {
        state().token = None;
        Ok(())
    }

    fn take(&self, _: usize, report: &mut dyn FnMut(u64, u8)) {
        let mut state = state();
        let (is_due, ready) = (std::mem::take(&mut state.is_due), state.ready());
        let token = state.token.filter(|_| is_due);
        drop(state);
        token.into_iter().for_each(|token| report(token, ready));
    }

    fn notify(&self) {
        state().is_woken = true;
    }

    fn arm(&self, deadline: Option<Instant>) {
        state().deadline = deadline;
    }
}

/// An echo and a timer work on a kernel that is neither the system's nor a world's.
#[test]
fn echo_and_clock_of_second_kernel() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    let _installed = kernel::install(&Echo);
    let runtime = CustomRuntime::new(vec![Box::new(EchoPoller)]);
    let main = async {
        let own: SocketAddr = "10.0.0.1:5".parse().unwrap();
        let peer: SocketAddr = "10.0.0.2:7".parse().unwrap();
        let socket = UdpSocket::bind(own).await.unwrap();
        assert_eq!(socket.local_addr().unwrap(), own);
        let began = polder::time::now();
        let mut bytes = [0; 8];
        let receive = polder::time::timeout(Duration::from_secs(9), socket.recv_from(&mut bytes));
        assert!(receive.await.is_err(), "nothing was sent yet");
        assert_eq!(polder::time::now() - began, Duration::from_secs(9));
        assert_eq!(socket.send_to(b"ping", peer).await.unwrap(), 4);
        assert_eq!(socket.recv_from(&mut bytes).await.unwrap(), (4, peer));
        assert_eq!(&bytes[..4], b"ping");
        sleep(Duration::from_secs(86_400)).await;
        assert_eq!(polder::time::now() - began, Duration::from_secs(86_409));
        IS_DONE.store(true, Ordering::Relaxed);
    };
    runtime.spawn_main(main, Location::caller());
    let worker = runtime.workers().next().expect("it has one");
    for _ in 0..1_000 {
        let mut state = state();
        if !std::mem::take(&mut state.is_woken) {
            // Nothing is ready: the time of the next timer comes.
            state.now = state.deadline.or(state.now);
        }
        drop(state);
        worker.turn();
        if IS_DONE.load(Ordering::Relaxed) {
            return;
        }
    }
    panic!("a wake-up was lost: the task is not done after 1,000 turns");
}
