//! The provider `shm` connects two processes of one host over rings in shared memory.
//!
//! A Unix socket sets up the connection (`control`). The initiator creates a sealed memory file
//! with one ring of frames for each direction (`ring`). The acceptor creates the descriptors that
//! wake a sleeping side (`wake`). Messages go through the rings. The side that posts an RDMA
//! operation executes it (`remote`): it copies directly into or out of the peer's region if that
//! region is mapped, with `process_vm_*` if the kernel permits it, and through the ring otherwise.
//!
//! Invariant: work is executed in the order posted (`transfer`). A copy into a mapped region is
//! finished before the frame of any later send is committed.

mod binding;
mod control;
mod delta;
mod found;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod intake;
mod lane;
mod listener;
mod remote;
mod ring;
mod transfer;
mod wake;
mod words;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use dafs_memory::{Memory, Pages};

pub use self::binding::listen_privately;
pub use self::found::{Distrust, FoundSocket, SocketTrust, server_user};
pub(crate) use self::remote::is_trusted;

use self::control::{ControlSocket, ExposedRegion, Hello, Packet, PeerFile};
use self::lane::Layout;
pub(crate) use self::listener::Listener;
use self::remote::{Claim, PeerRegions};
use self::ring::{Consumer, Producer};
use self::transfer::{Answer, Piece, Receive, StagedRead, Work};
use self::wake::WakeEvents;
use crate::connection::{Alarm, Context, Interest, Poller, Readiness};
use crate::region::RegionEntry;
use crate::{
    Address, AddressError, BreakReason, CompletionStatus, EndpointConfig, Event, Gather, Holder,
    ListenerId, LocalSegment, Operation, Peer, PendingId, PostError, RegionPath, RemoteSegment,
    SendOptions, Signal, disposal,
};

/// One shared-memory connection, of either role.
pub(crate) struct Connection {
    socket: ControlSocket,
    path: PathBuf,
    phase: Phase,
    deadline: Instant,
    config: EndpointConfig,
    rings: Option<Rings>,
    /// A word of this process that the peer tries to read, to find out whether it may access this
    /// process.
    probe: Box<u64>,
    peer_reaches_process: bool,
    peer_regions: PeerRegions,
    /// A number of withdrawals by the peer. `peer_regions` reflects all withdrawals up to it.
    revision_seen: u64,
    /// True if the control socket may still contain packets about withdrawals that `revision_seen`
    /// counts.
    is_behind: bool,
    receives: VecDeque<Receive>,
    /// The posted work that is not executed yet.
    work: VecDeque<Work>,
    /// The pieces of the work in `work`, in the same order.
    pieces: VecDeque<Piece>,
    /// The bytes that posts have copied for the work in `work`.
    inline: Vec<u8>,
    staged_reads: VecDeque<StagedRead>,
    answers: VecDeque<Answer>,
    /// The acceptor's descriptors, by name, that this side's application has not taken.
    handed_over: VecDeque<(u64, OwnedFd)>,
    /// True while `execute` runs, so that code called by it does not start it again.
    is_executing: bool,
}

#[derive(Debug)]
enum Phase {
    /// Initiator: the descriptors are not watched yet and the hello packet was not sent.
    Starting {
        private_data: Box<[u8]>,
    },
    /// Initiator: the hello packet was sent.
    Called,
    /// Acceptor: the hello packet has not arrived. `watched` is true once the socket is watched.
    Answering {
        listener: ListenerId,
        watched: bool,
    },
    /// Acceptor: the application has neither accepted nor rejected the connection yet.
    Pending,
    /// Acceptor: the peer closed the connection before the application decided.
    Vanished,
    Established,
    Closed,
}

/// The shared memory of a connection.
struct Rings {
    memory: Memory,
    producer: Producer,
    consumer: Consumer,
    /// The descriptors for wakeups; `None` until the connection is established.
    wakes: Option<WakeEvents>,
    /// At an acceptor, the reservation for the ring memory, which the peer created. It is dropped
    /// last.
    _claim: Option<Claim>,
}

