//! The Unix socket that accompanies the rings. It identifies the peer, carries the start and the
//! end of the connection, and announces regions.
//!
//! Invariant: one packet is one message (SOCK_SEQPACKET). A packet that cannot be parsed is a
//! violation.
//!
//! The peer chooses the descriptors that it sends with a packet, and closing a descriptor can block
//! (`disposal`). So an acceptor peeks at a packet before it receives the packet. It removes the
//! packet from the socket only if the packet has no descriptor, or one that F_GET_SEALS proves to
//! be a sealed memory file. Otherwise it ends the connection: the packet stays on the socket, and
//! `disposal` closes both.

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

/// The messages that the two sides exchange over the socket.
#[derive(Debug)]
pub(super) enum Packet {
    /// The initiator's first packet, with the descriptor of the ring memory.
    Hello(Hello, PeerFile),
    /// The acceptor accepts the connection. `reaches_process` is true if `process_vm_*` works.
    /// Writing to the first descriptor wakes the acceptor; the second one becomes readable to wake
    /// the initiator.
    Accept { reaches_process: bool, private_data: Box<[u8]>, wakes: [OwnedFd; 2] },
    /// The acceptor rejects the connection.
    Reject { private_data: Box<[u8]> },
    /// Announces that a region became accessible. Carries the descriptor of the region's memory
    /// file, if there is one.
    Expose(ExposedRegion, Option<PeerFile>),
    /// Announces that a region is no longer accessible.
    Withdraw(Stag),
    /// Reports that the side that receives this packet violated the protocol. Carries the reason.
    Terminate(String),
    /// The acceptor sends a descriptor that the initiator's application requested by this name. The
    /// descriptor is missing if this process has no free descriptor number.
    HandOver(u64, Option<OwnedFd>),
}

/// The initiator's description of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// The number of bytes for frames in each direction's ring.
    pub capacity: u32,
    /// The address of a word in the initiator, used to test `process_vm_readv`.
    pub probe_address: u64,
    /// The value of the word at `probe_address`.
    pub probe_value: u64,
    /// The private data of the connecting application.
    pub private_data: Box<[u8]>,
}

/// A region as its owner announces it to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExposedRegion {
    pub stag: Stag,
    pub address: u64,
    pub length: u64,
    pub remote_read: bool,
    pub remote_write: bool,
}

/// A type of value that the kernel may write.
///
/// # Safety
/// Any bytes must be a valid value of the type.
unsafe trait SocketOption {}
// SAFETY: an integer.
unsafe impl SocketOption for u32 {}
// SAFETY: three integers without padding.
unsafe impl SocketOption for libc::ucred {}

/// A descriptor that the peer has sent. On drop, `disposal` closes it: even the descriptor of a
/// memory file may be the last reference, and freeing the pages takes time.
#[derive(Debug)]
pub(super) struct PeerFile(Option<OwnedFd>);

impl PeerFile {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self(Some(fd))
    }

    /// Returns the descriptor, which the caller may close on any thread.
    pub(super) fn take(mut self) -> Option<OwnedFd> {
        self.0.take()
    }

    /// Returns the descriptor if it was not taken.
    pub(super) fn fd(&self) -> io::Result<BorrowedFd<'_>> {
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

/// The non-blocking socket; it has no descriptor once it is closed.
#[derive(Debug)]
pub(super) struct ControlSocket {
    fd: Option<OwnedFd>,
    side: Side,
}

/// The role of this process in the connection to which the socket belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// This side chose its peer, and serves no other peers while it waits.
    Initiator,
    /// Any process may be the peer, and other peers wait to be served. Contains the user id of the
    /// peer.
    Acceptor(Option<u32>),
}

/// A packet that was peeked at and is still on the socket.
struct Seen {
    length: usize,
    /// True if the packet is longer than any valid packet.
    is_cut: bool,
    /// True if the packet had more descriptors than expected, or more than the buffer had room for.
    has_more: bool,
    fds: Vec<OwnedFd>,
}

impl ControlSocket {
    /// Creates the control socket of the side that connects.
    pub(super) fn initiator(fd: OwnedFd) -> Self {
        Self { fd: Some(fd), side: Side::Initiator }
    }

    /// Creates the control socket of the side that accepts.
    pub(super) fn acceptor(fd: OwnedFd) -> Self {
        let mut socket = Self { fd: Some(fd), side: Side::Acceptor(None) };
        socket.side = Side::Acceptor(socket.credentials().map(|credentials| credentials.uid));
        socket
    }

