//! Unix sockets within a host of a world.

use std::io::{ErrorKind, Result};

use polder::future::zip;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::Shutdown;
use polder::net::unix::{UnixDatagram, UnixListener, UnixStream};
use polder::time::{sleep, timeout};

use super::{ms, secs};

#[test]
fn a_path_belongs_to_its_host() {
    polder_sim::check(0..5, |sim| async move {
        let _listener = UnixListener::bind("/run/it")?;
        let taken = UnixListener::bind("/run/it").unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        let other = sim.host("other").start(|| async {
            let missing = UnixStream::connect("/run/it").await.unwrap_err();
            assert_eq!(missing.kind(), ErrorKind::NotFound);
            UnixListener::bind("/run/it").map(drop)
        });
        other.finished().within(secs(1)).await?;
        assert!(UnixStream::connect("/run/it").await.is_ok());
        assert!(!std::path::Path::new("/run/it").exists(), "it is a file");
        Result::Ok(())
    });
}

/// A restarted host binds its path again and refuses until then.
#[test]
fn restarted_host_rebinds_path() {
    polder_sim::check(0..5, |sim| async move {
        let host = sim.host("host").start(|| async {
            if let Err(error) = UnixStream::connect("/run/it").await {
                let listener = UnixListener::bind("/run/it").unwrap();
                let _keep = zip(listener.accept(), sleep(secs(1_000))).await;
                return Some(error.kind());
            }
            None
        });
        for round in 0..3 {
            sleep(ms(10)).await;
            match round {
                0 => host.kill(),
                _ => host.power_off(),
            }
            host.restart();
        }
        host.kill();
        let host =
            host.start(|| async { UnixStream::connect("/run/it").await.unwrap_err().kind() });
        let kind = host.finished().within(secs(1)).await;
        assert_eq!(kind, ErrorKind::ConnectionRefused);
        Result::Ok(())
    });
}

#[test]
fn much_goes_through_a_stream_both_ways() {
    polder_sim::check(0..20, |_| async move {
        let listener = UnixListener::bind("/run/it")?;
        let bytes: Vec<u8> = (0..3_000_000_u32)
            .map(|it| it.wrapping_mul(it) as u8)
            .collect();
        let (near, far) = zip(UnixStream::connect("/run/it"), listener.accept()).await;
        let exchange = |stream: UnixStream| {
            let bytes = bytes.clone();
            async move {
                let (mut reader, mut writer) = stream.into_split();
                let mut back = vec![0; bytes.len()];
                let (read, written) =
                    zip(reader.read_exact(&mut back), writer.write_all(&bytes)).await;
                read?;
                written?;
                assert_eq!(back, bytes);
                Result::Ok(())
            }
        };
        let (one, other) = zip(exchange(near?), exchange(far?.0)).await;
        one?;
        other
    });
}

#[test]
fn a_connection_waits_for_room_in_the_queue() {
    polder_sim::check(0..2, |sim| async move {
        sim.steps(1_000_000);
        let listener = UnixListener::bind("/run/it")?;
        let mut streams = Vec::new();
        // As many as the backlog of polder's listeners, plus one.
        let last = loop {
            match timeout(secs(1), UnixStream::connect("/run/it")).await {
                Ok(stream) => streams.push(stream?),
                Err(_) => break UnixStream::connect("/run/it"),
            }
            assert!(streams.len() < 10_000, "the queue has no end");
        };
        let (last, first) = zip(timeout(secs(1), last), listener.accept()).await;
        last??;
        first?;
        Result::Ok(())
    });
}

#[test]
fn datagrams_wait_for_room_in_the_receivers_queue() {
    polder_sim::check(0..10, |_| async move {
        let mailbox = UnixDatagram::bind("/run/mail")?;
        let sender = UnixDatagram::unbound()?;
        let receive = async {
            for n in 0..100_u8 {
                sleep(ms(5)).await;
                let mut bytes = [0; 4];
                let (length, from) = mailbox.recv_from(&mut bytes).await?;
                assert_eq!((length, bytes[0]), (1, n));
                assert!(from.is_unnamed());
            }
            Result::Ok(())
        };
        let send = async {
            for n in 0..100_u8 {
                match n % 2 {
                    0 => sender.send_to(&[n], "/run/mail").await?,
                    _ => {
                        sender.connect("/run/mail")?;
                        sender.send(&[n]).await?
                    }
                };
            }
            Result::Ok(())
        };
        let (sent, received) = zip(send, timeout(secs(60), receive)).await;
        sent?;
        received?
    });
}

