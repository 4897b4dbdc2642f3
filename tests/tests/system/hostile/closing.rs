//! Tests descriptors whose close takes as long as their owner likes: only their sender must wait.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};

use super::shm::{CAPACITY, Control, Rings, borrowed, hello};
use crate::bystander::beside_bystanders_of;
use crate::fixture::{HANG, Transport, await_that};

/// Makes a TCP socket whose close waits ten minutes for a peer that reads nothing.
fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 64 << 10]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::from_secs(600))).unwrap();
    (socket.into(), peer)
}

/// Sends a packet with descriptors and closes them here, so that the server's copies are the last.
/// If the server was faster, this detached thread waits for minutes, and nothing waits for it.
fn send_and_forget(control: &Control, packet: &[u8], fds: Vec<OwnedFd>) {
    let (control, packet) = (control.duplicate(), packet.to_vec());
    let (sent, is_sent) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        control.send(&packet, &borrowed(&fds));
        drop(control);
        let _ = sent.send(());
        drop(fds);
    });
    is_sent.recv_timeout(HANG).expect("the packet is sent or refused");
}

#[test]
fn descriptors_whose_close_would_wait_for_minutes_stall_nobody() {
    beside_bystanders_of(
        |_| {},
        |fixture| {
            let address = &fixture.address(Transport::Shm);
            let mut peers = Vec::new();
            let mut one = || {
                let (socket, peer) = lingering();
                peers.push(peer);
                socket
            };
            for packet in [vec![9], hello(CAPACITY as u32), vec![5, 1, 0, 0, 0], Vec::new()] {
                // Examined descriptors: before the start, more than fit a packet, and after the
                // start.
                let control = Control::connect(address);
                send_and_forget(&control, &packet, vec![one()]);
                control.ends();
                let control = Control::connect(address);
                send_and_forget(&control, &packet, vec![one(), one(), one()]);
                control.ends();
                let rings = Rings::logged_in(address);
                send_and_forget(&rings.control, &packet, vec![one()]);
                rings.ends();
                // Descriptors that are never examined, because the connection ends first.
                let control = Control::connect(address);
                control.send(&[9], &[]);
                send_and_forget(&control, &packet, vec![one()]);
                drop(control);
                let rings = Rings::logged_in(address);
                rings.control.send(b"\x06gone", &[]);
                send_and_forget(&rings.control, &packet, vec![one()]);
                drop(rings);
                let (_, honest) = fixture.connect(Transport::Shm);
                honest.ping().unwrap();
            }
        },
    );
}

/// A FUSE file system with one file, whose daemon never replies to FLUSH: each close of the file
/// waits until the daemon ends.
struct DeafFile {
    path: PathBuf,
    flushes: Arc<AtomicUsize>,
}

impl DeafFile {
    /// Returns `None` where this test may not mount.
    fn mount(path: PathBuf) -> Option<Self> {
        std::fs::write(&path, b"").unwrap();
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let device = rustix::fs::open("/dev/fuse", flags, Mode::empty()).ok()?;
        let options = format!("fd={},rootmode=100000,user_id=0,group_id=0\0", device.as_raw_fd());
        let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).unwrap();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("deaf", &path, "fuse", flags, options).ok()?;
        let flushes = Arc::new(AtomicUsize::new(0));
        let counted = flushes.clone();
        std::thread::spawn(move || serve(&device, &counted));
        Some(Self { path, flushes })
    }

    fn open(&self) -> OwnedFd {
        std::fs::File::open(&self.path).unwrap().into()
    }
}

impl Drop for DeafFile {
    fn drop(&mut self) {
        // A forced unmount ends every wait for a reply, and with it the daemon.
        let _ = rustix::mount::unmount(&self.path, UnmountFlags::FORCE);
        let _ = rustix::mount::unmount(&self.path, UnmountFlags::DETACH);
    }
}

/// Replies as needed to open a file, until the file system is gone.
fn serve(device: &OwnedFd, flushes: &AtomicUsize) {
    let mut request = vec![0; 64 << 10];
    while let Ok(length) = rustix::io::read(device, &mut request[..]) {
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        assert!(length >= 40, "a request's header");
        let (opcode, unique) = (word(4), &request[8..16]);
        let mut attributes = [0; 104];
        // A file with one name; the other fields may be zero.
        attributes[76..80].copy_from_slice(&(0o100_777_u32).to_ne_bytes());
        attributes[80..84].copy_from_slice(&1u32.to_ne_bytes());
        let mut terms = [0; 64];
        terms[..4].copy_from_slice(&7u32.to_ne_bytes());
        terms[4..8].copy_from_slice(&31u32.to_ne_bytes());
        terms[20..24].copy_from_slice(&4096u32.to_ne_bytes());
        let (error, body): (i32, &[u8]) = match opcode {
            GETATTR => (0, &attributes),
            OPEN => (0, &[0; 16]),
            INIT => (0, &terms),
            RELEASE => (0, &[]),
            FLUSH => {
                flushes.fetch_add(1, Ordering::AcqRel);
                continue;
            }
            FORGET | INTERRUPT | BATCH_FORGET => continue,
            _ => (-rustix::io::Errno::NOSYS.raw_os_error(), &[]),
        };
        let length = (16 + body.len()) as u32;
        let answer = [&length.to_ne_bytes()[..], &error.to_ne_bytes(), unique, body].concat();
        let _ = rustix::io::write(device, &answer);
    }
}

#[test]
fn files_whose_daemon_never_answers_stall_nobody() {
    beside_bystanders_of(
        |_| {},
        |fixture| {
            let Some(file) = DeafFile::mount(fixture.root().join("deaf")) else {
                return dafs_tests::skip("a mount needs /dev/fuse and root");
            };
            let address = &fixture.address(Transport::Shm);
            for round in 1..=5 {
                let control = Control::connect(address);
                send_and_forget(&control, &hello(CAPACITY as u32), vec![file.open()]);
                control.ends();
                let rings = Rings::logged_in(address);
                send_and_forget(&rings.control, &[5, 1, 0, 0, 0], vec![file.open()]);
                rings.ends();
                // All closes of this side, and some of the server's.
                await_that("closes wait", || file.flushes.load(Ordering::Acquire) > 2 * round);
                let (_, honest) = fixture.connect(Transport::Shm);
                honest.ping().unwrap();
            }
        },
    );
}

const GETATTR: u32 = 3;
const FORGET: u32 = 2;
const OPEN: u32 = 14;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;
