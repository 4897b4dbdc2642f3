//! The connections of NFS clients. This module decodes calls from records, and sends replies with
//! the results.
//!
//! Invariants:
//! - The number of calls in progress and of unsent bytes is limited for each connection. While a
//!   connection exceeds a limit, the server does not read from it.
//! - The unsent bytes of all connections pin at most about half of the cache.
//! - A turn executes a limited number of calls and starts none after a limited time, so that other
//!   reactors can also take turns.
//! - Once a client was told to start TLS, every byte of its connection belongs to TLS.
//! - A client that no rule lets in keeps a connection only for a limited time.

mod connections;
mod kerberos;
mod simulated;
mod tls;
mod traffic;

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use dafs_dat::records::{LinkId, Part, RecordEvent};
use dafs_dat::{Address, EndpointId, TlsServer, WaitPolicy, Waker};
use dafs_filer::ClientKey;
use dafs_files::defect::Defect;
use dafs_journal::RecordNumber;
use dafs_nfs_wire::mount3::MOUNT3;
use dafs_nfs_wire::nfs3::NFS3;
use dafs_nfs_wire::nfs4;
use dafs_nfs_wire::nfsacl3::NFSACL3;
use dafs_nfs_wire::rpc::gss::{GssCall, GssCredential};
use dafs_nfs_wire::rpc::{AuthStat, Call, CallError, Credential, Outcome, decode_call, flavor};
use dafs_nfs_wire::xdr::{Opaque, Piece, Reader, Writer, Xdr};
use dafs_types::{Credentials, FileHandle, Moment};

use self::connections::Connections;
use super::calls::{self, CallId, Calls, Desk, Progress, Suspended};
use super::config::NfsConfig;
use super::gss::{Gss, Route, flavor_of};
use super::rdma::OutgoingMessage;
use super::recent::Recent;
use super::side::{self, Side};
use super::users::{User, Users};
use super::v4::{Proof, Sender};
use super::{mount, v3, v4};
use crate::access::exports::flavors::Flavor;
use crate::access::exports::rules::{NfsPeer, TransportSecurity};
use crate::config::ServerError;
use crate::guests::{GuestRead, GuestResult, GuestResults};
use crate::meter::nfs::NfsClientNumbers;
use crate::moving::transfer::Cookie;
use crate::reactor::{Reactor, Shared};
use crate::repeats::Known;
use crate::requests::handles;
use crate::requests::respond::ReplyStatus;

/// The state of the service for NFS clients.
pub(crate) struct Front {
    connections: Connections,
    /// The certificates for clients that start TLS. `None` if the server has none.
    tls: Option<TlsServer>,
    links: Vec<Option<Link>>,
    /// The connections that are paused.
    paused: Vec<LinkId>,
    users: Users,
    recent: Recent,
    calls: Calls,
    writer: Writer,
    v4: v4::State,
    side: Side,
    gss: Gss,
    /// The time at which the traffic of clients was last published.
    published: Moment,
}

/// A connection of a client.
struct Link {
    id: LinkId,
    address: SocketAddr,
    /// True if the connection stands for one datagram.
    is_datagram: bool,
    /// The facts about the client. `None` while its name is looked up; the server does not read
    /// from the connection then.
    peer: Option<NfsPeer>,
    /// The protection of the connection.
    security: TransportSecurity,
    /// True if the rules let the client see an export. An NFS client states the ids of its users
    /// without proof, so the server answers no calls of other clients.
    is_let_in: bool,
    /// The traffic of the connection.
    traffic: NfsClientNumbers,
    /// The number of calls of this connection that wait for operations on files.
    waiting: usize,
    is_paused: bool,
    /// The time at which the client has connected, by the clock of connections.
    since: Duration,
}

