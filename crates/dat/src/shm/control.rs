//! The Unix socket beside the rings: who the peer is, how the connection begins
//! and ends, and which regions it may reach.
//!
//! Invariant: one packet is one message (SOCK_SEQPACKET); a packet that does not
//! parse is a violation.
//!
//! What comes with a packet is the peer's own, and closing it can block (`disposal`). So an
//! acceptor looks at a packet before it takes it. It takes the packet off the socket only if no
//! descriptor came with it, or one that F_GET_SEALS proves to be a sealed memory file. All else
//! ends the connection: the packet stays on the socket, and `disposal` closes both.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::SealFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use crate::connection::Poller;
use crate::{PeerProcess, Stag, disposal};

/// What the two sides say to each other beside the rings.
#[derive(Debug)]
pub enum Packet {
    /// Initiator's first word. With it: ring memory.
    Hello(Hello, PeerFile),
    /// The connection stands. `reaches_process` says that `process_vm_*` works. With
    /// it: what wakes the acceptor, and what becomes readable to wake the initiator.
    Accept { reaches_process: bool, private_data: Box<[u8]>, wakes: [OwnedFd; 2] },
    /// It does not.
    Reject { private_data: Box<[u8]> },
    /// A region became reachable; with its memory file, if it has one.
    Expose(ExposedRegion, Option<PeerFile>),
    /// A region is no longer reachable.
    Withdraw(Stag),
    /// The peer broke the rules; it learns which.
    Terminate(String),
    /// Acceptor's: a descriptor that the initiator's application asked for by this name. None
    /// came with it if this process had no room for it.
    HandOver(u64, Option<OwnedFd>),
}

/// The initiator's description of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Bytes of frames in each direction.
    pub capacity: u32,
    /// Address of a word in the initiator, to try `process_vm_readv` on.
    pub probe_address: u64,
    /// What the word holds.
    pub probe_value: u64,
    /// The connecting application's own bytes.
    pub private_data: Box<[u8]>,
}

/// A region as its owner announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExposedRegion {
    pub stag: Stag,
    pub address: u64,
    pub length: u64,
    pub remote_read: bool,
    pub remote_write: bool,
}

/// What the kernel may write into.
///
/// # Safety
/// Any bytes are a value.
unsafe trait SocketOption {}
// SAFETY: a number.
unsafe impl SocketOption for u32 {}
// SAFETY: three numbers without padding.
unsafe impl SocketOption for libc::ucred {}

/// A descriptor of the peer's. Unless it is taken out, `disposal` closes it: even of a memory
/// file it may be the last reference, and freeing the pages takes its time.
#[derive(Debug)]
pub struct PeerFile(Option<OwnedFd>);

impl PeerFile {
    pub fn new(fd: OwnedFd) -> Self {
        Self(Some(fd))
    }

    /// The descriptor, for the caller to close where it likes.
    pub fn take(mut self) -> Option<OwnedFd> {
        self.0.take()
    }

    /// The descriptor, while it is there.
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.0.as_ref().map(AsFd::as_fd).ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl Drop for PeerFile {
    fn drop(&mut self) {
        if let Some(fd) = self.0.take() {
            disposal::memory(fd);
        }
    }
}

/// The socket, non-blocking; without a descriptor once it is closed.
#[derive(Debug)]
pub struct ControlSocket {
    fd: Option<OwnedFd>,
    side: Side,
}

/// Which side of the connection has the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// It chose whom it talks to, and waits for that one alone.
    Initiator,
    /// Anybody may be at the other end, and others wait to be served. With the peer's user.
    Acceptor(Option<u32>),
}

/// A packet that was looked at and is on the socket still.
struct Seen {
    length: usize,
    /// It is longer than any packet of ours.
    is_cut: bool,
    /// More descriptors came with it than there was room for, or were wanted.
    has_more: bool,
    fds: Vec<OwnedFd>,
}

impl ControlSocket {
    /// The side that connects.
    pub fn initiator(fd: OwnedFd) -> Self {
        Self { fd: Some(fd), side: Side::Initiator }
    }

    /// The side that accepts.
    pub fn acceptor(fd: OwnedFd) -> Self {
        let mut socket = Self { fd: Some(fd), side: Side::Acceptor(None) };
        socket.side = Side::Acceptor(socket.credentials().map(|credentials| credentials.uid));
        socket
    }

