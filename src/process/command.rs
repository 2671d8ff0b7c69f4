//! [`Command`]: the standard library's, with options for a child that is dropped.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{CommandArgs, CommandEnvs, ExitStatus, Output, Stdio};

use super::{Child, WHAT};
use crate::kernel;

/// A program to be started, like [`std::process::Command`].
///
/// ```
/// # #[cfg(unix)] {
/// use polder::process::Command;
///
/// let output = polder::block_on(Command::new("echo").arg("hello").output())?;
/// assert!(output.status.success());
/// assert_eq!(output.stdout, b"hello\n");
/// # } std::io::Result::Ok(())
/// ```
///
/// **Starting a program blocks** on every system, usually for less than a millisecond, until it
/// runs or has failed to start.
#[derive(Debug)]
pub struct Command {
    pub(super) inner: std::process::Command,
    // Whether the user has set these.
    stdin: bool,
    stdout: bool,
    stderr: bool,
    kill_on_drop: bool,
    reap_on_drop: bool,
}

/// Converts a command. Standard streams that were set before are not known here: set them again.
impl From<std::process::Command> for Command {
    fn from(inner: std::process::Command) -> Command {
        Command {
            inner,
            stdin: false,
            stdout: false,
            stderr: false,
            kill_on_drop: false,
            reap_on_drop: true,
        }
    }
}

impl Command {
    /// Makes a command that starts `program`, which is looked up in `PATH` if it has no `/`.
    ///
    /// By default it has no arguments, and this process's environment, directory and standard
    /// streams ([`output`](Self::output) uses pipes).
    ///
    /// ```
    /// use polder::process::Command;
    ///
    /// let command = Command::new("ls");
    /// assert_eq!(command.get_program(), "ls");
    /// ```
    pub fn new<S: AsRef<OsStr>>(program: S) -> Command {
        std::process::Command::new(program).into()
    }