impl Connection {
    /// Creates an initiator's side. Nothing is sent before the first call of `progress`.
    pub(crate) fn connect(
        path: &Path,
        config: &EndpointConfig,
        private_data: &[u8],
        deadline: Instant,
    ) -> Result<Self, AddressError> {
        if private_data.len() > control::PRIVATE_BYTES_MAX {
            let (length, limit) = (private_data.len(), control::PRIVATE_BYTES_MAX);
            return Err(AddressError::PrivateData { length, limit });
        }
        let failed = |source: std::io::Error| AddressError::System {
            address: Address::Shm(path.to_path_buf()),
            source,
        };
        let socket = listener::connect_by(path, config.socket_trust).map_err(failed)?;
        let phase = Phase::Starting { private_data: private_data.into() };
        let socket = ControlSocket::initiator(socket);
        let mut connection = Self::new(socket, path.to_path_buf(), phase, deadline);
        connection.config = config.clone();
        let capacity = Layout::capacity_for(config.message_bytes_max);
        let memory = Memory::shared(Layout::total_bytes(capacity), Pages::Small).map_err(failed)?;
        let [forth, back] = Layout::pair(capacity);
        connection.rings = Some(Rings {
            producer: Producer::new(memory.clone(), forth),
            consumer: Consumer::new(memory.clone(), back),
            memory,
            wakes: None,
            _claim: None,
        });
        Ok(connection)
    }

    /// Creates an acceptor's side, before the peer has sent anything.
    fn inbound(socket: OwnedFd, listener: ListenerId, path: PathBuf, deadline: Instant) -> Self {
        let socket = ControlSocket::acceptor(socket);
        Self::new(socket, path, Phase::Answering { listener, watched: false }, deadline)
    }

    fn new(socket: ControlSocket, path: PathBuf, phase: Phase, deadline: Instant) -> Self {
        Self {
            peer_regions: PeerRegions::new(socket.user()),
            socket,
            path,
            phase,
            deadline,
            config: EndpointConfig::default(),
            rings: None,
            probe: Box::new(PROBE_VALUE),
            peer_reaches_process: false,
            revision_seen: 0,
            is_behind: false,
            receives: VecDeque::new(),
            work: VecDeque::new(),
            pieces: VecDeque::new(),
            inline: Vec::new(),
            staged_reads: VecDeque::new(),
            answers: VecDeque::new(),
            handed_over: VecDeque::new(),
            is_executing: false,
        }
    }

    /// Starts to watch the descriptors. An initiator also sends the hello packet.
    fn start(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        match std::mem::replace(&mut self.phase, Phase::Called) {
            Phase::Starting { private_data } => {
                let rings = self.rings.as_ref().ok_or_else(no_rings)?;
                let capacity = (rings.memory.length() - Layout::total_bytes(0)) / 2;
                let packet = control::hello(&Hello {
                    capacity: u32::try_from(capacity).unwrap_or(u32::MAX),
                    probe_address: (&raw const *self.probe) as u64,
                    probe_value: *self.probe,
                    private_data,
                });
                let ring = rings.memory.file().ok_or_else(no_rings)?;
                self.socket.send(&packet, &[ring]).map_err(system)?;
                context
                    .watch(self.socket.fd().map_err(system)?, CONTROL, Interest::Read)
                    .map_err(system)
            }
            Phase::Answering { listener, .. } => {
                self.phase = Phase::Answering { listener, watched: true };
                context
                    .watch(self.socket.fd().map_err(system)?, CONTROL, Interest::Read)
                    .map_err(system)
            }
            other => {
                self.phase = other;
                Ok(())
            }
        }
    }