    /// The descriptor, while it is open.
    pub fn fd(&self) -> std::io::Result<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd).ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// The peer's user, of an acceptor's socket.
    pub fn user(&self) -> Option<u32> {
        match self.side {
            Side::Initiator => None,
            Side::Acceptor(user) => user,
        }
    }

    /// Whether it is the side that anybody may connect to.
    pub fn is_acceptor(&self) -> bool {
        self.side != Side::Initiator
    }

    /// Has nobody told of it any more. Whoever holds it may then close it at any time.
    pub fn unwatch(&self, poller: &Poller) {
        if let Some(fd) = &self.fd {
            // Not an error: it may never have been watched.
            let _ = poller.remove(fd.as_fd());
        }
    }

    /// Closes it; nobody is told of it any more.
    pub fn close(&mut self, poller: &Poller) {
        self.unwatch(poller);
        self.let_go();
    }

    fn let_go(&mut self) {
        let is_acceptor = self.is_acceptor();
        if let Some(fd) = self.fd.take().filter(|_| is_acceptor) {
            disposal::socket(fd);
        }
    }

    /// Who the kernel says connected. Number, identity and groups are those of that
    /// moment, whatever the process has become since.
    pub fn peer(&self) -> Option<PeerProcess> {
        let libc::ucred { pid, uid, gid } = self.credentials()?;
        Some(PeerProcess { pid, uid, gid, groups: self.peer_groups() })
    }

    fn credentials(&self) -> Option<libc::ucred> {
        let mut credentials = [libc::ucred { pid: 0, uid: 0, gid: 0 }];
        // The safe wrapper cannot express pid 0, a peer outside our namespace.
        self.option(libc::SO_PEERCRED, &mut credentials).ok()?;
        let [credentials] = credentials;
        Some(credentials)
    }

    /// Kernels before 4.13 do not know; none then, which gives no right to anybody.
    fn peer_groups(&self) -> Box<[u32]> {
        let mut groups = vec![0u32; GROUPS_AT_FIRST];
        let mut found = self.option(libc::SO_PEERGROUPS, &mut groups);
        if found.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ERANGE)) {
            groups = vec![0; GROUPS_MAX];
            found = self.option(libc::SO_PEERGROUPS, &mut groups);
        }
        groups.truncate(found.unwrap_or(0));
        groups.into()
    }

    /// Has the kernel write an option of the socket into `values`; how many it wrote.
    fn option<T: SocketOption>(&self, name: i32, values: &mut [T]) -> io::Result<usize> {
        let socket = self.fd()?.as_raw_fd();
        let mut length = libc::socklen_t::try_from(size_of_val(values)).unwrap_or(0);
        // SAFETY: the kernel writes at most `length` bytes, which are `values`' own, and
        // any bytes are values of a `SocketOption`.
        let result = unsafe {
            let place = values.as_mut_ptr().cast();
            libc::getsockopt(socket, libc::SOL_SOCKET, name, place, &raw mut length)
        };
        if result == 0 {
            Ok(length as usize / size_of::<T>())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Sends a packet with descriptors. An initiator waits for room in the socket for a bounded
    /// time: the peer must drain it before it uses what the packet announces. An acceptor, which
    /// others wait for, does not.
    pub fn send(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let socket = self.fd()?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        loop {
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(fds));
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::sendmsg(socket, &[io::IoSlice::new(packet)], &mut control, flags) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) if self.side == Side::Initiator => {
                    self.wait_for_room()?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Hands a descriptor over. False if the peer has not taken what it was sent before, or the
    /// kernel refuses.
    pub fn hand_over(&self, name: u64, file: BorrowedFd<'_>) -> bool {
        let has_room = self.unread_bytes().is_ok_and(|bytes| bytes <= UNREAD_BYTES_MAX);
        has_room && self.send(&hand_over(name), &[file]).is_ok()
    }

    /// What the peer has not read, as the kernel counts it: with the descriptions of packets.
    fn unread_bytes(&self) -> io::Result<i32> {
        let socket = self.fd()?.as_raw_fd();
        let mut bytes: libc::c_int = 0;
        // SAFETY: the kernel writes one number, which is `bytes`.
        let result = unsafe { libc::ioctl(socket, libc::TIOCOUTQ, &raw mut bytes) };
        if result == 0 { Ok(bytes) } else { Err(io::Error::last_os_error()) }
    }

    /// The next packet, if one is there. `Ok(None)`: nothing now.
    ///
    /// # Errors
    /// `UnexpectedEof` when the peer is gone, `InvalidData` for what does not parse, EMFILE if this
    /// process has no descriptor left for one that came.
    pub fn receive(&self) -> io::Result<Option<Packet>> {
        let mut buffer = [0; PACKET_BYTES_MAX];
        let fds_max = if self.may_take() { FDS_MAX } else { 0 };
        let flags = match self.side {
            Side::Initiator => RecvFlags::empty(),
            Side::Acceptor(_) => RecvFlags::PEEK,
        };
        let Some(Seen { length, is_cut, has_more, fds }) =
            self.receive_with(&mut buffer, fds_max, flags)?
        else {
            return Ok(None);
        };
        let fds = match self.side {
            // There is room for all that a packet may have: what is missing has no number here. Who
            // asked to be handed something over goes on without.
            Side::Initiator
                if has_more && fds.len() < FDS_MAX && buffer.first() != Some(&HAND_OVER) =>
            {
                return Err(rustix::io::Errno::MFILE.into());
            }
            Side::Initiator => fds,
            Side::Acceptor(user) => {
                let fds = prove(fds, has_more).map_err(|(fds, what)| {
                    disposal::descriptors(user, fds);
                    malformed(what)
                })?;
                if length > 0 {
                    self.pass()?;
                }
                fds
            }
        };
        let fds = fds.into_iter().map(PeerFile::new).collect();
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let whole = if is_cut { &[] } else { &buffer[..length] };
        parse(whole, fds).map(Some).ok_or_else(|| malformed("malformed control packet"))
    }

    /// Whether nothing is there to be received: neither a packet nor the end.
    pub fn is_drained(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = self.fd().map(|socket| rustix::net::recv(socket, &mut [0; 1], flags));
        matches!(peeked, Ok(Err(rustix::io::Errno::AGAIN)))
    }

    fn may_take(&self) -> bool {
        match self.side {
            Side::Initiator => true,
            Side::Acceptor(user) => disposal::may_take(user),
        }
    }

    fn receive_with(
        &self,
        buffer: &mut [u8],
        fds_max: usize,
        flags: RecvFlags,
    ) -> io::Result<Option<Seen>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let space = if fds_max == 0 { &mut [] } else { &mut space[..] };
        let mut control = RecvAncillaryBuffer::new(space);
        let flags = flags | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let slices = &mut [io::IoSliceMut::new(buffer)];
        let message = match rustix::net::recvmsg(self.fd()?, slices, &mut control, flags) {
            Ok(message) => message,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let fds = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            })
            .flatten()
            .collect();
        let is_cut = message.flags.contains(ReturnFlags::TRUNC);
        let has_more = message.flags.contains(ReturnFlags::CTRUNC);
        Ok(Some(Seen { length: message.bytes, is_cut, has_more, fds }))
    }

    /// Takes the packet off the socket that was looked at. What came with it is in the table of
    /// this process, so that the packet's own references are not the last.
    fn pass(&self) -> io::Result<()> {
        let passed = rustix::net::recv(self.fd()?, &mut [0; 1], RecvFlags::DONTWAIT);
        passed.map(|_| ()).map_err(io::Error::from)
    }

    fn wait_for_room(&self) -> io::Result<()> {
        let socket = self.fd()?;
        let mut polled = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::OUT)];
        let limit = rustix::event::Timespec::try_from(ROOM_TIMEOUT)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        match rustix::event::poll(&mut polled, Some(&limit)) {
            Ok(0) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the peer does not read its control socket",
            )),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Lets through what came with a packet to an acceptor: nothing, or one sealed memory file.