    /// Appends an argument.
    ///
    /// ```
    /// use polder::process::Command;
    ///
    /// let mut command = Command::new("ls");
    /// command.arg("-l").arg("a name with spaces");
    /// assert_eq!(command.get_args().len(), 2);
    /// ```
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.inner.arg(arg);
        self
    }

    /// Appends arguments.
    ///
    /// ```
    /// use polder::process::Command;
    ///
    /// let mut command = Command::new("ls");
    /// command.args(["-l", "src"]);
    /// assert_eq!(command.get_args().len(), 2);
    /// ```
    pub fn args<I, S>(&mut self, args: I) -> &mut Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.inner.args(args);
        self
    }

    /// Sets an environment variable of the child.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::process::Command;
    ///
    /// let mut command = Command::new("sh");
    /// command.env("NAME", "value").args(["-c", "echo $NAME"]);
    /// assert_eq!(polder::block_on(command.output())?.stdout, b"value\n");
    /// # } std::io::Result::Ok(())
    /// ```
    pub fn env<K, V>(&mut self, key: K, value: V) -> &mut Command
    where
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.inner.env(key, value);
        self
    }

    /// Sets environment variables of the child.
    ///
    /// ```
    /// use polder::process::Command;
    ///
    /// let mut command = Command::new("make");
    /// command.envs([("CC", "clang"), ("CFLAGS", "-O2")]);
    /// assert_eq!(command.get_envs().len(), 2);
    /// ```
    pub fn envs<I, K, V>(&mut self, variables: I) -> &mut Command
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.inner.envs(variables);
        self
    }

    /// Removes an environment variable of the child.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::process::Command;
    ///
    /// let mut command = Command::new("sh");
    /// command.env_remove("HOME").args(["-c", "echo ${HOME-none}"]);
    /// assert_eq!(polder::block_on(command.output())?.stdout, b"none\n");
    /// # } std::io::Result::Ok(())
    /// ```
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Command {
        self.inner.env_remove(key);
        self
    }

    /// Removes all environment variables of the child but those that are set afterwards.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::process::Command;
    ///
    /// let mut command = Command::new("/usr/bin/env");
    /// command.env_clear().env("NAME", "value");
    /// assert_eq!(polder::block_on(command.output())?.stdout, b"NAME=value\n");
    /// # } std::io::Result::Ok(())
    /// ```
    pub fn env_clear(&mut self) -> &mut Command {
        self.inner.env_clear();
        self
    }

    /// Sets the child's working directory.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::process::Command;
    ///
    /// let output = polder::block_on(Command::new("pwd").current_dir("/").output())?;
    /// assert_eq!(output.stdout, b"/\n");
    /// # } std::io::Result::Ok(())
    /// ```
    pub fn current_dir<P: AsRef<Path>>(&mut self, directory: P) -> &mut Command {
        self.inner.current_dir(directory);
        self
    }

    /// Returns the program.
    ///
    /// ```
    /// assert_eq!(polder::process::Command::new("ls").get_program(), "ls");
    /// ```
    pub fn get_program(&self) -> &OsStr {
        self.inner.get_program()
    }

    /// Returns the arguments.
    ///
    /// ```
    /// let mut command = polder::process::Command::new("ls");
    /// assert_eq!(command.arg("-l").get_args().collect::<Vec<_>>(), ["-l"]);
    /// ```
    pub fn get_args(&self) -> CommandArgs<'_> {
        self.inner.get_args()
    }

    /// Returns the variables that were set, or removed (`None`).
    ///
    /// ```
    /// let mut command = polder::process::Command::new("ls");
    /// command.env("LANG", "C");
    /// assert_eq!(command.get_envs().next(), Some(("LANG".as_ref(), Some("C".as_ref()))));
    /// ```
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        self.inner.get_envs()
    }

    /// Returns the working directory, if it was set.
    ///
    /// ```
    /// let mut command = polder::process::Command::new("ls");
    /// assert_eq!(command.current_dir("/").get_current_dir(), Some("/".as_ref()));
    /// ```
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.inner.get_current_dir()
    }

    /// Sets the child's standard input: [`Stdio::piped`], [`Stdio::null`], [`Stdio::inherit`], a
    /// file, or another child's pipe.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::process::Command;
    ///
    /// let manifest = std::fs::File::open("Cargo.toml")?;
    /// let output = polder::block_on(Command::new("cat").stdin(manifest).output())?;
    /// assert!(output.stdout.starts_with(b"[package]"));
    /// # } std::io::Result::Ok(())
    /// ```
    pub fn stdin<T: Into<Stdio>>(&mut self, stdin: T) -> &mut Command {
        self.stdin = true;
        self.inner.stdin(stdin);
        self
    }

    /// Sets the child's standard output, like [`stdin`](Self::stdin).
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::process::{Command, Stdio};
    ///
    /// let status = Command::new("echo").arg("unheard").stdout(Stdio::null()).status();
    /// assert!(polder::block_on(status)?.success());
    /// # } std::io::Result::Ok(())
    /// ```
    pub fn stdout<T: Into<Stdio>>(&mut self, stdout: T) -> &mut Command {
        self.stdout = true;
        self.inner.stdout(stdout);
        self
    }

    /// Sets the child's standard error, like [`stdin`](Self::stdin).
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::process::{Command, Stdio};
    ///
    /// let status = Command::new("ls").arg("/there/is/none").stderr(Stdio::null()).status();
    /// assert!(!polder::block_on(status)?.success());
    /// # } std::io::Result::Ok(())
    /// ```
    pub fn stderr<T: Into<Stdio>>(&mut self, stderr: T) -> &mut Command {
        self.stderr = true;
        self.inner.stderr(stderr);
        self
    }

    /// Sets whether the child is killed when its [`Child`] and all futures that wait for it are
    /// dropped. The default is `false`.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::process::Command;
    /// use polder::time::timeout;
    /// use std::time::Duration;
    ///
    /// let mut command = Command::new("sleep");
    /// let output = command.arg("3600").kill_on_drop(true).output();
    /// let elapsed = polder::block_on(timeout(Duration::from_millis(5), output));
    /// assert!(elapsed.is_err()); // And `sleep` is gone.
    /// # } std::io::Result::Ok(())
    /// ```
    pub fn kill_on_drop(&mut self, kill: bool) -> &mut Command {
        self.kill_on_drop = kill;
        self
    }

    /// Sets whether polder reaps a child after its [`Child`] was dropped, so that no zombie is
    /// left. The default is `true`.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::process::Command;
    ///
    /// let child = Command::new("true").reap_on_drop(false).spawn()?;
    /// let id = child.id();
    /// drop(child); // A zombie, until this program waits for it or exits.
    /// # let id = rustix::process::Pid::from_raw(id as i32);
    /// # rustix::process::waitpid(id, rustix::process::WaitOptions::empty())?;
    /// # } std::io::Result::Ok(())
    /// ```
    pub fn reap_on_drop(&mut self, reap: bool) -> &mut Command {
        self.reap_on_drop = reap;
        self
    }

    /// Starts the program.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::process::Command;
    ///
    /// polder::block_on(async {
    ///     let mut child = Command::new("sleep").arg("0.01").spawn()?;
    ///     assert!(child.status().await?.success());
    ///     std::io::Result::Ok(())
    /// })?;
    /// # } std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the program cannot be started: it does not exist ([`NotFound`](io::ErrorKind::NotFound))
    /// or is not executable, its directory does not exist, there are no descriptors for pipes, or
    /// too many processes. No child is left. In a simulated world
    /// [`Unsupported`](io::ErrorKind::Unsupported).
    pub fn spawn(&mut self) -> io::Result<Child> {
        self.spawn_with(Stdio::inherit, Stdio::inherit)
    }

    /// [`spawn`](Self::spawn), with these standard streams where none were set.
    fn spawn_with(&mut self, input: fn() -> Stdio, output: fn() -> Stdio) -> io::Result<Child> {
        kernel::permit(WHAT)?;
        self.streams_or(input, output);
        Child::new(self.inner.spawn()?, self.kill_on_drop, self.reap_on_drop)
    }

    /// Sets the standard streams that were not set: the inner command keeps those of an earlier
    /// child.
    pub(super) fn streams_or(&mut self, input: fn() -> Stdio, output: fn() -> Stdio) {
        if !self.stdin {
            self.inner.stdin(input());
        }
        if !self.stdout {
            self.inner.stdout(output());
        }
        if !self.stderr {
            self.inner.stderr(output());
        }
    }

    /// Starts the program immediately, and returns a future of its status.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::process::Command;
    ///
    /// let status = polder::block_on(Command::new("sh").args(["-c", "exit 5"]).status())?;
    /// assert_eq!(status.code(), Some(5));
    /// # } std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// When awaited: those of [`spawn`](Self::spawn), and of [`Child::status`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future lets the child run on, unless [`kill_on_drop`](Self::kill_on_drop) is
    /// set.
    pub fn status(&mut self) -> impl Future<Output = io::Result<ExitStatus>> + Send + use<> {
        let child = self.spawn();
        async { child?.status().await }
    }

    /// Starts the program immediately, and returns a future of its status and of its standard
    /// output and error, which are pipes by default. Its standard input is empty by default.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use polder::process::Command;
    ///
    /// let mut command = Command::new("sh");
    /// let output = polder::block_on(command.args(["-c", "echo out; echo err >&2"]).output())?;
    /// assert_eq!((&*output.stdout, &*output.stderr), (&b"out\n"[..], &b"err\n"[..]));
    /// # } std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// When awaited: those of [`spawn`](Self::spawn), and of [`Child::output`].
    ///
    /// # Cancel safety
    ///
    /// As [`status`](Self::status). The output is lost.
    pub fn output(&mut self) -> impl Future<Output = io::Result<Output>> + Send + use<> {
        let child = self.spawn_with(Stdio::null, Stdio::piped);
        async { child?.output().await }
    }
}
