//! [`Signal`]: the names of signals and the platform's numbers.

use std::borrow::Cow;
use std::fmt;
use std::io;

use signal_hook::consts;

use super::platform;
use crate::sys::{invalid, unsupported};

/// The table of signals, for the enum, the C library's names and the numbers.
macro_rules! signals {
    ($($(#[$doc:meta])* $signal:ident = $name:ident;)*) => {
        /// A signal.
        ///
        /// Every variant exists on every platform; listening to one that the platform lacks is an
        /// error. Displayed by the C library's name, and converted from a number by `try_from`.
        ///
        /// ```
        /// use polder::signal::{Signal, Signals};
        ///
        /// assert_eq!(Signal::Term.to_string(), "SIGTERM");
        /// let mut known = vec![Signal::Int, Signal::Term];
        /// if cfg!(unix) {
        ///     known.push(Signal::Hup);
        /// }
        /// assert!(Signals::new(known).is_ok());
        /// ```
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum Signal {
            $($(#[$doc])* $signal,)*
            /// A signal without a variant, such as a real-time signal, by number. `try_from` never
            /// returns this for a number with a variant; made by hand with such a number, it is a
            /// separate signal.
            Other(i32),
        }

        impl Signal {
            pub(super) const ALL: &[Signal] = &[$(Signal::$signal),*];

            fn name(self) -> Cow<'static, str> {
                match self {
                    $(Signal::$signal => stringify!($name).into(),)*
                    Signal::Other(number) => format!("signal {number}").into(),
                }
            }

            #[cfg(unix)]
            fn number_of_name(self) -> Option<i32> {
                match self {
                    $(Signal::$signal => Some(consts::$name),)*
                    Signal::Other(_) => None,
                }
            }
        }
    };
}

signals! {
    /// Abort, as raised by `abort`.
    Abrt = SIGABRT;
    /// A timer set by `alarm` has expired.
    Alrm = SIGALRM;
    /// Bus error: a bad memory access.
    Bus = SIGBUS;
    /// A child process has terminated or stopped.
    Chld = SIGCHLD;
    /// A stopped process continues.
    Cont = SIGCONT;
    /// Arithmetic exception. It cannot be listened to.
    Fpe = SIGFPE;
    /// Hang-up: the terminal was closed. By convention, daemons reload their configuration.
    Hup = SIGHUP;
    /// Illegal instruction. It cannot be listened to.
    Ill = SIGILL;
    /// Interrupt: Ctrl-C.
    Int = SIGINT;
    /// I/O is possible on a descriptor.
    Io = SIGIO;
    /// Kill. It cannot be listened to.
    Kill = SIGKILL;
    /// Broken pipe: a write without a reader. Rust programs ignore it by default.
    Pipe = SIGPIPE;
    /// A profiling timer has expired.
    Prof = SIGPROF;
    /// Quit, with a core dump: Ctrl-\.
    Quit = SIGQUIT;
    /// Segmentation fault. It cannot be listened to.
    Segv = SIGSEGV;
    /// Stop. It cannot be listened to.
    Stop = SIGSTOP;
    /// Bad system call.
    Sys = SIGSYS;
    /// Termination request.
    Term = SIGTERM;
    /// Trace or breakpoint trap.
    Trap = SIGTRAP;
    /// Stop from the terminal: Ctrl-Z.
    Tstp = SIGTSTP;
    /// A background process tried to read from the terminal.
    Ttin = SIGTTIN;
    /// A background process tried to write to the terminal.
    Ttou = SIGTTOU;
    /// A socket has urgent data.
    Urg = SIGURG;
    /// User-defined.
    Usr1 = SIGUSR1;
    /// User-defined.
    Usr2 = SIGUSR2;
    /// A virtual timer, which counts CPU time, has expired.
    Vtalrm = SIGVTALRM;
    /// The terminal window was resized.
    Winch = SIGWINCH;
    /// The CPU time limit was exceeded.
    Xcpu = SIGXCPU;
    /// The file size limit was exceeded.
    Xfsz = SIGXFSZ;
}

impl Signal {
    #[cfg(windows)]
    fn number_of_name(self) -> Option<i32> {
        match self {
            Signal::Abrt => Some(consts::SIGABRT),
            Signal::Int => Some(consts::SIGINT),
            Signal::Term => Some(consts::SIGTERM),
            _ => None,
        }
    }

    /// Returns the platform's number, or `None` if the platform lacks the signal.
    ///
    /// ```
    /// use polder::signal::Signal;
    ///
    /// assert_eq!(Signal::Int.number(), Some(2));
    /// assert_eq!(Signal::Hup.number().is_some(), cfg!(unix));
    /// ```
    pub fn number(self) -> Option<i32> {
        match self {
            Signal::Other(number) => platform::exists(number).then_some(number),
            named => named.number_of_name(),
        }
    }

    /// Returns the index in the registry's counters, or an error if it cannot be listened to.
    pub(super) fn check(self) -> io::Result<usize> {
        let never = match self {
            Signal::Kill | Signal::Stop | Signal::Ill | Signal::Fpe | Signal::Segv => true,
            Signal::Other(number) => consts::FORBIDDEN.contains(&number),
            _ => false,
        };
        match (self.number(), self) {
            _ if never => Err(invalid(format!("{self} cannot be listened to"))),
            (Some(number), _) => Ok(number as usize),
            (None, Signal::Other(number)) => Err(invalid(format!(
                "no signal that can be listened to has the number {number}"
            ))),
            (None, _) => Err(unsupported(format!(
                "there is no {self} on {}",
                std::env::consts::OS
            ))),
        }
    }
}

/// Returns the variant with this number, or [`Other`](Signal::Other).
///
/// ```
/// use polder::signal::Signal;
///
/// assert_eq!(Signal::try_from(15)?, Signal::Term);
/// assert!(Signal::try_from(0).is_err());
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// [`InvalidInput`](io::ErrorKind::InvalidInput) for a number without a signal, or of one that
/// cannot be listened to: see [`Signals::new`](super::Signals::new).
impl TryFrom<i32> for Signal {
    type Error = io::Error;

    fn try_from(number: i32) -> io::Result<Signal> {
        let mut all = Signal::ALL.iter().copied();
        let named = all.find(|signal| signal.number() == Some(number));
        let signal = named.unwrap_or(Signal::Other(number));
        signal.check()?;
        Ok(signal)
    }
}

/// Writes the C library's name, or "signal" and the number.
impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}
