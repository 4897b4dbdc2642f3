//! A tunnel that gives TLS to a client that has none: it accepts plain connections, starts TLS as
//! RFC 9289 says, and passes the bytes on in both directions.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dafs_nfs_suite::nfs3;
use dafs_nfs_suite::rpc::{Auth, Call, record_of};
use rustix::event::{PollFd, PollFlags, poll};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::fixture::HANG;

/// The flavor AUTH_TLS.
pub(crate) const AUTH_TLS: Auth = Auth::Raw(7, Vec::new());

/// A tunnel to one server.
pub(crate) struct Tunnel {
    /// The address at which the tunnel accepts plain connections.
    pub address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl Tunnel {
    pub(crate) fn to(server: SocketAddr, config: &ClientConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (own, config) = (is_over.clone(), Arc::new(config.clone()));
        std::thread::spawn(move || {
            while let Ok((plain, _)) = listener.accept()
                && !own.load(Ordering::Acquire)
            {
                let config = config.clone();
                std::thread::spawn(move || carry(plain, start_tls(server, config)));
            }
        });
        Self { address, is_over }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        let _ = TcpStream::connect(self.address);
    }
}

/// A connection to a server that has started TLS.
pub(crate) type Secure = (ClientConnection, TcpStream);

/// Returns the configuration of a client that trusts an authority.
pub(crate) fn client_of(authority: &Path, identity: Option<(PathBuf, PathBuf)>) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
            builder
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap())
                .unwrap()
        }
    };
    config.alpn_protocols = vec![b"sunrpc".to_vec()];
    config
}

/// Connects to a server and has it start TLS. The handshake is up to the caller.
pub(crate) fn start_tls(server: SocketAddr, config: Arc<ClientConfig>) -> Secure {
    let mut socket = TcpStream::connect(server).unwrap();
    socket.set_read_timeout(Some(HANG)).unwrap();
    assert_eq!(probe(&mut socket), b"STARTTLS");
    let name = ServerName::try_from("localhost").unwrap();
    (ClientConnection::new(config, name).unwrap(), socket)
}

/// Asks a server to start TLS. Returns the verifier in its reply.
pub(crate) fn probe(socket: &mut TcpStream) -> Vec<u8> {
    let call = Call::new(nfs3::PROGRAM, 3, 0, &AUTH_TLS, Vec::new());
    socket.write_all(&record_of(&[&call.encode(7)])).unwrap();
    let mut mark = [0; 4];
    socket.read_exact(&mut mark).unwrap();
    let mut reply = vec![0; u32::from_be_bytes(mark) as usize & 0xffff];
    socket.read_exact(&mut reply).unwrap();
    // The number of the call, a reply, accepted, a verifier without a flavor.
    let head = [[0, 0, 0, 7], [0, 0, 0, 1], [0; 4], [0; 4]].concat();
    assert_eq!(reply[..16], head);
    let length = usize::from(reply[19]);
    assert_eq!(reply[20 + length..], [0; 4], "success without results");
    reply[20..][..length].to_vec()
}

/// Passes bytes on until both sides have ended, or one has failed.
fn carry(mut plain: TcpStream, (mut tls, mut socket): Secure) {
    tls.set_buffer_limit(None);
    for side in [&plain, &socket] {
        side.set_nonblocking(true).unwrap();
    }
    let (mut received, mut is_heard, mut is_open) = (Vec::new(), true, true);
    while is_open || !received.is_empty() {
        let wanted = |condition, flags| if condition { flags } else { PollFlags::empty() };
        let of_plain = wanted(is_heard && !tls.wants_write(), PollFlags::IN)
            | wanted(!received.is_empty(), PollFlags::OUT);
        let of_socket = wanted(is_open && received.is_empty(), PollFlags::IN)
            | wanted(tls.wants_write(), PollFlags::OUT);
        let mut both = [
            PollFd::from_borrowed_fd(plain.as_fd(), of_plain),
            PollFd::from_borrowed_fd(socket.as_fd(), of_socket),
        ];
        poll(&mut both, None).unwrap();
        let [from_plain, _] = both.map(|one| one.revents());
        if is_heard && !tls.wants_write() && !from_plain.is_empty() {
            let mut buffer = vec![0; 64 << 10];
            match plain.read(&mut buffer) {
                Ok(0) => {
                    is_heard = false;
                    tls.send_close_notify();
                }
                Ok(count) => tls.writer().write_all(&buffer[..count]).unwrap(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
        while tls.wants_write() {
            match tls.write_tls(&mut socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return,
            }
        }
        if received.is_empty() {
            match tls.read_tls(&mut socket) {
                Ok(0) => is_open = false,
                Ok(_) => is_open = tls.process_new_packets().is_ok(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => is_open = false,
            }
            // The end of the stream is reported as an error without bytes, or as zero bytes.
            let _ = tls.reader().read_to_end(&mut received);
        }
        match plain.write(&received) {
            Ok(count) => drop(received.drain(..count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
    let _ = plain.shutdown(Shutdown::Both);
}