/// F_GET_SEALS fails on all other objects and waits for none of them.
fn prove(fds: Vec<OwnedFd>, has_more: bool) -> Result<Vec<OwnedFd>, (Vec<OwnedFd>, &'static str)> {
    if has_more || fds.len() > 1 {
        return Err((fds, "descriptors that it may not send"));
    }
    let is_sealed = |fd: &OwnedFd| {
        rustix::fs::fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
    };
    match fds.iter().all(is_sealed) {
        true => Ok(fds),
        false => Err((fds, "a descriptor of no memory file that is sealed against shrinking")),
    }
}

fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Most descriptors that any packet has.
const FDS_MAX: usize = 2;
/// Longest private data a connection may carry (that of MPA, RFC 5044 7.1).
pub const PRIVATE_BYTES_MAX: usize = 512;
/// Supplementary groups of most, and the most that Linux lets a process have.
const GROUPS_AT_FIRST: usize = 64;
const GROUPS_MAX: usize = 65_536;
const PACKET_BYTES_MAX: usize = 1024;
/// The kind of the packet that a descriptor comes with.
const HAND_OVER: u8 = 7;
/// Bytes that the peer has not read, beyond which it is sent no descriptor: while they are on
/// the way they are this process's. A small packet counts as about 800.
const UNREAD_BYTES_MAX: i32 = 16 << 10;
/// Most bytes of why a connection ended.
const TEXT_BYTES_MAX: usize = 200;
const ROOM_TIMEOUT: Duration = Duration::from_secs(5);
const MAGIC: &[u8; 8] = b"DATSHM\x00\x03";

pub fn hello(hello: &Hello) -> Vec<u8> {
    let mut packet = vec![1];
    packet.extend_from_slice(MAGIC);
    packet.extend_from_slice(&hello.capacity.to_le_bytes());
    packet.extend_from_slice(&hello.probe_address.to_le_bytes());
    packet.extend_from_slice(&hello.probe_value.to_le_bytes());
    packet.extend_from_slice(&hello.private_data);
    packet
}