    /// Receives control packets, up to a limit per turn; epoll then reports the remaining ones
    /// again. The end of the socket ends the connection, after the remaining frames of the ring.
    /// Returns true if no packet is left.
    fn drain_control(&mut self, context: &mut Context<'_>) -> Result<bool, BreakReason> {
        for _ in 0..PACKETS_PER_TURN {
            if matches!(self.phase, Phase::Vanished | Phase::Closed) {
                return Ok(true);
            }
            match self.socket.receive() {
                Ok(Some(packet)) => self.on_packet(context, packet)?,
                Ok(None) => return Ok(true),
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    return Err(BreakReason::PeerViolation(error.to_string()));
                }
                Err(error) if is_end(&error) => {
                    if matches!(self.phase, Phase::Pending) {
                        // The application does not know this endpoint before `accept`, which
                        // reports it.
                        self.socket.close(context.poller);
                        self.phase = Phase::Vanished;
                        return Ok(true);
                    }
                    if self.is_open() {
                        self.take_in(context)?;
                    }
                    return Err(BreakReason::Peer);
                }
                Err(error) => return Err(system(error)),
            }
        }
        Ok(self.socket.is_drained())
    }

    fn on_packet(&mut self, context: &mut Context<'_>, packet: Packet) -> Result<(), BreakReason> {
        match (packet, &self.phase) {
            (Packet::Hello(hello, ring), Phase::Answering { listener, .. }) => {
                let listener = *listener;
                self.on_hello(context, listener, hello, ring)
            }
            (Packet::Accept { reaches_process, private_data, wakes }, Phase::Called) => {
                self.watch_wakes(context, WakeEvents::imported(wakes).map_err(system)?)?;
                self.peer_reaches_process = reaches_process;
                self.phase = Phase::Established;
                let endpoint = context.endpoint;
                context.events.push(Event::Established { endpoint, private_data });
                Ok(())
            }
            (Packet::Reject { private_data }, Phase::Called) => {
                self.phase = Phase::Closed;
                self.socket.close(context.poller);
                self.abandon(context);
                let endpoint = context.endpoint;
                context.events.push(Event::Rejected { endpoint, private_data });
                Ok(())
            }
            (Packet::Expose(region, file), Phase::Established) => {
                self.peer_regions.insert(region, file).map_err(BreakReason::PeerViolation)
            }
            (Packet::Withdraw(stag), Phase::Established) => {
                self.peer_regions.remove(stag);
                Ok(())
            }
            (Packet::HandOver(name, file), Phase::Established) if !self.socket.is_acceptor() => {
                self.note_handed_over(name, file);
                Ok(())
            }
            (Packet::Terminate(text), _) => Err(BreakReason::Terminated(text)),
            (packet, phase) => Err(BreakReason::PeerViolation(format!(
                "control packet {packet:?} is out of place in phase {phase:?}"
            ))),
        }
    }

    fn on_hello(
        &mut self,
        context: &mut Context<'_>,
        listener: ListenerId,
        hello: Hello,
        ring: PeerFile,
    ) -> Result<(), BreakReason> {
        let violation = |text: String| BreakReason::PeerViolation(text);
        let capacity = hello.capacity as usize;
        if !Layout::is_valid_capacity(capacity) {
            return Err(violation(format!("ring of {capacity} bytes")));
        }
        let length = Layout::total_bytes(capacity);
        let (memory, claim) = self.peer_regions.map_ring(ring, length).map_err(violation)?;
        let [forth, back] = Layout::pair(capacity);
        self.rings = Some(Rings {
            producer: Producer::new(memory.clone(), back),
            consumer: Consumer::new(memory.clone(), forth),
            memory,
            wakes: None,
            _claim: Some(claim),
        });
        let process = self.socket.peer();
        if let Some(process) = &process
            && may_reach(process.uid, rustix::process::geteuid().as_raw())
            && reaches_process(process.pid, &hello)
        {
            self.peer_regions.set_process(process.pid);
        }
        context.events.push(Event::ConnectionRequest {
            listener,
            pending: PendingId(context.endpoint),
            peer: Peer {
                address: Address::Shm(self.path.clone()),
                process,
                tls: false,
                certificate: None,
            },
            private_data: hello.private_data.clone(),
        });
        self.phase = Phase::Pending;
        Ok(())
    }

    /// Stores a handed-over descriptor until the application takes it. If too many are stored,
    /// drops the oldest one.
    fn note_handed_over(&mut self, name: u64, file: Option<OwnedFd>) {
        if self.handed_over.len() == HANDED_OVER_MAX {
            self.handed_over.pop_front();
        }
        self.handed_over.extend(file.map(|file| (name, file)));
    }

    #[inline]
    fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Established)
    }

    fn watch_wakes(&mut self, context: &Context<'_>, wakes: WakeEvents) -> Result<(), BreakReason> {
        context.watch(wakes.watched(), WAKE, Interest::ReadEdge).map_err(system)?;
        self.rings.as_mut().ok_or_else(no_rings)?.wakes = Some(wakes);
        Ok(())
    }

    fn wake_peer(&self) {
        if let Some(rings) = &self.rings {
            rings.wake_peer();
        }
    }
}

