//! A session of version 4.1 or 4.2: its slots, and the compounds that use them.
//!
//! Invariant: the sequence number of a slot increases only after the server has accepted the slot's
//! SEQUENCE.

use std::net::SocketAddr;
use std::time::Duration;

use super::callback::{self, Callback};
use super::ops::{self, Channel, Claim, How, Op};
use super::results::{Body, Client, Created, Delegation, Opened, Sequence};
use super::{Reply, StateId, call_of, decode_record, run};
use crate::bench::refusal;
use crate::fault::{Fault, GARBAGE_ARGS};
use crate::rpc::{Auth, Connection};
use crate::status::{BADXDR, DELAY, GRACE};
use crate::xdr::Put;

/// The flag of CREATE_SESSION with which the connection also carries callbacks.
pub const CONN_BACK_CHAN: u32 = 2;

/// The maximum number of times that a compound is repeated because the server delays it.
const RETRIES: u32 = 400;
/// The pause between two attempts, in milliseconds.
const RETRY_MS: u64 = 50;
/// The maximum time to wait for the end of a session, in seconds.
const END_SECONDS: u64 = 5;

/// A session with its first connection.
#[derive(Debug)]
pub struct Session {
    /// The first connection of the session.
    pub connection: Connection,
    /// The credential with which all compounds are sent.
    pub auth: Auth,
    /// The minor version of all compounds.
    pub minor: u32,
    /// The name by which the client identifies itself.
    pub owner: Vec<u8>,
    /// The results of EXCHANGE_ID.
    pub client: Client,
    /// The results of CREATE_SESSION.
    pub created: Created,
    /// The next sequence number of each slot.
    pub next: Vec<u32>,
    /// The results of the last SEQUENCE.
    pub last: Option<Sequence>,
    /// The handle of the case's directory.
    pub dir: Vec<u8>,
    server: SocketAddr,
}

/// The parameters with which a session is created.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The name by which the client identifies itself.
    pub owner: Vec<u8>,
    /// The verifier of the client's instance.
    pub verifier: [u8; 8],
    /// The credential with which the session is created.
    pub auth: Auth,
    /// The minor version of all compounds.
    pub minor: u32,
    /// The flags of CREATE_SESSION.
    pub flags: u32,
    /// The limits for calls of the client.
    pub fore: Channel,
    /// The limits for callbacks.
    pub back: Channel,
}

impl Wish {
    /// Returns the parameters that most cases use.
    #[must_use]
    pub fn new(owner: &[u8], auth: Auth, minor: u32) -> Self {
        Self {
            owner: owner.to_vec(),
            verifier: *b"instance",
            auth,
            minor,
            flags: CONN_BACK_CHAN,
            fore: Channel::FORE,
            back: Channel::BACK,
        }
    }

    /// Returns the CREATE_SESSION of a client, with its next sequence number.
    #[must_use]
    pub fn create_session(&self, client: u64, number: u32) -> Op {
        ops::create_session(client, number, self.flags, self.fore, self.back)
    }
}

impl Session {
    /// Creates a client and a session, and sends RECLAIM_COMPLETE.
    pub fn start(server: SocketAddr, wish: &Wish) -> Result<Self, Fault> {
        let mut session = Self::without_reclaim_complete(server, wish)?;
        session.ok(&[ops::reclaim_complete(false)])?;
        Ok(session)
    }

    /// Creates a client and a session, without sending RECLAIM_COMPLETE.
    pub fn without_reclaim_complete(server: SocketAddr, wish: &Wish) -> Result<Self, Fault> {
        let mut connection = Connection::open(server)?;
        let client = exchange(&mut connection, wish)?;
        let created = create(&mut connection, wish, client.id, client.sequence)?;
        Ok(Self {
            connection,
            auth: wish.auth.clone(),
            minor: wish.minor,
            owner: wish.owner.clone(),
            client,
            created,
            next: vec![1; created.fore.requests as usize],
            last: None,
            dir: Vec::new(),
            server,
        })
    }

