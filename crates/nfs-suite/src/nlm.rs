//! A client of the network lock manager (NLM versions 1, 3 and 4) and of the status monitor (NSM).
//!
//! A lock manager also calls its clients. [`Listener`] takes such calls.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use crate::fault::Fault;
use crate::rpc::{Auth, Call, Connection, PATIENCE_SECONDS};
use crate::xdr::{Get, Put};

/// The RPC program number of NLM.
pub const PROGRAM: u32 = 100_021;
/// The RPC program number of NSM.
pub const MONITOR: u32 = 100_024;

/// The statuses of NLM.
pub mod status {
    /// The lock is granted, or the procedure has succeeded.
    pub const GRANTED: u32 = 0;
    /// The lock conflicts with another lock.
    pub const DENIED: u32 = 1;
    /// The server grants the lock later, by a call.
    pub const BLOCKED: u32 = 3;
    /// The server only accepts reclaims.
    pub const GRACE: u32 = 4;
    /// The file of the handle does not exist.
    pub const STALE: u32 = 7;
}

/// A client of NLM: a host with its lock manager.
#[derive(Debug)]
pub struct Nlm {
    /// The connection to the server.
    pub connection: Connection,
    /// The credential with which all calls are sent.
    pub auth: Auth,
    /// The version of the protocol.
    pub version: u32,
    /// The name of the host.
    pub caller: String,
}

/// A lock of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The handle of the file.
    pub fh: Vec<u8>,
    /// The number of the process.
    pub process: u32,
    /// True if the lock is exclusive.
    pub is_exclusive: bool,
    /// The offset of the first byte.
    pub offset: u64,
    /// The number of bytes; 0 means up to the end of the file.
    pub length: u64,
}

/// A lock with which a tested lock conflicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// True if the lock is exclusive.
    pub is_exclusive: bool,
    /// The number of the process; 0 if it is not a process of an NLM client.
    pub process: u32,
    /// The owner, as its client encodes it.
    pub owner: Vec<u8>,
    /// The offset of the first byte.
    pub offset: u64,
    /// The number of bytes; 0 means up to the end of the file.
    pub length: u64,
}

impl Nlm {
    /// Connects to the lock manager of a server, as version 4.
    pub fn open(server: SocketAddr, caller: &str) -> Result<Self, Fault> {
        let connection = Connection::open(server)?;
        Ok(Self { connection, auth: Auth::user(0), version: 4, caller: caller.into() })
    }

    /// Calls a procedure with encoded arguments.
    pub fn raw(&mut self, procedure: u32, arguments: Put) -> Result<Vec<u8>, Fault> {
        let call = Call::new(PROGRAM, self.version, procedure, &self.auth, arguments.0);
        self.connection.call(&call)
    }

    fn number(&self, put: Put, number: u64) -> Put {
        match self.version {
            4 => put.u64(number),
            _ => put.u32(number as u32),
        }
    }

    /// Appends the encoding of a lock.
    #[must_use]
    pub fn put(&self, put: Put, lock: &Lock) -> Put {
        let owner = format!("{}@{}", lock.process, self.caller);
        let put = put.opaque(&self.caller).opaque(&lock.fh).opaque(owner).u32(lock.process);
        let put = self.number(put, lock.offset);
        self.number(put, lock.length)
    }

    fn status(&mut self, procedure: u32, arguments: Put) -> Result<u32, Fault> {
        let results = self.raw(procedure, arguments)?;
        let mut get = Get(&results);
        if get.opaque()? != COOKIE {
            return Err(Fault::Reply("has another cookie".into()));
        }
        let status = get.u32()?;
        if matches!(procedure, 20 | 21) {
            get.u32()?;
        }
        get.finish()?;
        Ok(status)
    }

    /// Calls TEST. Returns the conflicting lock, if any.
    pub fn test(&mut self, lock: &Lock) -> Result<Result<u32, Holder>, Fault> {
        let put = self.put(Put::new().opaque(COOKIE).bool(lock.is_exclusive), lock);
        let results = self.raw(1, put)?;
        self.tested(&results)
    }

    /// Decodes the results of TEST.
    pub fn tested(&self, results: &[u8]) -> Result<Result<u32, Holder>, Fault> {
        let mut get = Get(results);
        get.opaque()?;
        let status = get.u32()?;
        if status != status::DENIED {
            get.finish()?;
            return Ok(Ok(status));
        }
        let (is_exclusive, process, owner) = (get.bool()?, get.u32()?, get.opaque()?);
        let mut number = || if self.version == 4 { get.u64() } else { get.u32().map(u64::from) };
        let (offset, length) = (number()?, number()?);
        get.finish()?;
        Ok(Err(Holder { is_exclusive, process, owner, offset, length }))
    }

