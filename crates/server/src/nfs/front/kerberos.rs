//! Calls of NFS clients that are authenticated by Kerberos (RPCSEC_GSS, RFC 2203).
//!
//! Invariants:
//! - A call is executed only if its verifier is genuine, its sequence number is new, and its
//!   arguments are as its client has sent them.
//! - The reactor processes short messages itself, and hands long ones to threads.

use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Duration;

use dafs_dat::records::LinkId;
use dafs_filer::Holder;
use dafs_gss::Protection;
use dafs_nfs_state::limits::GSS_SEQUENCE_WINDOW;
use dafs_nfs_state::{GssArrival, GssHandle, NewGssContext};
use dafs_nfs_wire::rpc::gss::{GssCall, GssInitArguments, GssInitResults, GssProcedure};
use dafs_nfs_wire::rpc::{AuthStat, Call, Outcome, decode_call};
use dafs_nfs_wire::xdr::{Opaque, Piece, Reader, decode_whole};

use super::Front;
use crate::access::gss::{CONTINUE_NEEDED, FAILURE};
use crate::guests::GuestRead;
use crate::nfs::calls;
use crate::nfs::gss::{self, Accepted, Done, GssUser, Job, Made, Opened, Refusal, Route, Seal};
use crate::nfs::v4::{Proof, peer_of};
use crate::reactor::Reactor;