impl Front {
    /// Listens at the configured addresses. Calls are executed once the reactor runs. `wait` limits
    /// the spins for calls over RDMA.
    pub(crate) fn new(
        config: &NfsConfig,
        tls: Option<TlsServer>,
        (interface, waker): (BorrowedFd<'_>, Waker),
        wait: WaitPolicy,
        shared: &mut Shared,
    ) -> Result<Self, ServerError> {
        let system = |what| move |source| ServerError::System { what, source };
        let connections = Connections::new(wait);
        let mut connections = connections.map_err(system("creating the NFS interface"))?;
        connections.watch(interface).map_err(system("watching the transport interface"))?;
        connections.listen(config, shared.cache.arena())?;
        Ok(Self::over(connections, config, tls, waker, shared))
    }

    /// Serves these connections.
    fn over(
        connections: Connections,
        config: &NfsConfig,
        tls: Option<TlsServer>,
        waker: Waker,
        shared: &mut Shared,
    ) -> Self {
        Self {
            connections,
            tls,
            links: Vec::new(),
            paused: Vec::new(),
            gss: Gss::new(shared.entrance.kerberos(), waker.clone()),
            users: Users::new(waker),
            recent: Recent::default(),
            calls: Calls::default(),
            writer: Writer::new(),
            v4: v4::State::new(shared),
            side: Side::new(config, shared),
            published: shared.life.now(),
        }
    }

    /// Returns the addresses of the listeners.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.connections.addresses().collect()
    }

    /// Returns the addresses of the listeners for RDMA.
    pub(crate) fn rdma_addresses(&self) -> &[Address] {
        self.connections.rdma_addresses()
    }

    /// Sends replies, then waits for calls or for a wakeup of the reactor. Returns true if the
    /// reactor was woken.
    pub(super) fn receive(&mut self, pause: Duration) -> bool {
        self.connections.wait(pause)
    }

    /// Returns the time of the clock of connections.
    pub(super) fn now(&self) -> Duration {
        self.connections.now()
    }

    /// Closes connections whose peers are too slow, and those of clients that no rule lets in.
    pub(super) fn tick(&mut self) {
        self.connections.tick();
        let now = self.connections.now();
        let is_late =
            |link: &&Link| !link.is_let_in && now.saturating_sub(link.since) > STRANGER_PATIENCE;
        for link in self.links.iter().flatten().filter(is_late) {
            self.connections.close(link.id, "no access rule lets the client in");
        }
    }

    /// Ends the clients whose leases have expired, and closes files that are no longer used.
    pub(super) fn end_leases(&mut self, reactor: &mut Reactor<'_>) {
        let now = reactor.shared.life.now();
        self.recent.end_old(reactor, now);
        self.expire_contexts(reactor);
        side::poll(&mut self.side, reactor);
        v4::end_leases(&mut self.desk(), reactor, now);
    }

    /// Handles the events of connections. Returns true if there are more.
    pub(super) fn serve(&mut self, reactor: &mut Reactor<'_>) -> bool {
        self.renew(reactor);
        self.publish_clients(reactor);
        self.v4.take_notices(reactor);
        let is_lock_ready =
            reactor.own.guest_results.as_mut().is_some_and(GuestResults::take_ready);
        if is_lock_ready {
            side::poll(&mut self.side, reactor);
        }
        self.take_finished(reactor);
        self.resume_paused(reactor);
        let (mut served, begin) = (0, self.connections.now());
        while let Some(event) = self.connections.next_event() {
            match event {
                RecordEvent::Opened { link, peer, is_datagram } => {
                    self.open(reactor, link, (peer, is_datagram));
                }
                RecordEvent::Record { link, bytes } => {
                    self.take_record(reactor, link, bytes);
                    served += 1;
                    if served >= CALLS_IN_TURN
                        || self.connections.now().saturating_sub(begin) >= TURN_MAX
                    {
                        return true;
                    }
                }
                RecordEvent::Secured { link, certificate } => {
                    self.on_secured(reactor, link, certificate.as_ref());
                }
                RecordEvent::TlsFailed { link, failure } => {
                    self.on_tls_failed(reactor, link, &failure);
                }
                RecordEvent::Sent { cookie } => reactor.on_loan_done(Cookie::unpack(cookie)),
                RecordEvent::Closed { link, reason } => {
                    tracing::debug!(?link, reason, "an NFS connection has ended");
                    self.v4.connection_lost(link);
                    // Another connection may have the place already.
                    if self.link(link).is_some() {
                        self.links[link.index()] = None;
                    }
                }
            }
        }
        false
    }

