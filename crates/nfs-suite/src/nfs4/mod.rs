//! A client of NFS versions 4.1 and 4.2 (RFC 8881, RFC 7862, RFC 8276).
//!
//! Invariant: an operation is encoded when it is created, so that a case can also create malformed
//! operations.

pub mod attributes;
pub mod callback;
pub mod ops;
pub mod results;
pub mod session;

use crate::fault::Fault;
use crate::rpc::{Auth, Call, Connection, results_of};
use crate::status;
use crate::xdr::{Get, Put};

pub use attributes::{Attrs, Set, Value};
pub use ops::Op;
pub use results::Body;
pub use session::Session;

/// The RPC program number of NFS, which is the same for version 3.
pub const PROGRAM: u32 = 100_003;

/// A state id: a sequence number and twelve bytes that identify the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StateId {
    /// The number of changes of the state so far.
    pub seqid: u32,
    /// The identity of the state, which only the server can interpret.
    pub other: [u8; 12],
}

/// The reply to a compound.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status of the last operation that was executed.
    pub status: u32,
    /// The tag of the compound.
    pub tag: Vec<u8>,
    /// The results of the operations that were executed.
    pub results: Vec<OpReply>,
}

/// The result of one operation.
#[derive(Clone, Debug)]
pub struct OpReply {
    /// The number of the operation.
    pub number: u32,
    /// The status of the operation.
    pub status: u32,
    /// The decoded results of the operation.
    pub body: Body,
}

impl StateId {
    /// The special state id with all bits zero: no open and no lock.
    pub const ANONYMOUS: Self = Self { seqid: 0, other: [0; 12] };
    /// The special state id with all bits one: a READ that ignores locks.
    pub const BYPASS: Self = Self { seqid: u32::MAX, other: [0xff; 12] };
    /// The special state id that stands for the one that the previous operation returned.
    pub const CURRENT: Self = Self { seqid: 1, other: [0; 12] };
    /// A state id that is always invalid.
    pub const INVALID: Self = Self { seqid: u32::MAX, other: [0; 12] };

    /// A state id that looks valid, and that no server has made.
    pub const UNKNOWN: Self = Self { seqid: 1, other: [9; 12] };

    /// Appends the encoding of the state id.
    #[must_use]
    pub fn put(&self, put: Put) -> Put {
        put.u32(self.seqid).raw(&self.other)
    }

    /// Decodes a state id.
    pub fn get(get: &mut Get<'_>) -> Result<Self, Fault> {
        Ok(Self { seqid: get.u32()?, other: get.array()? })
    }

    /// Returns the same state id with another sequence number.
    #[must_use]
    pub const fn at(self, seqid: u32) -> Self {
        Self { seqid, other: self.other }
    }
}

/// Encodes the arguments of a compound.
#[must_use]
pub fn compound(tag: &[u8], minor: u32, ops: &[Op]) -> Vec<u8> {
    let put = Put::new().opaque(tag).u32(minor);
    put.list(ops, |put, op| put.u32(op.number).raw(&op.arguments)).0
}

/// Returns the call of a compound.
#[must_use]
pub fn call_of(auth: &Auth, tag: &[u8], minor: u32, ops: &[Op]) -> Call {
    Call::new(PROGRAM, 4, 1, auth, compound(tag, minor, ops))
}

/// Sends a compound and decodes the reply. A status of failure is not an error.
pub fn run(
    connection: &mut Connection,
    auth: &Auth,
    minor: u32,
    ops: &[Op],
) -> Result<Reply, Fault> {
    let results = connection.call(&call_of(auth, b"", minor, ops))?;
    decode(&results)
}

/// Decodes the reply in a record.
pub fn decode_record(record: &[u8]) -> Result<Reply, Fault> {
    decode(results_of(record)?)
}

/// Decodes the results of a compound.
pub fn decode(results: &[u8]) -> Result<Reply, Fault> {
    let mut get = Get(results);
    let (status, tag, count) = (get.u32()?, get.opaque()?, get.u32()?);
    let mut results = Vec::new();
    for _ in 0..count {
        let (number, status) = (get.u32()?, get.u32()?);
        let body = results::body(number, status, &mut get)?;
        results.push(OpReply { number, status, body });
    }
    get.finish()?;
    let last = results.last().map_or(status, |result| result.status);
    if last != status {
        let (status, last) = (status::name(status), status::name(last));
        return Err(Fault::Reply(format!("has status {status}, its last operation {last}")));
    }
    Ok(Reply { status, tag, results })
}

impl Reply {
    /// Returns an error unless all operations have succeeded.
    pub fn all_ok(self) -> Result<Self, Fault> {
        match self.status {
            0 => Ok(self),
            status => Err(Fault::Status { what: self.last_name(), status, wcc: Vec::new() }),
        }
    }

    /// Returns the name of the last operation that was executed.
    #[must_use]
    pub fn last_name(&self) -> String {
        self.results.last().map_or_else(|| "COMPOUND".into(), |last| ops::name(last.number))
    }

    /// Returns the decoded results of one operation.
    pub fn body(&self, index: usize) -> Result<&Body, Fault> {
        let result = self.results.get(index);
        Ok(&result.ok_or_else(|| Fault::Reply(format!("has no result {index}")))?.body)
    }

    /// Returns the handle that GETFH returned.
    pub fn fh(&self, index: usize) -> Result<Vec<u8>, Fault> {
        match self.body(index)? {
            Body::Fh(fh) => Ok(fh.clone()),
            other => Err(Fault::Reply(format!("has {other:?} for a handle"))),
        }
    }

    /// Returns the attributes that GETATTR returned.
    pub fn attrs(&self, index: usize) -> Result<&Attrs, Fault> {
        match self.body(index)? {
            Body::Attrs(attrs) => Ok(attrs),
            other => Err(Fault::Reply(format!("has {other:?} for attributes"))),
        }
    }

    /// Returns the state id that an operation returned.
    pub fn state(&self, index: usize) -> Result<StateId, Fault> {
        match self.body(index)? {
            Body::State(state) => Ok(*state),
            Body::Open(open) => Ok(open.state),
            other => Err(Fault::Reply(format!("has {other:?} for a state id"))),
        }
    }

    /// Returns the end-of-file flag and the data that READ returned.
    pub fn data(&self, index: usize) -> Result<(bool, &[u8]), Fault> {
        match self.body(index)? {
            Body::Data { eof, data } => Ok((*eof, data)),
            other => Err(Fault::Reply(format!("has {other:?} for data"))),
        }
    }
}
