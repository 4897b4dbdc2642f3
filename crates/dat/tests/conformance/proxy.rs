//! A proxy that hands bytes on as no network would be so unkind to do: in dribbles of
//! few bytes, and then in heaps of what has piled up.
//!
//! Invariant: every byte that came in goes out, once and in order, and so does the end.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use dafs_types::Random;
use rustix::net::RecvFlags;

/// Starts a proxy before `target`, and says where it listens. `seed` says how it cuts.
pub fn before(target: SocketAddr, seed: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let mut dice = Random::new(seed);
        while let Ok((client, _)) = listener.accept() {
            let Ok(server) = TcpStream::connect(target) else {
                // Nobody there: so the client learns by the end of its connection.
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
            // What is held waits for nobody. Not by a flag of the socket, which the
            // other direction shares.
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
            // Let it pile up, unless there is nothing more to come.
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