    /// Continues the calls whose operations on files have ended. Returns true if there were any.
    pub(super) fn take_results(&mut self, reactor: &mut Reactor<'_>) -> bool {
        let mut is_any = false;
        while let Some((to, result)) =
            reactor.own.guest_results.as_mut().and_then(|results| results.pop())
        {
            is_any = true;
            let Some((mut id, what)) = self.calls.end(to) else {
                // No call waits for this result any more, so the bytes of the read are released.
                if let GuestResult::Read(read) = result {
                    reactor.on_loan_done(read.cookie);
                }
                continue;
            };
            if let Suspended::Copy(number) = what {
                v4::end_copy(&mut self.desk(), reactor, number, result);
                continue;
            }
            self.count_waiting(id.to.link, false);
            if let GuestResult::Intended(intent) = result {
                id.intent = intent;
            }
            let mut desk = self.desk();
            match what {
                Suspended::V3(by, suspended) => {
                    let mut read = None;
                    let what = (suspended, result);
                    let progress = v3::resume(&mut desk, reactor, (id, by), what, &mut read);
                    self.follow(reactor, id, progress, read.as_slice());
                }
                Suspended::Replied(reply) => {
                    calls::begin(&mut self.writer, id.xid);
                    self.writer.raw(&reply);
                    self.end_once(reactor, id);
                }
                Suspended::Copy(_) => {}
                Suspended::Side(pending) => {
                    let progress = side::resume(&mut desk, reactor, id, *pending, result);
                    self.follow(reactor, id, progress, &[]);
                }
                Suspended::V4(compound) => {
                    let ran = v4::resume(&mut desk, reactor, compound, result);
                    self.follow_compound(reactor, id.to.link, ran);
                }
            }
        }
        is_any
    }

    /// Sends the callbacks that clients must get now.
    pub(super) fn call_back(&mut self, reactor: &mut Reactor<'_>) {
        self.v4.take_notices(reactor);
        let now = reactor.shared.life.now();
        loop {
            let Self { v4, writer, links, .. } = self;
            let link_of = |bits: u64| {
                let link = links.get(bits as u32 as usize)?.as_ref()?;
                (link.id.to_bits() == bits).then_some(link.id)
            };
            let Some(link) = v4.write_callback(writer, now, link_of) else { return };
            self.send(reactor, Route::plain(link), &[]);
        }
    }