impl Rings {
    /// Wakes a peer that sleeps for a single message, shortly before that message is sent.
    fn wake_peer_early(&self) {
        if self.producer.must_wake_early() {
            self.wake_peer();
        }
    }

    fn wake_peer(&self) {
        if let Some(wakes) = &self.wakes {
            wakes.wake_peer();
        }
    }
}

impl crate::connection::Connection for Connection {
    fn post_receive(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        scatter: &[LocalSegment],
    ) -> Result<(), PostError> {
        if matches!(self.phase, Phase::Closed) {
            return Err(PostError::NotConnected);
        }
        self.queue_receive(context, cookie, scatter)
    }

    fn post_send(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        gather: &[Gather<'_>],
        options: SendOptions,
    ) -> Result<(), PostError> {
        self.queue_send(context, cookie, gather, options)
    }

    fn post_rdma_write(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        local: &[LocalSegment],
        remote: RemoteSegment,
        signal: Signal,
    ) -> Result<(), PostError> {
        self.queue_write(context, cookie, local, remote, signal)
    }

    fn move_now(
        &mut self,
        context: &mut Context<'_>,
        local: &[LocalSegment],
        remote: RemoteSegment,
        write: bool,
    ) -> bool {
        self.is_open() && self.move_at_once(context, local, &remote, write)
    }

    fn post_rdma_read(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        local: &[LocalSegment],
        remote: RemoteSegment,
    ) -> Result<(), PostError> {
        self.queue_read(context, cookie, local, remote)
    }

    fn flush(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        if !self.is_open() {
            return Ok(());
        }
        self.execute(context)
    }

    fn progress(&mut self, context: &mut Context<'_>) -> Result<bool, BreakReason> {
        if self.is_open() {
            return self.take_in(context);
        }
        if matches!(self.phase, Phase::Starting { .. } | Phase::Answering { watched: false, .. }) {
            self.start(context)?;
        }
        Ok(false)
    }

    fn ready(
        &mut self,
        context: &mut Context<'_>,
        which: u8,
        _readiness: Readiness,
    ) -> Result<(), BreakReason> {
        if which == CONTROL && self.drain_control(context)? {
            self.is_behind = false;
        }
        if self.is_open() {
            self.take_in(context)?;
        }
        Ok(())
    }

    fn is_polled(&self) -> bool {
        true
    }

    fn arm(&mut self, alarm: Alarm) -> bool {
        let Some(rings) = &mut self.rings else { return true };
        let rest = rings.consumer.prepare_sleep(alarm);
        if rest.must_wake {
            self.wake_peer();
        }
        rest.may_sleep
    }

    fn disarm(&mut self) {
        if let Some(rings) = &self.rings {
            rings.consumer.disarm();
        }
    }

    fn accept(
        &mut self,
        context: &mut Context<'_>,
        config: &EndpointConfig,
        private_data: &[u8],
    ) -> Result<(), BreakReason> {
        if matches!(self.phase, Phase::Vanished) {
            return Err(BreakReason::Peer);
        }
        self.config = config.clone();
        let reaches = self.peer_regions.has_process();
        let (wakes, [peer_writes, peer_watches]) = WakeEvents::new().map_err(system)?;
        let packet = control::accept(reaches, private_data);
        let fds = [peer_writes.as_fd(), peer_watches.as_fd()];
        self.socket.send(&packet, &fds).map_err(|_| BreakReason::Peer)?;
        self.watch_wakes(context, wakes)?;
        self.phase = Phase::Established;
        let endpoint = context.endpoint;
        context.events.push(Event::Established { endpoint, private_data: Box::default() });
        Ok(())
    }

    fn reject(&mut self, _context: &mut Context<'_>, private_data: &[u8]) {
        // If the peer has ended, it needs no reply.
        let _ = self.socket.send(&control::reject(private_data), &[]);
        self.phase = Phase::Closed;
    }

    #[inline]
    fn is_established(&self) -> bool {
        self.is_open()
    }

    #[inline]
    fn has_arrived(&self) -> bool {
        let has_frame = |rings: &Rings| rings.consumer.has_frame();
        !self.is_open() || self.rings.as_ref().is_none_or(has_frame)
    }

    fn hand_over(&mut self, name: u64, file: BorrowedFd<'_>) -> bool {
        self.is_open() && self.socket.is_acceptor() && self.socket.hand_over(name, file)
    }

    fn take_handed_over(
        &mut self,
        context: &mut Context<'_>,
        name: u64,
    ) -> Result<Option<OwnedFd>, BreakReason> {
        self.drain_control(context)?;
        let place = self.handed_over.iter().position(|(other, _)| *other == name);
        Ok(place.and_then(|place| self.handed_over.remove(place)).map(|(_, file)| file))
    }

    fn has_asked(&self) -> bool {
        !matches!(self.phase, Phase::Answering { .. })
    }

    fn holder(&self) -> Holder {
        self.socket.user().map_or(Holder::Unknown, Holder::User)
    }

    fn unwatch(&mut self, poller: &Poller) {
        self.socket.unwatch(poller);
        if let Some(wakes) = self.rings.as_ref().and_then(|rings| rings.wakes.as_ref()) {
            // The peer holds another descriptor of the same file, which would keep the file
            // watched.
            let _ = poller.remove(wakes.watched());
        }
    }

    fn deadline(&self) -> Option<Instant> {
        (!self.is_open() && !matches!(self.phase, Phase::Closed)).then_some(self.deadline)
    }

    fn expose(
        &mut self,
        _context: &mut Context<'_>,
        entry: &RegionEntry,
    ) -> Result<(), BreakReason> {
        let packet = control::expose(&ExposedRegion {
            stag: entry.region.stag,
            address: entry.region.address,
            length: entry.region.length,
            remote_read: entry.rights.remote_read,
            remote_write: entry.rights.remote_write,
        });
        let file = entry.memory.file();
        self.socket.send(&packet, file.as_slice()).map_err(|e| match e.kind() {
            std::io::ErrorKind::BrokenPipe => BreakReason::Peer,
            _ => system(e),
        })
    }

    fn withdraw(&mut self, entry: &RegionEntry) {
        // If the packet cannot be sent, the connection is ending anyway.
        let _ = self.socket.send(&control::withdraw(entry.region.stag), &[]);
        if let Some(rings) = &self.rings {
            // From now on the peer reads the packet before it uses any region.
            rings.producer.announce_withdrawal();
        }
    }

    fn path(&self, entry: &RegionEntry) -> RegionPath {
        remote::path_of(&entry.memory, self.peer_reaches_process)
    }

    fn shutdown(&mut self, context: &mut Context<'_>, reason: &BreakReason) {
        let blame = match reason {
            BreakReason::PeerViolation(_)
            | BreakReason::ReceiverNotReady
            | BreakReason::RemoteAccess(_) => Some(reason.to_string()),
            BreakReason::Local
            | BreakReason::Peer
            | BreakReason::Unreachable(_)
            | BreakReason::Terminated(_)
            | BreakReason::Tls(_)
            | BreakReason::Registration(_)
            | BreakReason::System(_) => None,
        };
        if let Some(text) = blame {
            let _ = self.socket.send(&control::terminate(&text), &[]);
        }
        self.phase = Phase::Closed;
        self.abandon(context);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.socket.is_acceptor()
            && let Some(rings) = self.rings.take()
        {
            // This may be the last reference to the file, of any size.
            disposal::memory(rings);
        }
    }
}

/// Returns true if this process may access another process by its process id. The process that
/// connected may end, or execute another program, while its socket stays open in a child. Its id
/// may then belong to any process. The kernel checks only the rights of this process, so they must
/// not exceed the rights of the peer.
fn may_reach(peer_uid: u32, own_uid: u32) -> bool {
    peer_uid == own_uid
}

/// Returns true if this process can read the initiator's probe word from the initiator's memory.
fn reaches_process(pid: i32, hello: &Hello) -> bool {
    if pid <= 0 {
        return false;
    }
    let word = Memory::from_heap(Box::new([0; 8]));
    remote::copy_process(pid, &word, 0, hello.probe_address, 8, false).is_ok()
        && word.to_vec(0, 8) == hello.probe_value.to_ne_bytes()
}

/// Returns true if an error of the control socket only means that the peer has ended.
fn is_end(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset)
}

