//! Shared by the tests of programs and of crates: processes, and third-party servers.

// Each test uses some of it.
#![allow(dead_code)]

use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The time limit of any single step on a loaded machine; far longer than one needs.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Returns the program of this name; `None`, with a message, if it is not installed. Those that are
/// named in `INTEROP_CLIENTS` have to be installed: `ci/interop.sh` names what it has installed.
pub fn client(name: &str) -> Option<Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    found_or_told(name, found.then(|| Command::new(name)))
}

pub fn found_or_told(name: &str, command: Option<Command>) -> Option<Command> {
    if command.is_none() {
        let text = format!("{name} is not there: what it would show is not tested");
        let needed = std::env::var("INTEROP_CLIENTS").unwrap_or_default();
        assert!(!needed.split(' ').any(|needed| needed == name), "{text}");
        eprintln!("{text}");
    }
    command
}

/// A process that does not outlive its test.
pub struct Process(pub Child);

impl Process {
    pub fn start(command: &mut Command) -> Process {
        let child = command.spawn();
        Process(child.unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    pub fn end(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(end) = self.0.try_wait().expect("it can be waited for") {
                return end;
            }
            assert!(start.elapsed() < LIMIT, "still running after {LIMIT:?}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn signal(&self, signal: libc::c_int) {
        let id = libc::pid_t::try_from(self.0.id()).expect("an id fits");
        // SAFETY: this sends a signal and touches no memory. The id is still the child's: it has
        // not been waited for.
        let result = unsafe { libc::kill(id, signal) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Does nothing if the child has already been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The test's own redis server, which stores nothing on disk. It listens on a Unix socket and on a
/// port.
pub struct Redis {
    process: Process,
    pub socket: PathBuf,
    pub address: SocketAddr,
}

impl Redis {
    /// Returns `None`, with a message, if it is not installed. `test` distinguishes one test's
    /// socket from another's.
    pub fn start(test: &str) -> Option<Redis> {
        client("redis-server")?;
        let socket = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("redis-{test}"));
        // Another process may get the port before redis does: then redis ends, and gets another
        // port.
        for _ in 0..20 {
            let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
            let address = free.expect("a port");
            if let Some(process) = Redis::process(&socket, address) {
                return Some(Redis {
                    process,
                    socket,
                    address,
                });
            }
        }
        panic!("redis-server does not start");
    }

    /// Returns `None` if it has ended.
    fn process(socket: &PathBuf, address: SocketAddr) -> Option<Process> {
        let _ = std::fs::remove_file(socket);
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port"]);
        command.arg(address.port().to_string());
        command.arg("--unixsocket").arg(socket);
        command.args(["--save", "", "--appendonly", "no"]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut process = Process::start(&mut command);
        let start = Instant::now();
        while UnixStream::connect(socket).is_err() || TcpStream::connect(address).is_err() {
            if process
                .0
                .try_wait()
                .expect("it can be waited for")
                .is_some()
            {
                return None;
            }
            assert!(start.elapsed() < LIMIT, "redis-server does not listen");
            thread::sleep(Duration::from_millis(2));
        }
        Some(process)
    }

    pub fn signal(&self, signal: libc::c_int) {
        self.process.signal(signal);
    }

    /// Kills it, without notice to its clients.
    pub fn kill(&mut self) {
        self.process.signal(libc::SIGKILL);
        self.process.end();
    }

    /// Starts another one, in the place of one that has been killed.
    pub fn again(&mut self) {
        let process = Redis::process(&self.socket, self.address);
        self.process = process.expect("the port is still free");
    }
}

/// The test's own bus.
pub struct Bus {
    _process: Process,
    pub address: String,
}

impl Bus {
    /// Returns `None`, with a message, if it is not installed.
    pub fn start() -> Option<Bus> {
        let mut command = client("dbus-daemon")?;
        let folder = env!("CARGO_TARGET_TMPDIR");
        command.args(["--session", "--nofork", "--nopidfile", "--print-address"]);
        command.arg(format!("--address=unix:dir={folder}"));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // It complains that it may not raise its descriptor limit.
        command.stderr(Stdio::null());
        let mut process = Process::start(&mut command);
        let stdout = process.0.stdout.take().expect("it is piped");
        let mut address = String::new();
        let read = BufReader::new(stdout).read_line(&mut address);
        read.expect("it says where it listens");
        Some(Bus {
            _process: process,
            address: address.trim_end().into(),
        })
    }
}

/// The test's own PostgreSQL server, with a user `test`. It listens on a Unix socket in its folder.
pub struct Postgres {
    process: Process,
    pub folder: TempDir,
    pub socket: PathBuf,
}

impl Postgres {
    /// Returns `None`, with a message, if it is not installed.
    pub fn start() -> Option<Postgres> {
        let (mut postgres, mut initdb) = (client("postgres")?, client("initdb")?);
        let folder = TempDir::new().expect("a folder");
        let path = folder.path();
        if path.metadata().expect("it is there").uid() == 0 {
            // It refuses to run as root.
            const NOBODY: u32 = 65534;
            chown(path, Some(NOBODY), Some(NOBODY)).expect("it is ours");
            initdb.uid(NOBODY).gid(NOBODY);
            postgres.uid(NOBODY).gid(NOBODY);
        }
        let data = path.join("data");
        initdb.args(["--username=test", "--auth=trust", "--no-sync", "-D"]);
        let output = initdb.arg(&data).current_dir(path).output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{output:?}");

        postgres
            .args(["-F", "-c", "listen_addresses=", "-k"])
            .arg(path);
        postgres.arg("-D").arg(&data).current_dir(path);
        postgres.stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::start(&mut postgres);
        let start = Instant::now();
        let is_ready = || {
            let lines = std::fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
            lines.contains("ready")
        };
        while !is_ready() {
            assert!(start.elapsed() < LIMIT, "postgres does not listen");
            thread::sleep(Duration::from_millis(2));
        }
        Some(Postgres {
            process,
            socket: path.join(".s.PGSQL.5432"),
            folder,
        })
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Killed, it would leave shared memory behind.
        self.process.signal(libc::SIGQUIT);
        let _ = self.process.0.wait();
    }
}

/// The test's own NATS server.
pub struct Nats {
    _process: Process,
    pub url: String,
}

impl Nats {
    /// Returns `None`, with a message, if it is not installed.
    pub fn start() -> Option<Nats> {
        let mut command = client("nats-server")?;
        let folder = env!("CARGO_TARGET_TMPDIR");
        // The kernel's choice of a port is in a file, which is named after the process.
        command.args(["--addr", "127.0.0.1", "--port", "-1"]);
        command.args(["--ports_file_dir", folder]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::start(&mut command);
        let file = format!("{folder}/nats-server_{}.ports", process.0.id());
        let start = Instant::now();
        loop {
            let ports = std::fs::read_to_string(&file).unwrap_or_default();
            let mut words = ports.split('"');
            if let Some(url) = words.find(|word| word.starts_with("nats://127.0.0.1:")) {
                return Some(Nats {
                    _process: process,
                    url: url.into(),
                });
            }
            assert!(start.elapsed() < LIMIT, "nats-server does not listen");
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The test's own RabbitMQ server, and the epmd that Erlang's servers find each other by.
pub struct Rabbit {
    process: Process,
    _epmd: Process,
    _folder: TempDir,
    pub uri: String,
}

impl Rabbit {
    /// Returns `None`, with a message, if it is not installed.
    pub fn start() -> Option<Rabbit> {
        let (_, _) = (client("rabbitmq-server")?, client("epmd")?);
        // Another process may get a port first: then one of both ends, and they get other ports.
        let started = (0..5).find_map(|_| Rabbit::process());
        Some(started.expect("rabbitmq-server starts"))
    }

    /// Returns `None` if it has ended.
    fn process() -> Option<Rabbit> {
        let free = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let [port, erlang, names] = free.map(|free| free.local_addr().expect("a port").port());
        let folder = TempDir::new().expect("a folder");
        let path = folder.path();

        let mut epmd = Command::new("epmd");
        epmd.args(["-address", "127.0.0.1", "-port", &names.to_string()]);
        epmd.stdout(Stdio::null()).stderr(Stdio::null());

        let mut rabbit = Command::new("rabbitmq-server");
        // Debian's program in PATH passes no signal on, and starts this one as another user.
        let debian = Path::new("/usr/lib/rabbitmq/bin/rabbitmq-server");
        if debian.is_file() {
            rabbit = Command::new(debian);
        }
        rabbit.env("HOME", path).env("RABBITMQ_MNESIA_BASE", path);
        for name in ["CONF_ENV_FILE", "CONFIG_FILE", "ENABLED_PLUGINS_FILE"] {
            rabbit.env(format!("RABBITMQ_{name}"), path.join("none"));
        }
        let loopback = "-kernel inet_dist_use_interface {127,0,0,1}";
        rabbit.env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", loopback);
        rabbit.env("RABBITMQ_NODENAME", format!("polder-{port}@localhost"));
        rabbit.env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1");
        rabbit.env("RABBITMQ_NODE_PORT", port.to_string());
        rabbit.env("RABBITMQ_DIST_PORT", erlang.to_string());
        rabbit.env("ERL_EPMD_ADDRESS", "127.0.0.1");
        rabbit.env("ERL_EPMD_PORT", names.to_string());
        rabbit.env("RABBITMQ_LOGS", "-").current_dir(path);
        rabbit.stdin(Stdio::null()).stdout(Stdio::null());
        rabbit.stderr(Stdio::null());

        let mut epmd = Process::start(&mut epmd);
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", names)).is_err() {
            if epmd.0.try_wait().expect("it can be waited for").is_some() {
                return None;
            }
            assert!(start.elapsed() < LIMIT, "epmd does not listen");
            thread::sleep(Duration::from_millis(2));
        }
        let mut rabbit = Rabbit {
            process: Process::start(&mut rabbit),
            _epmd: epmd,
            _folder: folder,
            uri: format!("amqp://127.0.0.1:{port}"),
        };
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if rabbit.has_ended() {
                return None;
            }
            assert!(start.elapsed() < LIMIT, "rabbitmq-server does not listen");
            thread::sleep(Duration::from_millis(2));
        }
        Some(rabbit)
    }

    fn has_ended(&mut self) -> bool {
        let end = self.process.0.try_wait();
        end.expect("it can be waited for").is_some()
    }
}

impl Drop for Rabbit {
    fn drop(&mut self) {
        // Its script ends the server itself, if it is not killed.
        if !self.has_ended() {
            self.process.signal(libc::SIGTERM);
            let _ = self.process.0.wait();
        }
    }
}