    /// Returns the operation that sets the current file handle to the case's directory.
    #[must_use]
    pub fn dir(&self) -> Op {
        ops::putfh(&self.dir)
    }

    /// Returns the SEQUENCE for the next compound on a slot.
    #[must_use]
    pub fn sequence(&self, slot: u32, cache: bool) -> Op {
        ops::sequence(self.created.id, self.next[slot as usize], slot, slot, cache)
    }

    /// Sends operations after a SEQUENCE on a slot. Returns the identifier of the call.
    pub fn send(&mut self, slot: u32, cache: bool, ops: &[Op]) -> Result<u32, Fault> {
        let mut all = vec![self.sequence(slot, cache)];
        all.extend_from_slice(ops);
        self.connection.send(&call_of(&self.auth, b"", self.minor, &all))
    }

    /// Waits for the reply to a compound on a slot. Returns it without the result of SEQUENCE.
    pub fn finish(&mut self, slot: u32, xid: u32) -> Result<Reply, Fault> {
        let record = self.connection.reply(xid)?;
        let mut reply = decode_record(&record)?;
        match reply.results.first().map(|first| (first.number, first.status, &first.body)) {
            Some((ops::SEQUENCE, 0, Body::Sequence(sequence))) => {
                self.next[slot as usize] = self.next[slot as usize].wrapping_add(1);
                self.last = Some(*sequence);
                reply.results.remove(0);
                Ok(reply)
            }
            _ => Err(Fault::Status { what: reply.last_name(), status: reply.status, wcc: vec![] }),
        }
    }

    /// Calls operations one time. Returns the reply even if an operation fails. If SEQUENCE fails,
    /// returns an error.
    pub fn once(&mut self, ops: &[Op]) -> Result<Reply, Fault> {
        let xid = self.send(0, false, ops)?;
        self.finish(0, xid)
    }

    /// Calls operations, and repeats the call as long as the server delays it.
    pub fn run(&mut self, ops: &[Op]) -> Result<Reply, Fault> {
        for _ in 0..RETRIES {
            let reply = self.once(ops)?;
            if !matches!(reply.status, DELAY | GRACE) {
                return Ok(reply);
            }
            std::thread::sleep(Duration::from_millis(RETRY_MS));
        }
        self.once(ops)
    }

    /// Calls operations. Returns an error unless all of them succeed.
    pub fn ok(&mut self, ops: &[Op]) -> Result<Reply, Fault> {
        self.run(ops)?.all_ok()
    }

    /// Calls operations. Returns an error unless the last of them fails with one of these statuses.
    pub fn fails(&mut self, statuses: &[u32], ops: &[Op]) -> anyhow::Result<Reply> {
        let wants_delay = statuses.contains(&DELAY) || statuses.contains(&GRACE);
        let reply = if wants_delay { self.once(ops) } else { self.run(ops) };
        let reply = match reply {
            // A server may decode all operations before it executes the first one (RFC 8881 section
            // 15.1.1.1).
            Err(Fault::NotDone { status: GARBAGE_ARGS, .. }) if statuses.contains(&BADXDR) => {
                return Ok(Reply { status: BADXDR, tag: Vec::new(), results: Vec::new() });
            }
            reply => reply?,
        };
        refusal(statuses, reply.clone().all_ok())?;
        let (done, last) = (reply.results.len(), ops.len());
        anyhow::ensure!(done == last, "operation {done} of {last} fails: {}", reply.last_name());
        Ok(reply)
    }

    /// Opens a name in the case's directory. Returns the state id of the open and the file handle.
    pub fn open(
        &mut self,
        owner: &str,
        (access, deny): (u32, u32),
        how: &How,
        name: &str,
    ) -> Result<(Opened, Vec<u8>), Fault> {
        let claim = Claim::Name(name.into());
        let open = ops::open(owner.as_bytes(), access, deny, how, &claim);
        let reply = self.ok(&[self.dir(), open, ops::getfh()])?;
        match reply.body(1)? {
            Body::Open(opened) => Ok((opened.clone(), reply.fh(2)?)),
            other => Err(Fault::Reply(format!("has {other:?} for an open"))),
        }
    }