impl Front {
    /// Handles a call with a credential of RPCSEC_GSS. `record` is the whole call.
    pub(super) fn on_gss_call(
        &mut self,
        reactor: &mut Reactor<'_>,
        link: LinkId,
        (call, asked): (&Call<'_>, &GssCall<'_>),
        (reader, record): (&Reader<'_>, &[u8]),
    ) {
        let is_served = self.link(link).is_some_and(|open| open.is_let_in && !open.is_datagram);
        let why = match asked.procedure {
            _ if self.gss.kerberos.is_none() => Some(AuthStat::BadCred),
            _ if !is_served => Some(AuthStat::TooWeak),
            // Only calls with data may call procedures other than NULL.
            GssProcedure::Data => None,
            _ if call.procedure != 0 => Some(AuthStat::BadCred),
            _ => None,
        };
        if let Some(why) = why {
            return self.deny(reactor, link, call.xid, why);
        }
        match asked.procedure {
            GssProcedure::Init | GssProcedure::ContinueInit => {
                self.take_token(reactor, link, (call.xid, asked), reader);
            }
            GssProcedure::Data | GssProcedure::Destroy => {
                self.open_call(reactor, link, (call, asked), (reader, record));
            }
        }
    }

    fn deny(&mut self, reactor: &mut Reactor<'_>, link: LinkId, xid: u32, why: AuthStat) {
        calls::deny(&mut self.writer, xid, why);
        self.send(reactor, Route::plain(link), &[]);
    }

    // ---- contexts -----------------------------------------------------------------------

    /// Starts the check of a token, which begins or continues a context.
    fn take_token(
        &mut self,
        reactor: &mut Reactor<'_>,
        link: LinkId,
        (xid, asked): (u32, &GssCall<'_>),
        reader: &Reader<'_>,
    ) {
        let Ok(GssInitArguments { token }) = decode_whole(reader.rest()) else {
            calls::fail(&mut self.writer, xid, Outcome::GarbageArgs);
            return self.send(reactor, Route::plain(link), &[]);
        };
        let Some(kerberos) = self.gss.kerberos.clone() else { return };
        let now = reactor.shared.life.now();
        let acceptor = match asked.procedure {
            GssProcedure::ContinueInit => self.gss.contexts.take_half(asked.handle.0, now),
            _ if !asked.handle.0.is_empty() => None,
            _ => kerberos.nfs_acceptor(),
        };
        let address = self.link(link).map(|open| open.address.ip().to_canonical());
        let (Some(acceptor), Some(address)) = (acceptor, address) else {
            return self.deny(reactor, link, xid, AuthStat::GssCredProblem);
        };
        let (acceptor, token) = (Box::new(acceptor), token.0.into());
        let job = Job::Accept { link, xid, address, kerberos, acceptor, token };
        if self.gss.check_token(address, job) {
            self.count_waiting(link, true);
        } else {
            calls::fail(&mut self.writer, xid, Outcome::SystemErr);
            self.send(reactor, Route::plain(link), &[]);
        }
    }

    /// Replies to a call whose token was checked.
    fn on_accepted(
        &mut self,
        reactor: &mut Reactor<'_>,
        (link, xid): (LinkId, u32),
        outcome: Accepted,
    ) {
        let Some(address) = self.link(link).map(|open| open.address.ip().to_canonical()) else {
            return;
        };
        let now = reactor.shared.life.now();
        let entropy = reactor.shared.entrance.entropy();
        let random = u128::from(entropy.next_u64()) << 64 | u128::from(entropy.next_u64());
        let peer = peer_of(address);
        let none = GssInitResults {
            handle: Opaque(&[]),
            major: 0,
            minor: 0,
            sequence_window: 0,
            token: Opaque(&[]),
        };
        match outcome {
            Accepted::Continue { acceptor, token } => {
                let handle = self.gss.contexts.keep_half(*acceptor, peer, random, now);
                let (handle, token) = (Opaque(&handle.0[..]), Opaque(&token[..]));
                let results = GssInitResults { handle, major: CONTINUE_NEEDED, token, ..none };
                gss::completed(&mut self.writer, xid, None, &results);
            }
            Accepted::Complete { context, token, proof, credentials, is_stranger } => {
                let principal: Arc<str> = context.peer().as_str().into();
                let lifetime = context.lifetime().min(LIFETIME_MAX);
                tracing::debug!(%principal, %address, "an NFS client has authenticated");
                let user = Arc::new(GssUser { principal, credentials });
                let value = Made { context: Arc::new((*context).into()), user };
                let new = NewGssContext { value, peer, is_stranger, lifetime };
                let handle = self.gss.contexts.insert(new, random, now);
                let (handle, token) = (Opaque(&handle.0[..]), Opaque(&token[..]));
                let sequence_window = GSS_SEQUENCE_WINDOW;
                let results = GssInitResults { handle, sequence_window, token, ..none };
                gss::completed(&mut self.writer, xid, Some(&proof), &results);
            }
            Accepted::Failed(error) => {
                if let Some(error) = &error
                    && reactor.shared.entrance.may_log(Holder::at(address), now)
                {
                    tracing::warn!(from = %address, %error, "an NFS client's token is refused");
                }
                let (major, minor) =
                    error.as_ref().map_or((FAILURE, 0), |error| (error.major(), error.minor()));
                let token = error.as_ref().and_then(|error| error.reply()).unwrap_or_default();
                let results = GssInitResults { major, minor, token: Opaque(token), ..none };
                gss::completed(&mut self.writer, xid, None, &results);
            }
        }
        self.send(reactor, Route::plain(link), &[]);
    }

    /// Removes the contexts that have expired.
    pub(super) fn expire_contexts(&mut self, reactor: &Reactor<'_>) {
        self.gss.contexts.expire(reactor.shared.life.now());
    }

    // ---- calls --------------------------------------------------------------------------

    /// Opens a call of a context: checks its verifier, and decrypts its arguments.
    fn open_call(
        &mut self,
        reactor: &mut Reactor<'_>,
        link: LinkId,
        (call, asked): (&Call<'_>, &GssCall<'_>),
        (reader, record): (&Reader<'_>, &[u8]),
    ) {
        let handle = GssHandle::from_bytes(asked.handle.0);
        let now = reactor.shared.life.now();
        let found = handle.and_then(|handle| Some((handle, self.gss.contexts.get(handle, now)?)));
        let Some((context, made)) = found.map(|(handle, made)| (handle, made.clone())) else {
            return self.deny(reactor, link, call.xid, AuthStat::GssCredProblem);
        };
        let protection = gss::protection_of(asked.service);
        let seal = Seal { context, sequence: asked.sequence, protection };
        let arguments = reader.rest();
        let is_short = protection == Protection::Authentication || arguments.len() <= SHORT_BYTES;
        let mut own = None;
        if is_short && let Some(mut context) = free(&made) {
            own = Some(gss::open(&mut context, &seal, call, arguments));
        }
        let opened = match own {
            Some(opened) => opened,
            None => {
                let job = Job::Open { link, record: record.to_vec(), seal, made: made.clone() };
                match self.gss.workers.process(job) {
                    Ok(()) => return self.count_waiting(link, true),
                    // The threads have as much work as they may have.
                    Err(_) => {
                        let mut context =
                            made.context.lock().unwrap_or_else(PoisonError::into_inner);
                        gss::open(&mut context, &seal, call, arguments)
                    }
                }
            }
        };
        let call = (call, asked.procedure);
        self.on_opened(reactor, Route::sealed(link, seal), call, (&made, opened, arguments));
    }

    /// Executes a call whose verifier was checked, if it is genuine and has not arrived before.
    fn on_opened(
        &mut self,
        reactor: &mut Reactor<'_>,
        to: Route,
        (call, procedure): (&Call<'_>, GssProcedure),
        (made, opened, arguments): (&Made, Result<Opened, Refusal>, &[u8]),
    ) {
        let Some(seal) = to.seal else { return };
        if let Err(Some(why)) = opened.as_ref().map_err(|refusal| refusal.status()) {
            return self.deny(reactor, to.link, call.xid, why);
        }
        let now = reactor.shared.life.now();
        match self.gss.contexts.arrive(seal.context, seal.sequence, now) {
            GssArrival::New => {}
            GssArrival::Drop => return,
            GssArrival::Exhausted => {
                return self.deny(reactor, to.link, call.xid, AuthStat::GssContextProblem);
            }
            GssArrival::Unknown => {
                return self.deny(reactor, to.link, call.xid, AuthStat::GssCredProblem);
            }
        }
        let Ok(opened) = opened else {
            calls::fail(&mut self.writer, call.xid, Outcome::GarbageArgs);
            return self.send(reactor, to, &[]);
        };
        if procedure == GssProcedure::Destroy {
            calls::begin(&mut self.writer, call.xid);
            self.send(reactor, to, &[]);
            self.gss.contexts.remove(seal.context);
            return;
        }
        let proof = Proof { seal, user: made.user.clone() };
        let mut reader = Reader::new(gss::within(&opened, arguments));
        self.execute(reactor, (to, Some(proof)), call, &mut reader);
    }

    // ---- replies ------------------------------------------------------------------------

    /// Protects the reply that is in the writer, and sends it. The payloads of the reply are the
    /// bytes of `reads`. Without protection of the results, they go to the socket without a copy.
    pub(super) fn send_sealed(
        &mut self,
        reactor: &mut Reactor<'_>,
        link: LinkId,
        seal: &Seal,
        reads: &[GuestRead],
    ) {
        let Some(made) = self.gss.contexts.get_for_reply(seal.context).cloned() else {
            super::release(reactor, reads);
            return self
                .connections
                .close(link, "the context of a call has ended before its reply");
        };
        let is_plain = seal.protection == Protection::Authentication;
        if is_plain && gss::is_accepted(self.writer.bytes()) {
            let proof = free(&made).map(|mut own| gss::verifier(&mut own, seal.sequence));
            if let Some(Ok(proof)) = proof {
                let xid = self.writer.bytes()[..4].try_into().map_or(0, u32::from_be_bytes);
                let head = gss::head(xid, &proof);
                return self.send_parts(reactor, link, Some(&head), reads);
            }
        }
        let reply = self.whole_reply(reactor, reads);
        super::release(reactor, reads);
        let mut sealed = None;
        if reply.len() <= SHORT_BYTES
            && let Some(mut context) = free(&made)
        {
            sealed = Some(gss::seal_reply(&mut context, seal, &reply).ok());
        }
        let sealed = match sealed {
            Some(sealed) => sealed,
            None => match self.gss.workers.process(Job::Seal { link, reply, seal: *seal, made }) {
                Ok(()) => return self.count_waiting(link, true),
                // The threads have as much work as they may have.
                Err(job) => match job.run() {
                    Done::Sealed { reply, .. } => reply,
                    Done::Accepted { .. } | Done::Opened { .. } => None,
                },
            },
        };
        self.send_whole(link, sealed);
    }

    /// Returns the reply that is in the writer, with the bytes of its READs.
    fn whole_reply(&self, reactor: &Reactor<'_>, reads: &[GuestRead]) -> Vec<u8> {
        let arena = reactor.shared.cache.arena();
        let mut whole = Vec::with_capacity(self.writer.length());
        let mut payloads = reads.iter().filter(|read| read.length() > 0);
        for piece in self.writer.pieces() {
            match piece {
                Piece::Bytes(bytes) => whole.extend_from_slice(bytes),
                Piece::Payload(_) => {
                    for (offset, length) in payloads.next().map_or(&[][..], |read| &read.pieces) {
                        let offset = usize::try_from(*offset).unwrap_or(usize::MAX);
                        whole.extend(arena.to_vec(offset, *length as usize));
                    }
                }
            }
        }
        whole
    }

    fn send_whole(&mut self, link: LinkId, reply: Option<Vec<u8>>) {
        match reply {
            Some(reply) => self.connections.send_whole(link, reply),
            None => self.connections.close(link, "a reply could not be protected"),
        }
    }

    /// Handles what the threads have finished.
    pub(super) fn take_finished(&mut self, reactor: &mut Reactor<'_>) {
        while let Some(done) = self.gss.workers.next() {
            match done {
                Done::Accepted { link, xid, address, outcome } => {
                    self.gss.token_checked(address);
                    self.count_waiting(link, false);
                    self.on_accepted(reactor, (link, xid), outcome);
                }
                Done::Opened { link, record, seal, made, opened } => {
                    self.count_waiting(link, false);
                    let is_open = self.link(link).is_some_and(|open| open.is_let_in);
                    let mut reader = Reader::new(&record);
                    let Ok(call) = decode_call(&mut reader) else { continue };
                    let Some(asked) = super::gss_call_of(&call).filter(|_| is_open) else {
                        continue;
                    };
                    let to = Route::sealed(link, seal);
                    let what = (&made, opened, reader.rest());
                    self.on_opened(reactor, to, (&call, asked.procedure), what);
                }
                Done::Sealed { link, reply } => {
                    self.count_waiting(link, false);
                    if self.link(link).is_some() {
                        self.send_whole(link, reply);
                    }
                }
            }
        }
    }
}

/// Returns the library's context, unless a thread is using it.
fn free(made: &Made) -> Option<std::sync::MutexGuard<'_, dafs_gss::Context>> {
    match made.context.try_lock() {
        Ok(context) => Some(context),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The length of the longest message that the reactor checks or encrypts itself, in bytes. This
/// takes some ten microseconds.
const SHORT_BYTES: usize = 8 << 10;
/// The longest lifetime of a context. Then the client authenticates again, and changes of its
/// groups take effect.
const LIFETIME_MAX: Duration = Duration::from_secs(3600);
