//! A TCP proxy between client and server that cuts what goes through it, or lets it pass
//! no more.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use dafs_dat::Address;

pub struct Proxy {
    pub address: Address,
    links: Arc<Mutex<Vec<Link>>>,
    is_over: Arc<AtomicBool>,
    local: SocketAddr,
}

/// The two halves of one connection.
struct Link {
    halves: [TcpStream; 2],
    is_parted: Arc<AtomicBool>,
}

impl Proxy {
    /// In front of a server.
    pub fn before(server: &Address) -> Self {
        let &Address::Tcp(server) = server else { panic!("{server} is not reached over TCP") };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let (links, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (made, ending) = (links.clone(), is_over.clone());
        std::thread::spawn(move || {
            for near in listener.incoming() {
                if ending.load(Ordering::Acquire) {
                    return;
                }
                // Nobody there: the client sees its connection end.
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(server)) else { continue };
                made.lock().unwrap().push(Link::new(near, far));
            }
        });
        Self { address: Address::Tcp(local), links, is_over, local }
    }

    /// Breaks every connection, wherever it is.
    pub fn cut(&self) {
        for link in self.links.lock().unwrap().drain(..) {
            link.cut();
        }
    }

    /// From now on nothing gets through the connections there are, and neither side hears
    /// of it. New ones are made as before.
    pub fn part(&self) {
        for link in self.links.lock().unwrap().iter() {
            link.is_parted.store(true, Ordering::Release);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.cut();
        // Wakes the listener, which ends then.
        let _ = TcpStream::connect(self.local);
    }
}

impl Link {
    fn new(near: TcpStream, far: TcpStream) -> Self {
        let link = Self { halves: [near, far], is_parted: Arc::default() };
        for (from, to) in [(0, 1), (1, 0)] {
            let _ = link.halves[from].set_nodelay(true);
            let from = link.halves[from].try_clone().unwrap();
            let to = link.halves[to].try_clone().unwrap();
            let is_parted = link.is_parted.clone();
            std::thread::spawn(move || carry(from, to, &is_parted));
        }
        link
    }

    fn cut(&self) {
        for half in &self.halves {
            let _ = half.shutdown(Shutdown::Both);
        }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_parted: &AtomicBool) {
    let mut octets = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut octets) {
        // Parted, it is read and lost: neither side sees its window close.
        if !is_parted.load(Ordering::Acquire) && to.write_all(&octets[..count]).is_err() {
            break;
        }
    }
    if !is_parted.load(Ordering::Acquire) {
        let _ = to.shutdown(Shutdown::Both);
    }
}