    fn desk(&mut self) -> Desk<'_> {
        let Self { calls, writer, users, recent, v4, side, .. } = self;
        Desk { calls, writer, users, recent, v4, side }
    }

    fn follow_compound(&mut self, reactor: &mut Reactor<'_>, link: LinkId, ran: v4::Ran) {
        match ran {
            v4::Ran::Done(to, reads) => self.send(reactor, to, &reads),
            v4::Ran::Later => self.count_waiting(link, true),
        }
    }

    fn open(
        &mut self,
        reactor: &mut Reactor<'_>,
        id: LinkId,
        (address, is_datagram): (SocketAddr, bool),
    ) {
        tracing::debug!(%address, "an NFS client has connected");
        if self.links.len() <= id.index() {
            self.links.resize_with(id.index() + 1, || None);
        }
        self.links[id.index()] = Some(Link {
            id,
            address,
            is_datagram,
            peer: None,
            security: TransportSecurity::None,
            is_let_in: false,
            traffic: NfsClientNumbers::none(address.ip().to_canonical()),
            waiting: 0,
            is_paused: false,
            since: self.connections.now(),
        });
        self.judge(reactor, id);
    }

    /// Decides about all clients again if the rules or the name of a client have changed.
    fn renew(&mut self, reactor: &mut Reactor<'_>) {
        let before = self.users.changes();
        self.users.renew(reactor.shared, self.connections.now());
        if self.users.changes() == before {
            return;
        }
        let links: Vec<LinkId> = self.links.iter().flatten().map(|link| link.id).collect();
        for id in links {
            self.judge(reactor, id);
        }
    }

    /// Decides whether the rules let the client of a connection see an export. While the client's
    /// name is looked up, the server does not read from the connection.
    fn judge(&mut self, reactor: &mut Reactor<'_>, id: LinkId) {
        let Some(link) = self.link(id) else { return };
        let (address, security) = (link.address, link.security);
        let peer = self.users.peer_at(address, security, self.connections.now());
        let is_let_in = peer.as_ref().is_some_and(|peer| Users::lets_in(reactor.shared, peer));
        let is_known = peer.is_some();
        if let Some(link) = self.link(id) {
            (link.peer, link.is_let_in) = (peer, is_let_in);
        }
        if is_known && !is_let_in && self.connections.is_rdma(id) {
            return self.connections.close(id, "no access rule lets the client in");
        }
        self.connections.let_in(id, is_let_in);
        self.pause_if_busy(reactor, id);
    }

    fn link(&mut self, id: LinkId) -> Option<&mut Link> {
        self.links.get_mut(id.index())?.as_mut().filter(|link| link.id == id)
    }

    fn take_record(&mut self, reactor: &mut Reactor<'_>, id: LinkId, bytes: Vec<u8>) {
        self.on_record(reactor, id, &bytes);
        self.connections.recycle(bytes);
        self.take_results(reactor);
        self.pause_if_busy(reactor, id);
    }

    /// Updates the count of a connection's waiting calls.
    fn count_waiting(&mut self, id: LinkId, is_more: bool) {
        let Some(link) = self.link(id) else { return };
        match is_more {
            true => link.waiting += 1,
            false => link.waiting = link.waiting.saturating_sub(1),
        }
    }

    /// Stops reading from a connection with too many waiting calls or too many unsent bytes, or
    /// while the name of its client is looked up.
    fn pause_if_busy(&mut self, reactor: &Reactor<'_>, id: LinkId) {
        let is_full = self.has_unsent_above(reactor, id, 1);
        let Some(link) = self.link(id) else { return };
        let is_busy = link.waiting >= CALLS_MAX || is_full;
        if !link.is_paused && (is_busy || link.peer.is_none()) {
            link.is_paused = true;
            self.paused.push(id);
            self.connections.set_paused(id, true);
        }
    }

    /// Reads again from the paused connections on which half of the calls and bytes are done.
    fn resume_paused(&mut self, reactor: &Reactor<'_>) {
        for id in std::mem::take(&mut self.paused) {
            let is_full = self.has_unsent_above(reactor, id, 2);
            let Some(link) = self.link(id) else { continue };
            if link.waiting > CALLS_MAX / 2 || is_full || link.peer.is_none() {
                self.paused.push(id);
                continue;
            }
            link.is_paused = false;
            self.connections.set_paused(id, false);
        }
    }

    /// Returns true if a connection's unsent bytes, or those of all connections including this one,
    /// exceed their limit divided by `part`. Unsent bytes of files stay pinned in the cache.
    fn has_unsent_above(&self, reactor: &Reactor<'_>, id: LinkId, part: u64) -> bool {
        let arena = reactor.shared.cache.arena().length() as u64;
        let of_link = (arena / 64).clamp(UNSENT_BYTES_LEAST, UNSENT_BYTES_MAX);
        let unsent = self.connections.unsent(id);
        unsent > of_link / part || unsent > 0 && self.connections.unsent_total() > arena / 2 / part
    }

    fn on_record(&mut self, reactor: &mut Reactor<'_>, link: LinkId, bytes: &[u8]) {
        if let Some(link) = self.link(link) {
            link.traffic.calls += 1;
            link.traffic.call_bytes += bytes.len() as u64;
        }
        let mut reader = Reader::new(bytes);
        // The address in a datagram may be false, so only those who are let in get replies.
        if self.link(link).is_some_and(|link| link.is_datagram && !link.is_let_in) {
            return self.connections.close(link, "a datagram from a client that is not let in");
        }
        match decode_call(&mut reader) {
            Ok(call) => self.on_call(reactor, link, &call, (&mut reader, bytes)),
            Err(CallError::Refuse(refused)) => {
                calls::refuse(&mut self.writer, refused.xid, refused.body);
                self.send(reactor, Route::plain(link), &[]);
            }
            Err(CallError::IsReply) => {
                if !self.v4.on_reply(link, bytes, reactor.shared.life.now()) {
                    return self
                        .connections
                        .close(link, "the peer replied to a call that was not sent");
                }
                v4::take_replies(&mut self.desk(), reactor);
            }
            Err(CallError::NotACall | CallError::Absent) => {
                self.connections.close(link, "the peer sent a record that is not a call");
            }
        }
    }

    fn on_call(
        &mut self,
        reactor: &mut Reactor<'_>,
        link: LinkId,
        call: &Call<'_>,
        (reader, record): (&mut Reader<'_>, &[u8]),
    ) {
        match gss_call_of(call) {
            Some(asked) => self.on_gss_call(reactor, link, (call, &asked), (reader, record)),
            None => self.execute(reactor, (Route::plain(link), None), call, reader),
        }
    }

    /// Executes a call. `proof` is the proof of its user by Kerberos; `None` if the call states its
    /// user without proof.
    fn execute(
        &mut self,
        reactor: &mut Reactor<'_>,
        (mut to, proof): (Route, Option<Proof>),
        call: &Call<'_>,
        reader: &mut Reader<'_>,
    ) {
        let (xid, link) = (call.xid, to.link);
        let is_datagram = self.link(link).is_some_and(|link| link.is_datagram);
        let versions = match call.program {
            // Version 4 needs connections.
            program if program == NFS3.number && is_datagram => (NFS3.version, NFS3.version),
            program if program == NFS3.number => (NFS3.version, nfs4::NFS4.version),
            program if program == MOUNT3.number => (MOUNT3.version, MOUNT3.version),
            program if program == NFSACL3.number => (NFSACL3.version, NFSACL3.version),
            program => match side::versions(program) {
                Some(versions) => versions,
                None => {
                    calls::fail(&mut self.writer, xid, Outcome::ProgUnavail);
                    return self.send(reactor, to, &[]);
                }
            },
        };
        if !(versions.0..=versions.1).contains(&call.version) {
            calls::fail(&mut self.writer, xid, calls::mismatch(versions.0, versions.1));
            return self.send(reactor, to, &[]);
        }
        if call.credential.flavor == flavor::TLS {
            return self.on_tls_probe(reactor, link, call);
        }
        let asked = (call.program, call.version, call.procedure);
        to.note = reactor.shared.meter.begin_nfs(asked, xid);
        if call.procedure == 0 {
            // Every client gets a reply to NULL, with which clients test whether the server runs.
            match call.credential.credential() {
                Ok(_) => calls::begin(&mut self.writer, xid),
                Err(why) => calls::deny(&mut self.writer, xid, why),
            }
            return self.send(reactor, to, &[]);
        }
        if (call.program, call.procedure) == (MOUNT3.number, mount::EXPORT) {
            // Every client may ask which exports it would see, from any port, as showmount(8) does.
            let peer = self.link(link).and_then(|link| link.peer.clone());
            mount::list_exports(&mut self.writer, reactor, xid, peer.as_ref());
            return self.send(reactor, to, &[]);
        }
        let sender = match self.sender_of(to, call, proof) {
            Ok(sender) => sender,
            Err(why) => {
                calls::deny(&mut self.writer, xid, why);
                return self.send(reactor, to, &[]);
            }
        };
        if (call.program, call.version) == (nfs4::NFS4.number, nfs4::NFS4.version) {
            if call.procedure != PROCEDURE_COMPOUND {
                calls::fail(&mut self.writer, xid, Outcome::ProcUnavail);
                return self.send(reactor, to, &[]);
            }
            let ran = v4::serve(&mut self.desk(), reactor, sender, xid, reader);
            return self.follow_compound(reactor, link, ran);
        }
        if side::versions(call.program).is_some() {
            let progress = side::serve(&mut self.desk(), reactor, &sender, call, reader);
            return match progress {
                Progress::Done => self.send(reactor, to, &[]),
                Progress::Later => self.count_waiting(link, true),
            };
        }
        let Sender { mut peer, credentials, .. } = sender;
        let address = peer.address;
        if call.program == MOUNT3.number {
            // A client may ask with any flavor which flavors an export accepts.
            peer.flavor = None;
        }
        let principal = peer.principal.clone();
        let user = User { peer, credentials };
        let Some(admitted) = self.users.admit(reactor.shared, ClientKey::NONE, &user) else {
            calls::deny(&mut self.writer, xid, AuthStat::TooWeak);
            return self.send(reactor, to, &[]);
        };
        if self.is_too_weak(reactor, call.program, (&user, admitted), reader) {
            calls::deny(&mut self.writer, xid, AuthStat::TooWeak);
            return self.send(reactor, to, &[]);
        }
        let mut id = CallId { is_datagram, ..CallId::new(to, xid, admitted) };
        if call.program == MOUNT3.number {
            let progress =
                mount::serve(&mut self.desk(), reactor, (id, &user.peer), call.procedure, reader);
            return self.follow(reactor, id, progress, &[]);
        }
        if call.program == NFSACL3.number {
            let procedure = call.procedure;
            let progress = v3::serve_acl(&mut self.desk(), reactor, id, procedure, reader);
            return self.follow(reactor, id, progress, &[]);
        }
        if let Ok(credential) = call.credential.credential() {
            let who = (&credential, principal.as_deref());
            id.origin = v3::origin_of(address, call, who, reader.rest());
        }
        if id.origin.is_some() && self.is_repeat(reactor, id, call.procedure, reader) {
            return;
        }
        let progress = v3::serve(&mut self.desk(), reactor, id, call.procedure, reader);
        self.follow(reactor, id, progress, &[]);
    }

    /// Returns true if a call has arrived before. It then gets the first reply, when there is one.
    fn is_repeat(
        &mut self,
        reactor: &mut Reactor<'_>,
        id: CallId,
        procedure: u32,
        reader: &mut Reader<'_>,
    ) -> bool {
        let Some(origin) = id.origin else { return false };
        if reactor.own.defect == Some(Defect::ExecuteRepeats) {
            return false;
        }
        match reactor.shared.channels.guests_mut().repeats.begin(origin, id.to) {
            Known::New => return false,
            Known::Running => return true,
            Known::Replied(reply) => {
                calls::begin(&mut self.writer, id.xid);
                self.writer.raw(reply);
                self.send(reactor, id.to, &[]);
            }
            Known::Executed(done) => {
                let done = done.clone();
                v3::answer_again(&mut self.desk(), reactor, id, procedure, reader, &done);
                self.end_once(reactor, id);
            }
        }
        true
    }

    /// Returns the sender of a call; an error if its credentials are not accepted.
    fn sender_of(
        &mut self,
        Route { link, note, .. }: Route,
        call: &Call<'_>,
        proof: Option<Proof>,
    ) -> Result<Sender, AuthStat> {
        let credential = call.credential.credential()?;
        let Some(open) = self.link(link) else { return Err(AuthStat::Failed) };
        let Some(peer) = open.peer.clone().filter(|_| open.is_let_in) else {
            return Err(AuthStat::TooWeak);
        };
        if let Some(proof) = proof {
            let flavor = Some(flavor_of(proof.seal.protection));
            let principal = Some(proof.user.principal.clone());
            let peer = NfsPeer { flavor, principal, ..peer };
            let credentials = proof.user.credentials.clone();
            let (has_credentials, proof) = (true, Some(proof));
            return Ok(Sender { link, peer, credentials, has_credentials, proof, note });
        }
        let peer = NfsPeer { flavor: Some(Flavor::Sys), ..peer };
        let (credentials, has_credentials) = match credential {
            Credential::None => (Credentials::nobody(), false),
            Credential::Sys(sys) => {
                let groups = sys.gids.to_vec();
                let stated = Credentials::new(sys.uid, sys.gid, groups);
                (stated.map_err(|_| AuthStat::BadCred)?, true)
            }
            Credential::Gss(_) | Credential::Tls => return Err(AuthStat::BadCred),
        };
        Ok(Sender { link, peer, credentials, has_credentials, proof: None, note })
    }

    fn follow(
        &mut self,
        reactor: &mut Reactor<'_>,
        id: CallId,
        progress: Progress,
        reads: &[GuestRead],
    ) {
        match progress {
            Progress::Done if id.origin.is_some() => self.end_once(reactor, id),
            Progress::Done => self.send(reactor, id.to, reads),
            Progress::Later => self.count_waiting(id.to.link, true),
        }
    }

    /// Ends a call that must be executed once, whose reply is in the writer: journals the reply if
    /// the call has an intent, and otherwise keeps it for a repeat and sends it.
    fn end_once(&mut self, reactor: &mut Reactor<'_>, id: CallId) {
        let Some(origin) = id.origin else { return };
        let results = calls::results_of(self.writer.bytes());
        // A client that is told to call again later does so with another number.
        let is_kept = !results.is_none_or(|results| results.starts_with(&JUKEBOX));
        let results = results.unwrap_or_default();
        if id.intent.0 != 0 && is_kept {
            let status = match results.starts_with(&[0; 4]) {
                true => dafs_types::Status::Ok,
                false => dafs_types::Status::ServerFault,
            };
            let reply = Suspended::Replied(results.into());
            let to = self.calls.start(CallId { intent: RecordNumber(0), ..id }, reply);
            reactor.conclude_for_guest(to, id.intent, ReplyStatus::now(status), results);
            return self.count_waiting(id.to.link, true);
        }
        if id.intent.0 != 0 {
            reactor.abandon_for_guest(id.intent);
        }
        let repeats = &mut reactor.shared.channels.guests_mut().repeats;
        let to = match is_kept {
            true => repeats.end(&origin, results),
            false => repeats.forget(&origin),
        };
        // The reply goes to the last repeat, and counts for the call that was executed.
        let to = to.map_or(id.to, |to| Route { note: id.to.note, ..to });
        self.send(reactor, to, &[]);
    }

    /// Returns true if a call of version 3 names a file of an export that does not accept the
    /// flavor of the call, but another one.
    fn is_too_weak(
        &self,
        reactor: &mut Reactor<'_>,
        program: u32,
        (user, admitted): (&User, EndpointId),
        reader: &Reader<'_>,
    ) -> bool {
        // The arguments of all procedures with a file start with its handle.
        let handle = Opaque::<'_, 64>::decode(&mut reader.clone()).ok();
        let handle = handle.and_then(|handle| Some(FileHandle(handle.0.try_into().ok()?)));
        let Some(mut handle) = handle.filter(|_| program != MOUNT3.number) else { return false };
        handles::renew(&*reactor.shared.whole_store, &mut handle);
        let guest = reactor.shared.channels.guests().get(admitted);
        let is_shown = guest.is_none_or(|guest| guest.caller().store().shows(&handle));
        !is_shown && !reactor.shared.entrance.flavors_of(&user.peer, &handle).is_empty()
    }

    /// Sends the reply that is in the writer. The payloads of the reply are the bytes of `reads`.
    fn send(&mut self, reactor: &mut Reactor<'_>, to: Route, reads: &[GuestRead]) {
        if let Some(fault) = self.writer.fault() {
            // Replies are always within their limits, so this is a bug of this server.
            tracing::error!(%fault, "a reply to an NFS client cannot be encoded");
            release(reactor, reads);
            return self.connections.close(to.link, "a reply could not be encoded");
        }
        self.count_reply(reactor, &to, reads);
        match &to.seal {
            Some(seal) => self.send_sealed(reactor, to.link, seal, reads),
            None => self.send_parts(reactor, to.link, None, reads),
        }
    }

    /// Sends the reply that is in the writer. `head` replaces the start of the reply, up to the
    /// outcome of an accepted call.
    fn send_parts(
        &mut self,
        reactor: &mut Reactor<'_>,
        link: LinkId,
        head: Option<&[u8]>,
        reads: &[GuestRead],
    ) {
        let silent = Cookie::Silent.pack();
        let cookies = reads.iter().map(|read| read.cookie.pack()).filter(|word| *word != silent);
        if self.connections.is_rdma(link) {
            let head = head.map(|head| (head, REPLACED_BYTES));
            let (writer, cookies) = (&self.writer, cookies.collect());
            let message = OutgoingMessage { head, writer, reads, cookies };
            return self.connections.send_over_rdma(link, message);
        }
        let memory = reactor.shared.cache.arena();
        // A read of no bytes has no payload.
        let mut payloads = reads.iter().filter(|read| read.length() > 0);
        let mut replaced = if head.is_some() { REPLACED_BYTES } else { 0 };
        let parts = self.writer.pieces().flat_map(|piece| {
            let (bytes, pieces) = match piece {
                Piece::Bytes(bytes) => {
                    let bytes = &bytes[std::mem::take(&mut replaced).min(bytes.len())..];
                    (Some(Part::Bytes(bytes)), &[][..])
                }
                Piece::Payload(_) => {
                    (None, payloads.next().map_or(&[][..], |read| &read.pieces[..]))
                }
            };
            let payload = pieces.iter().map(|(offset, length)| Part::Memory {
                memory,
                offset: *offset,
                length: *length,
            });
            bytes.into_iter().chain(payload)
        });
        let parts = head.map(Part::Bytes).into_iter().chain(parts);
        self.connections.records().send(link, parts, cookies);
    }
}

