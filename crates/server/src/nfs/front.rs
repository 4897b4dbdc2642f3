//! Connections of NFS clients: turns received records into calls, and results into replies.
//!
//! Invariants:
//! - The number of calls in progress and the number of unsent bytes are limited for each
//!   connection. While a connection is at a limit, the server does not read from it.
//! - A turn serves a limited number of calls, so that other reactors get their turns.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use dafs_dat::EndpointId;
use dafs_dat::records::{LinkId, Part, RecordEvent, Records, RecordsConfig};
use dafs_filer::ClientKey;
use dafs_nfs_wire::mount3::MOUNT3;
use dafs_nfs_wire::nfs3::NFS3;
use dafs_nfs_wire::rpc::{AuthStat, Call, CallError, Credential, Outcome, decode_call};
use dafs_nfs_wire::xdr::{Piece, Reader, Writer};
use dafs_types::Credentials;

use super::calls::{self, CallId, Calls, Progress, Suspended};
use super::config::NfsConfig;
use super::users::{User, Users};
use super::{mount, v3};
use crate::config::ServerError;
use crate::guests::{GuestRead, GuestResult};
use crate::moving::transfer::Cookie;
use crate::reactor::{Reactor, Shared};

/// The state of the service for NFS clients.
pub(crate) struct Front {
    config: NfsConfig,
    records: Records,
    links: Vec<Option<Link>>,
    users: Users,
    calls: Calls,
    writer: Writer,
    v3: v3::State,
}

/// The connection of an NFS client.
struct Link {
    id: LinkId,
    peer: SocketAddr,
    /// True if the server believes the user ids that the client states in its calls.
    is_believed: bool,
    /// The number of this connection's calls that wait for operations on files.
    waiting: usize,
    is_paused: bool,
}

/// The fields of [`Front`] that are needed to serve a call.
pub(super) struct Desk<'f> {
    pub calls: &'f mut Calls,
    pub writer: &'f mut Writer,
    pub v3: &'f mut v3::State,
}

impl Front {
    /// Listens at the configured addresses. Calls are served when the reactor runs.
    pub(crate) fn new(
        config: &NfsConfig,
        interface: BorrowedFd<'_>,
        shared: &Shared,
    ) -> Result<Self, ServerError> {
        let system = |what| move |source| ServerError::System { what, source };
        let limits = RecordsConfig {
            record_bytes_max: RECORD_BYTES_MAX,
            connections_max: CONNECTIONS_MAX,
            patience: PATIENCE,
        };
        let mut records = Records::new(limits).map_err(system("creating the NFS interface"))?;
        records.watch(interface).map_err(system("watching the transport interface"))?;
        for address in &config.listen {
            records.listen(*address).map_err(system("listening for NFS clients"))?;
        }
        Ok(Self {
            config: config.clone(),
            records,
            links: Vec::new(),
            users: Users::default(),
            calls: Calls::default(),
            writer: Writer::new(),
            v3: v3::State::new(shared.life.boot()),
        })
    }

