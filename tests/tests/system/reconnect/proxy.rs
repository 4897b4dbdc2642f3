//! A TCP proxy between client and server that breaks connections or silently drops their data.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use dafs_dat::Address;
use dafs_types::Random;

pub(crate) struct Proxy {
    pub address: Address,
    links: Arc<Mutex<Vec<Link>>>,
    is_over: Arc<AtomicBool>,
    is_closed: Arc<AtomicBool>,
    local: SocketAddr,
}

/// The two halves of one connection.
struct Link {
    halves: [TcpStream; 2],
    is_parted: Arc<AtomicBool>,
    /// True if only the server's data is dropped.
    is_mute: Arc<AtomicBool>,
}

impl Proxy {
    /// Makes a proxy for a server.
    pub(crate) fn before(server: &Address) -> Self {
        let &Address::Tcp(server) = server else { panic!("{server} is not reached over TCP") };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let (links, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (made, ending) = (links.clone(), is_over.clone());
        let is_closed = Arc::new(AtomicBool::new(false));
        let turns_away = is_closed.clone();
        std::thread::spawn(move || {
            for near in listener.incoming() {
                if ending.load(Ordering::Acquire) {
                    return;
                }
                if turns_away.load(Ordering::Acquire) {
                    continue;
                }
                // The server is down: the client sees its connection end.
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(server)) else { continue };
                made.lock().unwrap().push(Link::new(near, far));
            }
        });
        Self { address: Address::Tcp(local), links, is_over, is_closed, local }
    }

    /// Breaks every connection.
    pub(crate) fn cut(&self) {
        for link in self.links.lock().unwrap().drain(..) {
            link.cut();
        }
    }

    /// Breaks one connection, counted from 0 in the order they were made since the last
    /// [`Proxy::cut`].
    pub(crate) fn cut_one(&self, number: usize) {
        self.links.lock().unwrap()[number].cut();
    }

    /// Breaks one of the connections, if there is any.
    pub(crate) fn cut_any(&self, random: &mut Random) {
        let mut links = self.links.lock().unwrap();
        if !links.is_empty() {
            let number = random.below(links.len());
            links.swap_remove(number).cut();
        }
    }

    /// Drops all data of one connection from now on, as [`Proxy::part`] does.
    pub(crate) fn part_one(&self, number: usize) {
        self.links.lock().unwrap()[number].is_parted.store(true, Ordering::Release);
    }

    /// Drops the server's data of one connection from now on.
    pub(crate) fn part_answers_of(&self, number: usize) {
        self.links.lock().unwrap()[number].is_mute.store(true, Ordering::Release);
    }

    /// Refuses new connections from now on, or accepts them again.
    pub(crate) fn close(&self, is_closed: bool) {
        self.is_closed.store(is_closed, Ordering::Release);
    }

    /// Drops all data of the existing connections from now on, without either side noticing. New
    /// ones are made as before.
    pub(crate) fn part(&self) {
        for link in self.links.lock().unwrap().iter() {
            link.is_parted.store(true, Ordering::Release);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.cut();
        // Wakes the listener, which then ends.
        let _ = TcpStream::connect(self.local);
    }
}

impl Link {
    fn new(near: TcpStream, far: TcpStream) -> Self {
        let (is_parted, is_mute) = (Arc::default(), Arc::default());
        let link = Self { halves: [near, far], is_parted, is_mute };
        for (from, to) in [(0, 1), (1, 0)] {
            let is_mute = if from == 0 { Arc::default() } else { link.is_mute.clone() };
            let _ = link.halves[from].set_nodelay(true);
            let from = link.halves[from].try_clone().unwrap();
            let to = link.halves[to].try_clone().unwrap();
            let is_parted = link.is_parted.clone();
            std::thread::spawn(move || carry(from, to, [&is_parted, &is_mute]));
        }
        link
    }

    fn cut(&self) {
        for half in &self.halves {
            let _ = half.shutdown(Shutdown::Both);
        }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, cuts: [&AtomicBool; 2]) {
    let is_parted = || cuts.iter().any(|cut| cut.load(Ordering::Acquire));
    let mut bytes = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        // Dropped data is still read, so that neither side sees its window close.
        if !is_parted() && to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    if !is_parted() {
        let _ = to.shutdown(Shutdown::Both);
    }
}