/// A writer waits for its reader and hears that it has gone.
#[test]
fn writer_waits_for_reader_and_sees_its_end() {
    polder_sim::check(0..10, |_| async move {
        let (mut near, far) = UnixStream::pair()?;
        let write = async { near.write_all(&[7; 1_000_000]).await.unwrap_err().kind() };
        let close = async {
            sleep(secs(1)).await;
            drop(far);
        };
        let (error, ()) = zip(timeout(secs(2), write), close).await;
        assert_eq!(error?, ErrorKind::BrokenPipe);
        let (near, far) = UnixDatagram::pair()?;
        let fill = async {
            loop {
                if let Err(error) = near.send(b"x").await {
                    return error.kind();
                }
            }
        };
        let close = async {
            sleep(secs(1)).await;
            drop(far);
        };
        let (error, ()) = zip(timeout(secs(2), fill), close).await;
        assert_eq!(error?, ErrorKind::ConnectionRefused);
        Result::Ok(())
    });
}

/// The peer of a full queue is woken when it has room.
#[test]
fn a_connected_sender_is_woken_when_there_is_room() {
    polder_sim::check(0..10, |_| async move {
        let mailbox = UnixDatagram::bind("/run/mail")?;
        let sender = UnixDatagram::unbound()?;
        sender.connect("/run/mail")?;
        while sender.try_send(b"x").is_ok() {}
        let receive = async {
            sleep(secs(1)).await;
            mailbox.recv(&mut [0; 4]).await
        };
        let (sent, received) = zip(timeout(secs(2), sender.send(b"y")), receive).await;
        assert_eq!((sent??, received?), (1, 1));
        Result::Ok(())
    });
}

/// Credentials are those of this process and no descriptors pass.
#[test]
fn credentials_of_process_no_descriptors_pass() {
    polder_sim::check(0..1, |_| async move {
        let (near, far) = UnixStream::pair()?;
        assert_eq!(near.peer_cred()?.uid(), far.peer_cred()?.uid());
        assert!(!near.passrights()?);
        near.set_passrights(false)?;
        let refused = near.set_passrights(true).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        let real = std::os::unix::net::UnixStream::try_from(near).unwrap_err();
        assert_eq!(real.kind(), ErrorKind::Unsupported);
        Result::Ok(())
    });
}

/// A pair takes two descriptors and is refused where there is one.
#[test]
fn pair_takes_two_descriptors() {
    polder_sim::check(0..3, |sim| async move {
        sim.host("test").descriptors(3);
        let pair = UnixStream::pair()?;
        for _ in 0..2 {
            assert!(UnixStream::pair().is_err());
            assert!(UnixDatagram::pair().is_err());
        }
        let one = UnixDatagram::unbound()?;
        assert!(UnixDatagram::unbound().is_err());
        drop(pair);
        let pair = UnixDatagram::pair()?;
        assert!(UnixDatagram::unbound().is_err());
        drop((pair, one));
        Result::Ok(())
    });
}

/// A reader that waits is woken by the end of writing and by that of reading.
#[test]
fn reader_woken_by_either_shutdown() {
    polder_sim::check(0..10, |sim| async move {
        let by_its_peer = sim.choose(2) == 0;
        let (near, far) = UnixStream::pair().unwrap();
        let mut reader = near.clone();
        let reader = polder::spawn_local(async move { reader.read(&mut [0]).await });
        sleep(ms(1)).await;
        if by_its_peer {
            far.shutdown(Shutdown::Write).unwrap();
        } else {
            near.shutdown(Shutdown::Read).unwrap();
        }
        let read = timeout(secs(1), reader).await.expect("it is woken");
        assert_eq!(read.unwrap(), 0);
    });
}
