//! A client of ONC RPC version 2 (RFC 5531) over TCP.
//!
//! Invariant: only bytes that the caller passes are sent, so that a test case can send any bytes.
//! If a reply arrives while the caller waits for another reply, it is stored until the caller asks
//! for it.

use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::fault::Fault;
use crate::xdr::{Get, Put};

/// The number of seconds after which a server that does not reply has failed the test.
pub const PATIENCE_SECONDS: u64 = 20;

/// The bit of a mark that is set if the fragment is the last of its record.
pub const LAST: u32 = 0x8000_0000;

/// The maximum length of a received reply, in bytes.
const RECORD_BYTES_MAX: usize = 64 << 20;

/// The credential of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    /// The client states no user (AUTH_NONE).
    None,
    /// The client states a user id and group ids (AUTH_SYS).
    Sys {
        /// The user id of the caller.
        uid: u32,
        /// The primary group id of the caller.
        gid: u32,
        /// The supplementary group ids of the caller.
        gids: Vec<u32>,
    },
    /// A credential of any flavor, with any body.
    Raw(u32, Vec<u8>),
}

/// All fields of a call, which need not be valid.
#[derive(Clone, Debug)]
pub struct Call {
    /// The version of RPC. A valid call has version 2.
    pub rpc_version: u32,
    /// The number of the program that is called.
    pub program: u32,
    /// The version of the program.
    pub version: u32,
    /// The number of the procedure.
    pub procedure: u32,
    /// The credential of the caller.
    pub auth: Auth,
    /// The flavor and body of the verifier.
    pub verifier: (u32, Vec<u8>),
    /// The arguments as they are encoded.
    pub arguments: Vec<u8>,
}

/// A connection to a server.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    next_xid: u32,
    patience_seconds: u64,
    replies: HashMap<u32, Vec<u8>>,
    /// Calls that the server has sent and that were received while a reply was expected.
    calls: VecDeque<Vec<u8>>,
}

impl Auth {
    /// Returns the credential of a user whose only group id equals the user id.
    #[must_use]
    pub const fn user(uid: u32) -> Self {
        Self::Sys { uid, gid: uid, gids: Vec::new() }
    }

    fn put(&self, put: Put) -> Put {
        match self {
            Self::None => put.u32(0).u32(0),
            Self::Sys { uid, gid, gids } => {
                let body = Put::new().u32(0).opaque("suite").u32(*uid).u32(*gid);
                put.u32(1).opaque(body.list(gids, |put, gid| put.u32(*gid)).0)
            }
            Self::Raw(flavor, body) => put.u32(*flavor).opaque(body),
        }
    }
}

impl Call {
    /// Returns a valid call.
    #[must_use]
    pub fn new(
        program: u32,
        version: u32,
        procedure: u32,
        auth: &Auth,
        arguments: Vec<u8>,
    ) -> Self {
        let (auth, verifier) = (auth.clone(), (0, Vec::new()));
        Self { rpc_version: 2, program, version, procedure, auth, verifier, arguments }
    }

    /// Encodes the call, without the mark of its record.
    #[must_use]
    pub fn encode(&self, xid: u32) -> Vec<u8> {
        let put = Put::new().u32(xid).u32(0).u32(self.rpc_version);
        let put = put.u32(self.program).u32(self.version).u32(self.procedure);
        let put = self.auth.put(put).u32(self.verifier.0).opaque(&self.verifier.1);
        put.raw(&self.arguments).0
    }
}

impl Connection {
    /// Connects to a server over TCP.
    pub fn open(server: SocketAddr) -> Result<Self, Fault> {
        Self::over(TcpStream::connect(server)?)
    }

    /// Uses a stream that is connected to a server.
    pub fn over(stream: TcpStream) -> Result<Self, Fault> {
        stream.set_nodelay(true)?;
        let mut connection = Self {
            stream,
            next_xid: 0x1000,
            patience_seconds: 0,
            replies: HashMap::new(),
            calls: VecDeque::new(),
        };
        connection.set_patience(PATIENCE_SECONDS)?;
        Ok(connection)
    }

    /// Sets the number of seconds after which a server that does not reply has failed the test.
    pub fn set_patience(&mut self, seconds: u64) -> Result<(), Fault> {
        self.patience_seconds = seconds;
        let limit = Some(Duration::from_secs(seconds));
        self.stream.set_read_timeout(limit)?;
        self.stream.set_write_timeout(limit)?;
        Ok(())
    }

    /// Returns the socket, for cases that send or receive on it directly.
    #[must_use]
    pub const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Returns an identifier that no call of this connection has used.
    pub fn xid(&mut self) -> u32 {
        self.next_xid += 1;
        self.next_xid
    }