fn system(error: std::io::Error) -> BreakReason {
    BreakReason::System(error.into())
}

fn no_rings() -> BreakReason {
    BreakReason::System("shared memory is missing".into())
}

/// The number of control packets processed before other connections get their turn.
const PACKETS_PER_TURN: usize = 32;
/// The limit for the number of handed-over descriptors that are stored.
const HANDED_OVER_MAX: usize = 16;
/// The number of the control socket among the watched descriptors; the wakeup descriptor has the
/// next number.
const CONTROL: u8 = 0;
const WAKE: u8 = 1;
const PROBE_VALUE: u64 = 0x5d_af_50_b0_c0_de_77_01;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Domain, Interface, InterfaceConfig, Rights};

    #[test]
    fn one_turn_reads_so_many_packets_of_a_peer_and_no_more() {
        const PACKETS: usize = 3 * PACKETS_PER_TURN;
        let place = tempfile::tempdir().unwrap();
        let address = Address::Shm(place.path().join("socket"));
        let interface = || Interface::new(InterfaceConfig::default()).unwrap();
        let (mut server, mut client) = (interface(), interface());
        server.listen(&address).unwrap();
        let (domain, config) = (Domain(0), EndpointConfig::default());
        let endpoint = client.connect(&address, domain, &config, &[]).unwrap();
        let mut stands = false;
        while !stands {
            client.poll();
            while let Some(event) = client.next_event() {
                stands |= matches!(event, Event::Established { .. });
            }
            server.poll();
            while let Some(event) = server.next_event() {
                if let Event::ConnectionRequest { pending, .. } = event {
                    server.accept(pending, domain, &config, &[]);
                }
            }
        }
        let memory = Memory::shared(4096, Pages::Small).unwrap();
        for _ in 0..PACKETS {
            client.register(&memory, domain, Rights::REMOTE).unwrap();
        }
        // The end comes after all packets.
        client.release(endpoint);
        let (mut turns, mut has_ended) = (0, false);
        while !has_ended {
            assert!(turns < PACKETS, "the end is not seen");
            turns += 1;
            server.poll();
            while let Some(event) = server.next_event() {
                has_ended |= matches!(event, Event::Broken { .. });
            }
        }
        assert!(turns > PACKETS / PACKETS_PER_TURN, "{PACKETS} packets in {turns} turns");
    }

    #[test]
    fn a_privileged_server_reaches_into_nobody_elses_process() {
        assert!(!may_reach(1000, 0));
        assert!(!may_reach(1000, 1001));
        assert!(may_reach(1000, 1000));
    }
}
