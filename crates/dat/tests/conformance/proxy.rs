//! A proxy that forwards bytes in the worst possible way: a few at a time, and then all that have
//! accumulated.
//!
//! Invariant: every byte that comes in goes out, once and in order, and so does the end.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use dafs_types::Random;
use rustix::net::RecvFlags;

/// Starts a proxy for `target` and returns its address. `seed` determines how it cuts the stream.
pub(crate) fn before(target: SocketAddr, seed: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let mut dice = Random::new(seed);
        while let Ok((client, _)) = listener.accept() {
            let Ok(server) = TcpStream::connect(target) else {
                // Nothing listens there. The client learns it from the end of its connection.
                continue;
            };
            for (from, to) in [(&client, &server), (&server, &client)] {
                let _ = to.set_nodelay(true);
                let (from, to) = (from.try_clone(), to.try_clone());
                let dice = dice.fork();
                if let (Ok(from), Ok(to)) = (from, to) {
                    std::thread::spawn(move || hand_on(from, to, dice));
                }
            }
        }
    });
    address
}

fn hand_on(from: TcpStream, mut to: TcpStream, mut dice: Random) {
    let mut heap = vec![0; HEAP_BYTES];
    let (mut held, mut is_open) = (0, true);
    while is_open || held > 0 {
        if is_open && held < HEAP_BYTES {
            // If bytes are held, do not block. This is not a flag of the socket, because the other
            // direction shares those.
            let flags = if held > 0 { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
            match rustix::net::recv(&from, &mut heap[held..], flags) {
                Ok((0, _)) => is_open = false,
                Ok((count, _)) => held += count,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(_) => is_open = false,
            }
        }
        let most = match dice.below(16) {
            0..4 => 1 + dice.below(3),
            4..12 => 1 + dice.below(2000),
            // Let bytes accumulate, unless no more can come.
            12..14 if is_open && held < PILE_BYTES && dice.below(4) > 0 => 0,
            _ => held,
        };
        let count = most.min(held);
        if to.write_all(&heap[..count]).is_err() {
            let _ = from.shutdown(Shutdown::Both);
            return;
        }
        heap.copy_within(count..held, 0);
        held -= count;
    }
    let _ = to.shutdown(Shutdown::Write);
}

const HEAP_BYTES: usize = 256 << 10;
const PILE_BYTES: usize = 64 << 10;