    /// Sends bytes without adding a mark.
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.stream.write_all(bytes).map_err(|error| self.fault(error))
    }

    /// Sends a record that consists of one fragment.
    pub fn send_record(&mut self, record: &[u8]) -> Result<(), Fault> {
        self.send_raw(&record_of(&[record]))
    }

    /// Sends a record that consists of these fragments.
    pub fn send_fragments(&mut self, fragments: &[&[u8]]) -> Result<(), Fault> {
        self.send_raw(&record_of(fragments))
    }

    /// Sends a call. Returns its identifier without waiting for the reply.
    pub fn send(&mut self, call: &Call) -> Result<u32, Fault> {
        let xid = self.xid();
        self.send_record(&call.encode(xid))?;
        Ok(xid)
    }

    /// Sends a call and waits for the reply. Returns the encoded results.
    pub fn call(&mut self, call: &Call) -> Result<Vec<u8>, Fault> {
        let xid = self.send(call)?;
        self.results(xid)
    }

    /// Waits for the reply to a call. Returns the encoded results.
    pub fn results(&mut self, xid: u32) -> Result<Vec<u8>, Fault> {
        let reply = self.reply(xid)?;
        results_of(&reply).map(<[u8]>::to_vec)
    }

    /// Waits for the reply to a call. Returns the whole record.
    pub fn reply(&mut self, xid: u32) -> Result<Vec<u8>, Fault> {
        loop {
            if let Some(reply) = self.replies.remove(&xid) {
                return Ok(reply);
            }
            self.sort_one()?;
        }
    }

    /// Waits for a call from the server. Returns the whole record.
    pub fn call_of_server(&mut self) -> Result<Vec<u8>, Fault> {
        loop {
            if let Some(call) = self.calls.pop_front() {
                return Ok(call);
            }
            self.sort_one()?;
        }
    }

    /// Receives one record, and stores it as a call or as a reply.
    fn sort_one(&mut self) -> Result<(), Fault> {
        let record = self.receive()?;
        let mut get = Get(&record);
        let (xid, kind) = (get.u32()?, get.u32()?);
        match kind {
            0 => self.calls.push_back(record),
            1 => drop(self.replies.insert(xid, record)),
            other => return Err(Fault::Reply(format!("has the type {other}"))),
        }
        Ok(())
    }

    /// Receives and returns the next record, which may be a call or a reply.
    pub fn receive(&mut self) -> Result<Vec<u8>, Fault> {
        let mut record = Vec::new();
        loop {
            let mut mark = [0; 4];
            self.receive_raw(&mut mark)?;
            let mark = u32::from_be_bytes(mark);
            let start = record.len();
            let end = start + (mark & !LAST) as usize;
            if end > RECORD_BYTES_MAX {
                return Err(Fault::Reply(format!("announces {end} bytes")));
            }
            record.resize(end, 0);
            self.receive_raw(&mut record[start..])?;
            if mark & LAST != 0 {
                return Ok(record);
            }
        }
    }

    /// Receives exactly as many bytes as the buffer has.
    pub fn receive_raw(&mut self, buffer: &mut [u8]) -> Result<(), Fault> {
        self.stream.read_exact(buffer).map_err(|error| self.fault(error))
    }

    /// Checks that the server closes the connection. The server may send bytes before that.
    pub fn ends(&mut self) -> Result<(), Fault> {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) => match self.fault(error) {
                    Fault::Closed => return Ok(()),
                    fault => return Err(fault),
                },
            }
        }
    }

    fn fault(&self, error: std::io::Error) -> Fault {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Fault::Hangs(self.patience_seconds),
            ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe => Fault::Closed,
            _ => Fault::Host(error),
        }
    }
}

/// Returns the bytes of a record: its fragments, each preceded by its mark.
#[must_use]
pub fn record_of(fragments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, fragment) in fragments.iter().enumerate() {
        let last = if index + 1 == fragments.len() { LAST } else { 0 };
        let length = u32::try_from(fragment.len()).unwrap_or(!LAST);
        bytes.extend((last | length).to_be_bytes());
        bytes.extend_from_slice(fragment);
    }
    bytes
}

/// Returns the encoded results in the record of a reply.
pub fn results_of(reply: &[u8]) -> Result<&[u8], Fault> {
    let mut get = Get(reply);
    let _xid = get.u32()?;
    if get.u32()? != 1 {
        return Err(Fault::Reply("is a call".into()));
    }
    match get.u32()? {
        0 => {}
        1 => {
            let status = get.u32()?;
            return Err(Fault::Denied { status, detail: numbers(&mut get)? });
        }
        other => return Err(Fault::Reply(format!("has the status {other}"))),
    }
    let (flavor, verifier) = (get.u32()?, get.opaque()?);
    if flavor == 0 && !verifier.is_empty() {
        return Err(Fault::Reply("has a verifier of no flavor with a body".into()));
    }
    match get.u32()? {
        0 => Ok(get.0),
        status => Err(Fault::NotDone { status, detail: numbers(&mut get)? }),
    }
}

fn numbers(get: &mut Get<'_>) -> Result<Vec<u32>, Fault> {
    let mut numbers = Vec::new();
    while !get.0.is_empty() {
        numbers.push(get.u32()?);
    }
    Ok(numbers)
}