    /// Encodes the arguments of LOCK.
    #[must_use]
    pub fn lock_arguments(&self, lock: &Lock, waits: bool, reclaims: bool) -> Put {
        let put = Put::new().opaque(COOKIE).bool(waits).bool(lock.is_exclusive);
        self.put(put, lock).bool(reclaims).u32(STATE)
    }

    /// Calls LOCK. Returns the status.
    pub fn lock(&mut self, lock: &Lock, waits: bool, reclaims: bool) -> Result<u32, Fault> {
        let arguments = self.lock_arguments(lock, waits, reclaims);
        self.status(2, arguments)
    }

    /// Calls CANCEL for a lock that the client waits for. Returns the status.
    pub fn cancel(&mut self, lock: &Lock) -> Result<u32, Fault> {
        let put = Put::new().opaque(COOKIE).bool(true).bool(lock.is_exclusive);
        let put = self.put(put, lock);
        self.status(3, put)
    }

    /// Calls UNLOCK. Returns the status.
    pub fn unlock(&mut self, lock: &Lock) -> Result<u32, Fault> {
        let put = self.put(Put::new().opaque(COOKIE), lock);
        self.status(4, put)
    }

    fn sharing(&self, fh: &[u8], owner: &str, deny: u32, access: u32) -> Put {
        let put = Put::new().opaque(COOKIE).opaque(&self.caller).opaque(fh).opaque(owner);
        put.u32(deny).u32(access).bool(false)
    }

    /// Calls SHARE with numbers for the denied and the wanted access. Returns the status.
    pub fn share(&mut self, fh: &[u8], owner: &str, deny: u32, access: u32) -> Result<u32, Fault> {
        self.status(20, self.sharing(fh, owner, deny, access))
    }

    /// Calls UNSHARE. Returns the status.
    pub fn unshare(&mut self, fh: &[u8], owner: &str) -> Result<u32, Fault> {
        self.status(21, self.sharing(fh, owner, 0, 0))
    }

    /// Calls FREE_ALL, which releases the locks of a host.
    pub fn free_all(&mut self, host: &str) -> Result<(), Fault> {
        Get(&self.raw(23, Put::new().opaque(host).u32(STATE))?).finish()
    }

    /// Calls NOTIFY of NSM, which reports that a host has restarted.
    pub fn notify(&mut self, host: &str, state: u32) -> Result<(), Fault> {
        let arguments = Put::new().opaque(host).u32(state).0;
        let results = self.connection.call(&Call::new(MONITOR, 1, 6, &self.auth, arguments))?;
        Get(&results).finish()
    }
}

/// A socket that takes the calls of a server, and answers as rpcbind of the client's host.
#[derive(Debug)]
pub struct Listener {
    socket: UdpSocket,
}

/// A call of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// The number of the program.
    pub program: u32,
    /// The version of the program.
    pub version: u32,
    /// The number of the procedure.
    pub procedure: u32,
    /// The arguments of the call, as they are encoded.
    pub arguments: Vec<u8>,
}

impl Listener {
    /// Opens a socket on this machine.
    pub fn open() -> Result<Self, Fault> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(Duration::from_secs(PATIENCE_SECONDS)))?;
        Ok(Self { socket })
    }

    /// Returns the port of the socket.
    pub fn port(&self) -> Result<u16, Fault> {
        Ok(self.socket.local_addr()?.port())
    }

    /// Waits for a call, and replies with the results that `answer` returns. The queries to rpcbind
    /// before it get this socket's port as the answer.
    pub fn next(&self, answer: impl FnOnce(&Called) -> Vec<u8>) -> Result<Called, Fault> {
        let mut buffer = [0; 64 << 10];
        loop {
            let (length, from) = self.socket.recv_from(&mut buffer)?;
            let mut get = Get(&buffer[..length]);
            let (xid, _call, _version) = (get.u32()?, get.u32()?, get.u32()?);
            let (program, version, procedure) = (get.u32()?, get.u32()?, get.u32()?);
            for _ in 0..2 {
                get.u32()?;
                get.opaque()?;
            }
            let reply = Put::new().u32(xid).u32(1).u32(0).u32(0).opaque(b"").u32(0);
            if program == 100_000 {
                let (_program, _version, protocol) = (get.u32()?, get.u32()?, get.u32()?);
                let port = if protocol == 17 { u32::from(self.port()?) } else { 0 };
                self.socket.send_to(&reply.u32(port).0, from)?;
                continue;
            }
            let called = Called { program, version, procedure, arguments: get.0.to_vec() };
            self.socket.send_to(&reply.raw(&answer(&called)).0, from)?;
            return Ok(called);
        }
    }
}

/// The cookie of all calls.
const COOKIE: &[u8] = b"cookie";
/// The state number of the host's monitor.
pub const STATE: u32 = 7;