pub fn accept(reaches_process: bool, private_data: &[u8]) -> Vec<u8> {
    let mut packet = vec![2, u8::from(reaches_process)];
    packet.extend_from_slice(private_data);
    packet
}

pub fn reject(private_data: &[u8]) -> Vec<u8> {
    let mut packet = vec![3];
    packet.extend_from_slice(private_data);
    packet
}

pub fn expose(region: &ExposedRegion) -> Vec<u8> {
    let rights = u8::from(region.remote_read) | u8::from(region.remote_write) << 1;
    let mut packet = vec![4, rights];
    packet.extend_from_slice(&region.stag.0.to_le_bytes());
    packet.extend_from_slice(&region.address.to_le_bytes());
    packet.extend_from_slice(&region.length.to_le_bytes());
    packet
}

pub fn withdraw(stag: Stag) -> Vec<u8> {
    let mut packet = vec![5];
    packet.extend_from_slice(&stag.0.to_le_bytes());
    packet
}

pub fn terminate(text: &str) -> Vec<u8> {
    let mut packet = vec![6];
    packet.extend_from_slice(&text.as_bytes()[..text.len().min(TEXT_BYTES_MAX)]);
    packet
}

pub fn hand_over(name: u64) -> Vec<u8> {
    let mut packet = vec![HAND_OVER];
    packet.extend_from_slice(&name.to_le_bytes());
    packet
}

pub(super) fn parse(packet: &[u8], fds: Vec<PeerFile>) -> Option<Packet> {
    let (kind, rest) = packet.split_first()?;
    let mut reader = Reader(rest);
    let mut fds = fds.into_iter();
    let parsed = match kind {
        1 => {
            (reader.take(8)? == MAGIC).then_some(())?;
            let hello = Hello {
                capacity: reader.u32()?,
                probe_address: reader.u64()?,
                probe_value: reader.u64()?,
                private_data: reader.rest(),
            };
            Packet::Hello(hello, fds.next()?)
        }
        2 => Packet::Accept {
            reaches_process: reader.take(1)?[0] != 0,
            private_data: reader.rest(),
            wakes: [fds.next()?.take()?, fds.next()?.take()?],
        },
        3 => Packet::Reject { private_data: reader.rest() },
        4 => {
            let rights = reader.take(1)?[0];
            let region = ExposedRegion {
                stag: Stag(reader.u32()?),
                address: reader.u64()?,
                length: reader.u64()?,
                remote_read: rights & 1 != 0,
                remote_write: rights & 2 != 0,
            };
            Packet::Expose(region, fds.next())
        }
        5 => Packet::Withdraw(Stag(reader.u32()?)),
        6 => Packet::Terminate(printable(&reader.rest())),
        &HAND_OVER => Packet::HandOver(reader.u64()?, fds.next().and_then(PeerFile::take)),
        _ => return None,
    };
    // Descriptors that nobody asked for.
    fds.next().is_none().then_some(parsed)
}

/// The peer's own words, as they may be shown on a terminal.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT_BYTES_MAX)]);
    let shown = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(shown).collect()
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn rest(&mut self) -> Box<[u8]> {
        std::mem::take(&mut self.0).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use rustix::fs::Gid;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn peer() -> PeerProcess {
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        ControlSocket::initiator(pair.0).peer().unwrap()
    }

    #[test]
    fn what_a_peer_says_at_the_end_cannot_command_a_terminal() {
        let Some(Packet::Terminate(text)) = parse(b"\x06\x1b[2Jgone\x07\n", Vec::new()) else {
            panic!("not read")
        };
        assert_eq!(text, "\u{fffd}[2Jgone\u{fffd}\u{fffd}");
    }

    #[test]
    fn what_is_handed_over_may_come_without_its_descriptor() {
        let parsed = parse(&hand_over(9), Vec::new());
        assert!(matches!(parsed, Some(Packet::HandOver(9, None))), "{parsed:?}");
    }

    #[test]
    fn the_kernel_says_who_connected() {
        let peer = peer();
        assert_eq!(peer.pid, rustix::process::getpid().as_raw_nonzero().get());
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer.gid, rustix::process::getegid().as_raw());
    }

    #[test]
    fn groups_are_those_of_who_connected_however_many() {
        if !rustix::process::geteuid().is_root() {
            return; // Without privilege groups cannot be chosen.
        }
        for count in [0, 2, GROUPS_AT_FIRST, GROUPS_AT_FIRST + 1, 1000] {
            let groups: Vec<u32> = (0..count as u32).map(|number| 5000 + number).collect();
            let chosen: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
            // Groups are each thread's own, and go with it.
            let found = std::thread::spawn(move || {
                rustix::thread::set_thread_groups(&chosen).unwrap();
                peer().groups
            });
            assert_eq!(*found.join().unwrap(), *groups);
        }
    }
}