    /// Creates a file with data in the case's directory, and closes it. Returns its handle.
    pub fn file(&mut self, name: &str, data: &[u8]) -> Result<Vec<u8>, Fault> {
        let how = How::Unchecked(super::Set::new().mode(0o644));
        let access = ops::share::BOTH | ops::share::WANT_NONE;
        let (opened, fh) = self.open("maker", (access, 0), &how, name)?;
        if let Delegation::Read(state) | Delegation::Write(state) = opened.delegation {
            self.ok(&[ops::putfh(&fh), ops::delegreturn(state)])?;
        }
        if !data.is_empty() {
            self.ok(&[ops::putfh(&fh), ops::write(opened.state, 0, 2, data)])?;
        }
        self.ok(&[ops::putfh(&fh), ops::close(opened.state)])?;
        Ok(fh)
    }

    /// Creates a file that stays open for reading and writing. Returns the state id and the handle.
    pub fn opened(&mut self, name: &str) -> Result<(StateId, Vec<u8>), Fault> {
        let how = How::Unchecked(super::Set::new().mode(0o644));
        let access = ops::share::BOTH | ops::share::WANT_NONE;
        let (opened, fh) = self.open("opener", (access, 0), &how, name)?;
        Ok((opened.state, fh))
    }

    /// Waits for a callback, and replies to it. Returns its operations without CB_SEQUENCE.
    pub fn callback(&mut self) -> Result<Vec<Callback>, Fault> {
        let attributes = Put::new().u32(0).opaque("").0;
        let mut callbacks = callback::answer(&mut self.connection, &attributes)?;
        callbacks.retain(|callback| !matches!(callback, Callback::Sequence { .. }));
        Ok(callbacks)
    }

    /// Opens another connection, which is not bound to the session yet.
    pub fn another_connection(&self) -> Result<Connection, Fault> {
        Connection::open(self.server)
    }

    /// Creates a new instance of the client, so that the server releases the state of the old one.
    fn end(&mut self) -> Result<(), Fault> {
        let mut wish = Wish::new(&self.owner, self.auth.clone(), self.minor);
        wish.verifier = *b"the last";
        let mut connection = Connection::open(self.server)?;
        connection.set_patience(END_SECONDS)?;
        let client = exchange(&mut connection, &wish)?;
        let created = create(&mut connection, &wish, client.id, client.sequence)?;
        let mut call = |op: Op| run(&mut connection, &self.auth, self.minor, &[op]);
        call(ops::destroy_session(created.id))?;
        call(ops::destroy_clientid(client.id))?;
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The server may be gone.
        let _ = self.end();
    }
}

/// Calls EXCHANGE_ID with the parameters of a session to be created.
pub fn exchange(connection: &mut Connection, wish: &Wish) -> Result<Client, Fault> {
    exchange_with(connection, wish, 0)
}

/// Calls EXCHANGE_ID with the parameters of a session to be created, and with flags.
pub fn exchange_with(
    connection: &mut Connection,
    wish: &Wish,
    flags: u32,
) -> Result<Client, Fault> {
    let op = ops::exchange_id(wish.verifier, &wish.owner, flags);
    let reply = run(connection, &wish.auth, wish.minor, &[op])?.all_ok()?;
    match reply.body(0)? {
        Body::Client(client) => Ok(client.clone()),
        other => Err(Fault::Reply(format!("has {other:?} for a client"))),
    }
}

/// Calls CREATE_SESSION with the parameters in `wish`.
pub fn create(
    connection: &mut Connection,
    wish: &Wish,
    client: u64,
    number: u32,
) -> Result<Created, Fault> {
    let op = wish.create_session(client, number);
    let reply = run(connection, &wish.auth, wish.minor, &[op])?.all_ok()?;
    match reply.body(0)? {
        Body::Created41(created) => Ok(*created),
        other => Err(Fault::Reply(format!("has {other:?} for a session"))),
    }
}