    /// Returns the descriptor while it is open.
    pub(super) fn fd(&self) -> std::io::Result<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd).ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// Returns the user id of the peer of an acceptor's socket.
    pub(super) fn user(&self) -> Option<u32> {
        match self.side {
            Side::Initiator => None,
            Side::Acceptor(user) => user,
        }
    }

    /// Returns true for the accepting side, to which any process may connect.
    pub(super) fn is_acceptor(&self) -> bool {
        self.side != Side::Initiator
    }

    /// Stops watching the socket, so that its holder may close it at any time.
    pub(super) fn unwatch(&self, poller: &Poller) {
        if let Some(fd) = &self.fd {
            // An error is ignored, because the socket may never have been watched.
            let _ = poller.remove(fd.as_fd());
        }
    }

    /// Stops watching the socket and closes it.
    pub(super) fn close(&mut self, poller: &Poller) {
        self.unwatch(poller);
        self.let_go();
    }

    fn let_go(&mut self) {
        let is_acceptor = self.is_acceptor();
        if let Some(fd) = self.fd.take().filter(|_| is_acceptor) {
            disposal::socket(fd);
        }
    }

    /// Returns the identity of the process that connected, as the kernel reports it. Process id,
    /// user and groups are those at the time of the connect, even if the process has changed them
    /// since.
    pub(super) fn peer(&self) -> Option<PeerProcess> {
        let libc::ucred { pid, uid, gid } = self.credentials()?;
        Some(PeerProcess { pid, uid, gid, groups: self.peer_groups() })
    }

    fn credentials(&self) -> Option<libc::ucred> {
        let mut credentials = [libc::ucred { pid: 0, uid: 0, gid: 0 }];
        // The safe wrapper cannot represent pid 0, which means a peer outside this PID namespace.
        self.option(libc::SO_PEERCRED, &mut credentials).ok()?;
        let [credentials] = credentials;
        Some(credentials)
    }

    /// Returns the supplementary groups of the peer. Kernels before 4.13 do not report them; the
    /// result is then empty, which grants no rights.
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

    /// Reads an option of the socket into `values`. Returns the number of values.
    fn option<T: SocketOption>(&self, name: i32, values: &mut [T]) -> io::Result<usize> {
        let socket = self.fd()?.as_raw_fd();
        let mut length = libc::socklen_t::try_from(size_of_val(values)).unwrap_or(0);
        // SAFETY: the kernel writes at most `length` bytes, which are those of `values`. Any bytes
        // are valid values of a `SocketOption`.
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

    /// Sends a packet with descriptors. An initiator waits for a limited time for room in the
    /// socket, because the peer must read the packet before it uses the objects that the packet
    /// announces. An acceptor does not wait, because it serves other peers.
    pub(super) fn send(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
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

    /// Sends a descriptor to the peer. Returns false if the peer has not read enough of the earlier
    /// packets, or if the kernel refuses.
    pub(super) fn hand_over(&self, name: u64, file: BorrowedFd<'_>) -> bool {
        let has_room = self.unread_bytes().is_ok_and(|bytes| bytes <= UNREAD_BYTES_MAX);
        has_room && self.send(&hand_over(name), &[file]).is_ok()
    }

    /// Returns the number of bytes that the peer has not read. The number includes the kernel's
    /// overhead for each packet.
    fn unread_bytes(&self) -> io::Result<i32> {
        let socket = self.fd()?.as_raw_fd();
        let mut bytes: libc::c_int = 0;
        // SAFETY: the kernel writes one integer into `bytes`.
        let result = unsafe { libc::ioctl(socket, libc::TIOCOUTQ, &raw mut bytes) };
        if result == 0 { Ok(bytes) } else { Err(io::Error::last_os_error()) }
    }

    /// Receives the next packet. Returns `Ok(None)` if none has arrived.
    ///
    /// # Errors
    /// `UnexpectedEof` if the peer has closed its end, `InvalidData` for a packet that cannot be
    /// parsed, EMFILE if this process has no free descriptor number for a descriptor that was sent.
    pub(super) fn receive(&self) -> io::Result<Option<Packet>> {
        let mut buffer = [0; PACKET_BYTES_MAX];
        let fds_max = if self.may_accept() { FDS_MAX } else { 0 };
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
            // There is buffer space for all descriptors that a packet may carry, so a missing
            // descriptor means that this process has no free descriptor number. A packet that hands
            // over a descriptor is accepted without it.
            Side::Initiator
                if has_more && fds.len() < FDS_MAX && buffer.first() != Some(&HAND_OVER) =>
            {
                return Err(rustix::io::Errno::MFILE.into());
            }
            Side::Initiator => fds,
            Side::Acceptor(user) => {
                let fds = check_descriptors(fds, has_more).map_err(|(fds, what)| {
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

    /// Returns true if there is nothing to receive: neither a packet nor the end of the stream.
    pub(super) fn is_drained(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = self.fd().map(|socket| rustix::net::recv(socket, &mut [0; 1], flags));
        matches!(peeked, Ok(Err(rustix::io::Errno::AGAIN)))
    }

    fn may_accept(&self) -> bool {
        match self.side {
            Side::Initiator => true,
            Side::Acceptor(user) => disposal::may_accept(user),
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

    /// Removes the packet that was peeked at from the socket. Its descriptors are already in this
    /// process's table, so removing the packet does not drop the last references.
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

/// Checks the descriptors of a packet to an acceptor: there must be none, or one sealed memory
/// file. F_GET_SEALS fails on all other objects and never blocks.
fn check_descriptors(
    fds: Vec<OwnedFd>,
    has_more: bool,
) -> Result<Vec<OwnedFd>, (Vec<OwnedFd>, &'static str)> {
    if has_more || fds.len() > 1 {
        return Err((fds, "descriptors that are not allowed"));
    }
    let is_sealed = |fd: &OwnedFd| {
        rustix::fs::fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
    };
    match fds.iter().all(is_sealed) {
        true => Ok(fds),
        false => Err((fds, "a descriptor that is not a memory file sealed against shrinking")),
    }
}

fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The maximum number of descriptors of a packet.
const FDS_MAX: usize = 2;
/// The maximum length of private data in bytes, the same as for MPA (RFC 5044 7.1).
pub(super) const PRIVATE_BYTES_MAX: usize = 512;
/// The number of supplementary groups for which the first call has room.
const GROUPS_AT_FIRST: usize = 64;
/// The maximum number of supplementary groups that Linux allows a process.
const GROUPS_MAX: usize = 65_536;
const PACKET_BYTES_MAX: usize = 1024;
/// The kind of the packet that hands over a descriptor.
const HAND_OVER: u8 = 7;
/// The number of unread bytes above which no descriptor is sent to the peer: an unread descriptor
/// counts against the limits of this process. A small packet counts as about 800 bytes.
const UNREAD_BYTES_MAX: i32 = 16 << 10;
/// The maximum length in bytes of the text that says why a connection ended.
const TEXT_BYTES_MAX: usize = 200;
const ROOM_TIMEOUT: Duration = Duration::from_secs(5);
const MAGIC: &[u8; 8] = b"DATSHM\x00\x03";

pub(super) fn hello(hello: &Hello) -> Vec<u8> {
    let mut packet = vec![1];
    packet.extend_from_slice(MAGIC);
    packet.extend_from_slice(&hello.capacity.to_le_bytes());
    packet.extend_from_slice(&hello.probe_address.to_le_bytes());
    packet.extend_from_slice(&hello.probe_value.to_le_bytes());
    packet.extend_from_slice(&hello.private_data);
    packet
}

pub(super) fn accept(reaches_process: bool, private_data: &[u8]) -> Vec<u8> {
    let mut packet = vec![2, u8::from(reaches_process)];
    packet.extend_from_slice(private_data);
    packet
}

pub(super) fn reject(private_data: &[u8]) -> Vec<u8> {
    let mut packet = vec![3];
    packet.extend_from_slice(private_data);
    packet
}

pub(super) fn expose(region: &ExposedRegion) -> Vec<u8> {
    let rights = u8::from(region.remote_read) | u8::from(region.remote_write) << 1;
    let mut packet = vec![4, rights];
    packet.extend_from_slice(&region.stag.0.to_le_bytes());
    packet.extend_from_slice(&region.address.to_le_bytes());
    packet.extend_from_slice(&region.length.to_le_bytes());
    packet
}

pub(super) fn withdraw(stag: Stag) -> Vec<u8> {
    let mut packet = vec![5];
    packet.extend_from_slice(&stag.0.to_le_bytes());
    packet
}

pub(super) fn terminate(text: &str) -> Vec<u8> {
    let mut packet = vec![6];
    packet.extend_from_slice(&text.as_bytes()[..text.len().min(TEXT_BYTES_MAX)]);
    packet
}

pub(super) fn hand_over(name: u64) -> Vec<u8> {
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
    // The packet carries descriptors that it must not have.
    fds.next().is_none().then_some(parsed)
}

/// Returns the peer's text in a form that is safe to print on a terminal.
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
        if !dafs_tests::is_root() {
            return; // Without privileges, the test cannot set groups.
        }
        for count in [0, 2, GROUPS_AT_FIRST, GROUPS_AT_FIRST + 1, 1000] {
            let groups: Vec<u32> = (0..count as u32).map(|number| 5000 + number).collect();
            let chosen: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
            // Each thread has its own groups, which end with it.
            let found = std::thread::spawn(move || {
                rustix::thread::set_thread_groups(&chosen).unwrap();
                peer().groups
            });
            assert_eq!(*found.join().unwrap(), *groups);
        }
    }
}
