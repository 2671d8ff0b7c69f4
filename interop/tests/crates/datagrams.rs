//! Many datagrams in one call by quinn-udp (GSO and GRO, `recvmmsg`), by `try_io` of polder's
//! socket.

use std::io::{ErrorKind, IoSliceMut};

use polder::net::UdpSocket;
use polder::poller::Interest;
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};

use crate::everywhere;

/// quinn-udp sends and receives many datagrams in one call.
#[test]
fn quinn_udp_batches_datagrams() {
    everywhere(|_| async {
        let near = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let far = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let sends = UdpSocketState::new((&near).into()).expect("its options are set");
        let receives = UdpSocketState::new((&far).into()).expect("its options are set");
        let contents: Vec<u8> = (0..sends.max_gso_segments().min(8) * 100)
            .map(|n| (n / 100) as u8)
            .collect();
        let transmit = Transmit {
            destination: far.local_addr().expect("it is bound"),
            contents: &contents,
            segment_size: Some(100),
            ecn: None,
            src_ip: None,
        };
        let send = || sends.try_send((&near).into(), &transmit);
        loop {
            near.writable().await.expect("it is open");
            match near.try_io(Interest::WRITABLE, send) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                sent => break sent.expect("they are sent"),
            }
        }

        let mut datagrams = Vec::new();
        while datagrams.len() < contents.len() / 100 {
            let (mut bytes, mut metas) = ([[0; 4096]; 4], [RecvMeta::default(); 4]);
            let mut buffers = bytes.each_mut().map(|bytes| IoSliceMut::new(bytes));
            far.readable().await.expect("it is open");
            let receive = || receives.recv((&far).into(), &mut buffers, &mut metas);
            match far.try_io(Interest::READABLE, receive) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                count => {
                    let count = count.expect("they come");
                    for (bytes, meta) in bytes.iter().zip(&metas[..count]) {
                        datagrams.extend(bytes[..meta.len].chunks(meta.stride).map(<[u8]>::to_vec));
                    }
                }
            }
        }
        assert_eq!(datagrams.concat(), contents);
        assert!(datagrams.iter().all(|datagram| datagram.len() == 100));
    });
}
