//! The cost of a recording: CPU time of an echo of 64 bytes, with and without a tape, and the bytes
//! of the tape beside the payload.
//!
//! The clients are another process, so the CPU time is the server's, with the thread that writes
//! the tape.

#[cfg(all(unix, not(any(target_os = "illumos", target_os = "solaris"))))]
mod unix {
    use std::io;
    use std::net::SocketAddr;
    use std::process::Command;
    use std::time::Duration;

    use polder::io::{AsyncReadExt, AsyncWriteExt};
    use polder::net::{TcpListener, TcpStream};
    use polder::time::timeout;

    const LENGTH: usize = 64;
    const ROUNDS: usize = 5;

    async fn client(address: SocketAddr, connections: usize, echoes: usize) -> io::Result<()> {
        let one = || async move {
            let mut stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let mut bytes = [7; LENGTH];
            for _ in 0..echoes / connections {
                stream.write_all(&bytes).await?;
                stream.read_exact(&mut bytes).await?;
            }
            io::Result::Ok(())
        };
        let tasks: Vec<_> = (0..connections)
            .map(|_| polder::spawn_local(one()))
            .collect();
        for task in tasks {
            task.await?;
        }
        Ok(())
    }

    /// With a time limit for each read, if `has_timers`.
    async fn server(connections: usize, echoes: usize, has_timers: bool) -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let arguments = [&address, &connections.to_string(), &echoes.to_string()];
        let mut clients = Command::new(std::env::current_exe()?)
            .args(arguments)
            .spawn()?;
        let mut tasks = Vec::new();
        for _ in 0..connections {
            let (mut stream, _) = listener.accept().await?;
            tasks.push(polder::spawn_local(async move {
                let mut bytes = [0; 1_024];
                loop {
                    let read = stream.read(&mut bytes);
                    let read = if has_timers {
                        let limited = timeout(Duration::from_secs(30), read).await;
                        limited.map_err(|_| io::ErrorKind::TimedOut)??
                    } else {
                        read.await?
                    };
                    if read == 0 {
                        return io::Result::Ok(());
                    }
                    stream.write_all(&bytes[..read]).await?;
                }
            }));
        }
        for task in tasks {
            task.await?;
        }
        clients.wait()?;
        Ok(())
    }

    fn cpu_time() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    pub(super) fn main() -> io::Result<()> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        if let [address, connections, echoes] = &*arguments {
            let number = |text: &str| text.parse::<usize>().expect("a number");
            let address = address.parse().expect("an address");
            return polder::block_on(client(address, number(connections), number(echoes)));
        }
        let path = std::env::temp_dir().join(format!("cost-{}.tape", std::process::id()));
        // One run, for a profiler.
        if let [how, connections, timers, echoes] = &*arguments {
            let number = |text: &str| text.parse::<usize>().expect("a number");
            let server = server(number(connections), number(echoes), timers == "timers");
            return match &**how {
                "plain" => polder::block_on(server),
                _ => {
                    polder_replay::record(&path, server)?.and_then(|()| std::fs::remove_file(path))
                }
            };
        }
        let echoes = arguments
            .first()
            .map_or(100_000, |text| text.parse().expect("a number"));
        for (connections, has_timers) in [(1, false), (1, true), (50, false), (50, true)] {
            let (mut ratios, mut plain, mut recorded) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let _ = std::fs::remove_file(&path); // An older tape would be kept.
                let begin = cpu_time();
                polder::block_on(server(connections, echoes, has_timers))?;
                let middle = cpu_time();
                polder_replay::record(&path, server(connections, echoes, has_timers))??;
                let end = cpu_time();
                let each = |time: Duration| time.as_nanos() as f64 / echoes as f64;
                plain.push(each(middle - begin));
                recorded.push(each(end - middle));
                ratios.push((end - middle).as_secs_f64() / (middle - begin).as_secs_f64());
            }
            let median = |mut values: Vec<f64>| {
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            let bytes = std::fs::metadata(&path)?.len() as f64 / echoes as f64 - LENGTH as f64;
            println!(
                "{connections:>3} connections, {} timers: {:.0} ns an echo, {:.0} ns recorded, ratio {:.3}; {bytes:.1} bytes of tape beside the payload",
                if has_timers { "with" } else { "no" },
                median(plain),
                median(recorded),
                median(ratios),
            );
        }
        std::fs::remove_file(path)
    }
}

#[cfg(all(unix, not(any(target_os = "illumos", target_os = "solaris"))))]
fn main() -> std::io::Result<()> {
    unix::main()
}

#[cfg(not(all(unix, not(any(target_os = "illumos", target_os = "solaris")))))]
fn main() {
    eprintln!("rustix has no clock of processor time on this system");
}