    /// Returns the addresses of the listeners.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.records.addresses().collect()
    }

    /// Sends replies, then waits for calls or for a wakeup of the reactor.
    pub(super) fn receive(&mut self, pause: Duration) {
        self.records.wait(pause);
    }

    /// Closes the connections of clients that do not read their replies.
    pub(super) fn tick(&mut self, now: Instant) {
        self.records.tick(now);
    }

    /// Handles the events of connections. Returns true if events are left, because this turn has
    /// served as many calls as it may.
    pub(super) fn serve(&mut self, reactor: &mut Reactor<'_>) -> bool {
        let mut served = 0;
        while let Some(event) = self.records.next_event() {
            match event {
                RecordEvent::Opened { link, peer } => self.open(link, peer),
                RecordEvent::Record { link, bytes } => {
                    self.on_record(reactor, link, &bytes);
                    self.records.recycle(bytes);
                    self.take_results(reactor);
                    served += 1;
                    if served >= CALLS_IN_TURN {
                        return true;
                    }
                }
                RecordEvent::Sent { cookie } => reactor.on_loan_done(Cookie::unpack(cookie)),
                RecordEvent::Closed { link, reason } => {
                    tracing::debug!(?link, reason, "an NFS connection has ended");
                    if let Some(place) = self.links.get_mut(link.index()) {
                        *place = None;
                    }
                }
            }
        }
        false
    }

    /// Continues the calls whose operations have ended.
    pub(super) fn take_results(&mut self, reactor: &mut Reactor<'_>) {
        while let Some((to, result)) =
            reactor.own.guest_results.as_mut().and_then(|results| results.pop())
        {
            let Some(waiting) = self.calls.end(to) else {
                // The call has been given up, so its memory is free.
                if let GuestResult::Read(read) = result {
                    reactor.on_loan_done(read.cookie);
                }
                continue;
            };
            let id = waiting.id;
            self.count_waiting(id.link, false);
            let mut desk =
                Desk { calls: &mut self.calls, writer: &mut self.writer, v3: &mut self.v3 };
            let mut reads = None;
            let progress = match waiting.what {
                Suspended::V3(suspended) => {
                    v3::resume(&mut desk, reactor, id, suspended, result, &mut reads)
                }
            };
            self.follow(reactor, id, progress, reads);
        }
    }

    fn open(&mut self, id: LinkId, peer: SocketAddr) {
        let is_believed = self.config.believes(peer);
        tracing::debug!(%peer, is_believed, "an NFS client has connected");
        if self.links.len() <= id.index() {
            self.links.resize_with(id.index() + 1, || None);
        }
        self.links[id.index()] = Some(Link { id, peer, is_believed, waiting: 0, is_paused: false });
    }

    fn link(&mut self, id: LinkId) -> Option<&mut Link> {
        self.links.get_mut(id.index())?.as_mut().filter(|link| link.id == id)
    }

    /// Counts one more waiting call of a connection if `is_more` is true, otherwise one less. While
    /// too many calls wait or too many bytes are unsent, the server does not read from the
    /// connection.
    fn count_waiting(&mut self, id: LinkId, is_more: bool) {
        let unsent = self.records.unsent(id);
        let Some(link) = self.link(id) else { return };
        match is_more {
            true => link.waiting += 1,
            false => link.waiting = link.waiting.saturating_sub(1),
        }
        let is_paused = link.waiting >= CALLS_MAX || unsent >= UNSENT_BYTES_MAX;
        if is_paused != link.is_paused {
            link.is_paused = is_paused;
            self.records.set_paused(id, is_paused);
        }
    }

    fn on_record(&mut self, reactor: &mut Reactor<'_>, link: LinkId, bytes: &[u8]) {
        let mut reader = Reader::new(bytes);
        match decode_call(&mut reader) {
            Ok(call) => self.on_call(reactor, link, &call, &mut reader),
            Err(CallError::Refuse(refused)) => {
                calls::refuse(&mut self.writer, refused.xid, refused.body);
                self.send(reactor, link, None);
            }
            // Replies belong to calls of this server, of which there are none on this connection.
            Err(CallError::NotACall | CallError::IsReply | CallError::Absent) => {
                self.records.close(link, "the peer sent a record that is not a call");
            }
        }
    }

    fn on_call(
        &mut self,
        reactor: &mut Reactor<'_>,
        link: LinkId,
        call: &Call<'_>,
        reader: &mut Reader<'_>,
    ) {
        let xid = call.xid;
        let versions = match call.program {
            program if program == NFS3.number => (NFS3.version, NFS3.version),
            program if program == MOUNT3.number => (MOUNT3.version, MOUNT3.version),
            _ => {
                calls::fail(&mut self.writer, xid, Outcome::ProgUnavail);
                return self.send(reactor, link, None);
            }
        };
        if !(versions.0..=versions.1).contains(&call.version) {
            calls::fail(&mut self.writer, xid, calls::mismatch(versions.0, versions.1));
            return self.send(reactor, link, None);
        }
        if call.procedure == 0 {
            // NULL is answered to everybody, as a test that the server is there.
            match call.credential.credential() {
                Ok(_) => calls::begin(&mut self.writer, xid),
                Err(why) => calls::deny(&mut self.writer, xid, why),
            }
            return self.send(reactor, link, None);
        }
        let user = match self.user_of(reactor, link, call) {
            Ok(user) => user,
            Err(why) => {
                calls::deny(&mut self.writer, xid, why);
                return self.send(reactor, link, None);
            }
        };
        let id = CallId { link, xid, user };
        let mut desk = Desk { calls: &mut self.calls, writer: &mut self.writer, v3: &mut self.v3 };
        let progress = if call.program == MOUNT3.number {
            mount::serve(&mut desk, reactor, id, call.procedure, reader)
        } else {
            v3::serve(&mut desk, reactor, id, call.procedure, reader)
        };
        self.follow(reactor, id, progress, None);
    }

    /// Returns the endpoint id that stands for the user of a call. The error says why the call's
    /// credentials are not accepted.
    fn user_of(
        &mut self,
        reactor: &mut Reactor<'_>,
        link: LinkId,
        call: &Call<'_>,
    ) -> Result<EndpointId, AuthStat> {
        let credential = call.credential.credential()?;
        let Some(open) = self.link(link) else { return Err(AuthStat::Failed) };
        if !open.is_believed {
            return Err(AuthStat::TooWeak);
        }
        let address = open.peer.ip().to_canonical();
        let credentials = match credential {
            Credential::None => Credentials::nobody(),
            Credential::Sys(sys) => Credentials::new(sys.uid, sys.gid, sys.gids.to_vec())
                .map_err(|_| AuthStat::BadCred)?,
            Credential::Gss(_) | Credential::Tls => return Err(AuthStat::BadCred),
        };
        let user = User { address, credentials, client: ClientKey::NONE };
        self.users.admit(reactor.shared, &user).ok_or(AuthStat::TooWeak)
    }

    fn follow(
        &mut self,
        reactor: &mut Reactor<'_>,
        id: CallId,
        progress: Progress,
        read: Option<GuestRead>,
    ) {
        match progress {
            Progress::Done => self.send(reactor, id.link, read),
            Progress::Later => self.count_waiting(id.link, true),
        }
    }

    /// Sends the reply that is in the writer. The bytes of `read` are sent as the reply's payload.
    fn send(&mut self, reactor: &mut Reactor<'_>, link: LinkId, read: Option<GuestRead>) {
        if let Some(fault) = self.writer.fault() {
            // The replies are within their limits, so this is a mistake of this server.
            tracing::error!(%fault, "a reply to an NFS client cannot be encoded");
            if let Some(read) = read {
                reactor.on_loan_done(read.cookie);
            }
            return self.records.close(link, "a reply could not be encoded");
        }
        let memory = reactor.shared.cache.arena();
        let pieces = read.as_ref().map_or(&[][..], |read| &read.pieces[..]);
        let parts = self.writer.pieces().flat_map(|piece| {
            let (bytes, pieces) = match piece {
                Piece::Bytes(bytes) => (Some(Part::Bytes(bytes)), &[][..]),
                Piece::Payload(_) => (None, pieces),
            };
            let payload = pieces.iter().map(|(offset, length)| Part::Memory {
                memory,
                offset: *offset,
                length: *length,
            });
            bytes.into_iter().chain(payload)
        });
        let cookie = read.as_ref().map(|read| read.cookie.pack());
        self.records.send(link, parts, cookie.filter(|cookie| *cookie != Cookie::Silent.pack()));
    }
}

/// The length of the longest call in bytes: a WRITE of 1 MiB and its header.
const RECORD_BYTES_MAX: usize = (1 << 20) + (64 << 10);
/// The maximum number of connections of NFS clients.
const CONNECTIONS_MAX: usize = 4096;
/// How long a client may leave a pending reply unread before the server closes the connection.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number of waiting calls of a connection at which the server stops reading from the
/// connection.
const CALLS_MAX: usize = 256;
/// The number of bytes of unsent replies at which the server stops reading from a connection.
const UNSENT_BYTES_MAX: u64 = 8 << 20;
/// The maximum number of calls that the reactor serves in one turn.
const CALLS_IN_TURN: usize = 64;