/// Ends the loans of the bytes of a reply.
fn release(reactor: &mut Reactor<'_>, reads: &[GuestRead]) {
    for read in reads {
        reactor.on_loan_done(read.cookie);
    }
}

/// Returns the body of a credential of RPCSEC_GSS. `None` for a credential of another flavor, or
/// that cannot be decoded.
fn gss_call_of<'b>(call: &Call<'b>) -> Option<GssCall<'b>> {
    if call.credential.flavor != flavor::GSS {
        return None;
    }
    match call.credential.credential() {
        Ok(Credential::Gss(GssCredential::Version1(asked))) => Some(asked),
        _ => None,
    }
}

/// The length of the start of a reply that the verifier of RPCSEC_GSS replaces: xid, kind, accepted
/// and an empty verifier.
const REPLACED_BYTES: usize = 20;
/// The time for which a client that no rule lets in may stay connected. In this time it can ask
/// whether the server runs and which exports it would see.
const STRANGER_PATIENCE: Duration = Duration::from_secs(10);
/// The maximum number of calls of a connection that wait for operations.
const CALLS_MAX: usize = 256;
/// The number of bytes of pending replies above which the server stops reading from a connection,
/// with a small and with a large cache.
const UNSENT_BYTES_LEAST: u64 = 1 << 20;
const UNSENT_BYTES_MAX: u64 = 8 << 20;
/// The maximum number of calls that are executed before other reactors get a turn.
const CALLS_IN_TURN: usize = 64;
/// The status JUKEBOX of NFSv3, by which a client is told to call again later.
const JUKEBOX: [u8; 4] = 10_008_u32.to_be_bytes();
/// The time after which no more calls are started before other reactors get a turn.
const TURN_MAX: Duration = Duration::from_millis(1);
/// The number of the procedure COMPOUND of NFSv4.
const PROCEDURE_COMPOUND: u32 = 1;
