//! The decoded results of operations.
//!
//! Invariant: an operation that is not listed here has no results besides its status.

use super::StateId;
use super::attributes::{Attrs, get_bits};
use super::ops::{self, Channel};
use crate::fault::Fault;
use crate::status;
use crate::xdr::Get;

/// The change attribute of a directory before and after an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// True if no other change of the directory can have occurred between the two values.
    pub atomic: bool,
    /// The value before the operation.
    pub before: u64,
    /// The value after the operation.
    pub after: u64,
}

/// The decoded results of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields have the names of the RFC")]
pub enum Body {
    /// No results besides the status.
    Nothing,
    /// ACCESS: the rights that the server is able to check, and the rights that the caller has.
    Access { supported: u32, granted: u32 },
    /// The state id that the operation returned.
    State(StateId),
    /// LOCK or LOCKT: the lock with which the request conflicts.
    Denied { offset: u64, length: u64, kind: u32, owner: Vec<u8> },
    /// COMMIT: the write verifier.
    Verifier([u8; 8]),
    /// CREATE: the change of the directory, and the numbers of the attributes that were set.
    Created(Change, Vec<u32>),
    /// GETATTR: the attributes of the object.
    Attrs(Attrs),
    /// GETFH: the current file handle.
    Fh(Vec<u8>),
    /// The change of one directory, or of the extended attributes of an object.
    Change(Change),
    /// RENAME: the changes of both directories.
    Changes(Change, Change),
    /// OPEN: the open, and the delegation that comes with it.
    Open(Opened),
    /// READ: the end-of-file flag and the data.
    Data { eof: bool, data: Vec<u8> },
    /// READDIR: one page of entries.
    Page(Page),
    /// Bytes, such as the target of a link or the value of an extended attribute.
    Bytes(Vec<u8>),
    /// SECINFO: the numbers of the security flavors.
    Flavors(Vec<u32>),
    /// The numbers in a bitmap: attributes that were set, or hints that the server uses.
    Bits(Vec<u32>),
    /// WRITE: the number of bytes written, their stability, and the write verifier.
    Written { count: u32, committed: u32, verifier: [u8; 8] },
    /// EXCHANGE_ID: the client id and the server's identity.
    Client(Client),
    /// CREATE_SESSION: the new session.
    Created41(Created),
    /// BIND_CONN_TO_SESSION: the session, and the direction of the connection.
    Bound { id: [u8; 16], direction: u32 },
    /// SEQUENCE: the slots that the client may use, and flags about its state.
    Sequence(Sequence),
    /// TEST_STATEID: the status of each state id.
    Statuses(Vec<u32>),
    /// GET_DIR_DELEGATION: the state id of the delegation; `None` if none was granted.
    DirDelegation(Option<StateId>),
    /// WANT_DELEGATION: the delegation.
    Delegation(Delegation),
    /// SEEK: the end-of-file flag, and the offset that was found.
    Found { eof: bool, offset: u64 },
    /// READ_PLUS: the end-of-file flag, and the parts of the range.
    Parts { eof: bool, parts: Vec<Part> },
    /// COPY: the state id of a copy that continues, the number of bytes, and the way of copying.
    Copied { callback: Option<StateId>, count: u64, consecutive: bool, synchronous: bool },
    /// OFFLOAD_STATUS: the number of bytes copied, and the status if the copy has ended.
    Offload { count: u64, complete: Option<u32> },
    /// LISTXATTRS: the cookie, the names, and the end-of-list flag.
    Names { cookie: u64, names: Vec<Vec<u8>>, eof: bool },
    /// An integer: the number of bytes that are needed, or of seconds to wait.
    Number(u32),
}

/// A part of the results of READ_PLUS: offset, length, and the data (`None` for a hole).
pub type Part = (u64, u64, Option<Vec<u8>>);

/// The results of OPEN.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields have the names of the RFC")]
pub struct Opened {
    pub state: StateId,
    pub change: Change,
    pub flags: u32,
    pub attrs: Vec<u32>,
    pub delegation: Delegation,
}

/// The delegation that a server grants together with an open.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields have the names of the RFC")]
pub enum Delegation {
    /// No delegation was granted.
    None,
    /// A delegation for reading.
    Read(StateId),
    /// A delegation for writing.
    Write(StateId),
    /// No delegation was granted; the integer is the reason.
    Refused(u32),
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields have the names of the RFC")]
pub struct Page {
    pub verifier: [u8; 8],
    pub entries: Vec<(u64, Vec<u8>, Attrs)>,
    pub eof: bool,
    /// The length of the encoded results in bytes.
    pub bytes: usize,
}

/// The results of EXCHANGE_ID.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields have the names of the RFC")]
pub struct Client {
    pub id: u64,
    pub sequence: u32,
    pub flags: u32,
    /// The operations that need the credential of the client's machine, and those for which it
    /// suffices. `None` if the state of the client is not protected.
    pub protected: Option<[Vec<u32>; 2]>,
    pub server_major: Vec<u8>,
    pub scope: Vec<u8>,
}

/// The results of CREATE_SESSION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields have the names of the RFC")]
pub struct Created {
    pub id: [u8; 16],
    pub sequence: u32,
    pub flags: u32,
    pub fore: Channel,
    pub back: Channel,
}

/// The results of SEQUENCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields have the names of the RFC")]
pub struct Sequence {
    pub id: [u8; 16],
    pub number: u32,
    pub slot: u32,
    pub highest: u32,
    pub target: u32,
    pub flags: u32,
}

/// Decodes the results of an operation.
pub fn body(number: u32, status: u32, get: &mut Get<'_>) -> Result<Body, Fault> {
    // The reply to a failed SETATTR also contains the attributes that were set.
    if number == ops::SETATTR {
        return Ok(Body::Bits(get_bits(get)?));
    }
    if status != 0 {
        return of_failure(number, status, get);
    }
    Ok(match number {
        ops::ACCESS => Body::Access { supported: get.u32()?, granted: get.u32()? },
        ops::CLOSE | ops::LOCK | ops::LOCKU | ops::OPEN_DOWNGRADE => {
            Body::State(StateId::get(get)?)
        }
        ops::COMMIT => Body::Verifier(get.array()?),
        ops::CREATE => Body::Created(change(get)?, get_bits(get)?),
        ops::GETATTR => Body::Attrs(Attrs::get(get)?),
        ops::GETFH => Body::Fh(get.opaque()?),
        ops::LINK | ops::REMOVE | ops::SETXATTR | ops::REMOVEXATTR => Body::Change(change(get)?),
        ops::RENAME => Body::Changes(change(get)?, change(get)?),
        ops::OPEN => Body::Open(opened(get)?),
        ops::READ => Body::Data { eof: get.bool()?, data: get.opaque()? },
        ops::READDIR => Body::Page(page(get)?),
        ops::READLINK | ops::GETXATTR => Body::Bytes(get.opaque()?),
        ops::SECINFO | ops::SECINFO_NO_NAME => Body::Flavors(get.list(flavor)?),
        ops::WRITE => {
            let (count, committed) = (get.u32()?, get.u32()?);
            Body::Written { count, committed, verifier: get.array()? }
        }
        ops::EXCHANGE_ID => Body::Client(client(get)?),
        ops::CREATE_SESSION => Body::Created41(created(get)?),
        ops::BIND_CONN_TO_SESSION => {
            let (id, direction) = (get.array()?, get.u32()?);
            get.bool()?;
            Body::Bound { id, direction }
        }
        ops::SEQUENCE => Body::Sequence(Sequence {
            id: get.array()?,
            number: get.u32()?,
            slot: get.u32()?,
            highest: get.u32()?,
            target: get.u32()?,
            flags: get.u32()?,
        }),
        ops::TEST_STATEID => Body::Statuses(get.list(Get::u32)?),
        ops::GET_DIR_DELEGATION => Body::DirDelegation(dir_delegation(get)?),
        ops::WANT_DELEGATION => Body::Delegation(delegation(get)?),
        ops::IO_ADVISE => Body::Bits(get_bits(get)?),
        ops::SEEK => Body::Found { eof: get.bool()?, offset: get.u64()? },
        ops::READ_PLUS => Body::Parts { eof: get.bool()?, parts: get.list(part)? },
        ops::COPY => {
            let callback = get.list(StateId::get)?.first().copied();
            let count = get.u64()?;
            let (_committed, _verifier) = (get.u32()?, get.u64()?);
            Body::Copied { callback, count, consecutive: get.bool()?, synchronous: get.bool()? }
        }
        ops::OFFLOAD_STATUS => {
            let count = get.u64()?;
            Body::Offload { count, complete: get.list(Get::u32)?.first().copied() }
        }
        ops::LISTXATTRS => {
            let (cookie, names) = (get.u64()?, get.list(Get::opaque)?);
            Body::Names { cookie, names, eof: get.bool()? }
        }
        _ => Body::Nothing,
    })
}

fn of_failure(number: u32, status: u32, get: &mut Get<'_>) -> Result<Body, Fault> {
    Ok(match (number, status) {
        (ops::LOCK | ops::LOCKT, status::DENIED) => {
            let (offset, length, kind, _client) = (get.u64()?, get.u64()?, get.u32()?, get.u64()?);
            Body::Denied { offset, length, kind, owner: get.opaque()? }
        }
        (ops::GETDEVICEINFO, status::TOOSMALL) => Body::Number(get.u32()?),
        (ops::LAYOUTGET, status::LAYOUTTRYLATER) => Body::Number(u32::from(get.bool()?)),
        (ops::COPY, status::OFFLOAD_NO_REQS) => {
            let (consecutive, synchronous) = (get.bool()?, get.bool()?);
            Body::Copied { callback: None, count: 0, consecutive, synchronous }
        }
        _ => Body::Nothing,
    })
}

fn change(get: &mut Get<'_>) -> Result<Change, Fault> {
    Ok(Change { atomic: get.bool()?, before: get.u64()?, after: get.u64()? })
}

fn opened(get: &mut Get<'_>) -> Result<Opened, Fault> {
    Ok(Opened {
        state: StateId::get(get)?,
        change: change(get)?,
        flags: get.u32()?,
        attrs: get_bits(get)?,
        delegation: delegation(get)?,
    })
}

fn delegation(get: &mut Get<'_>) -> Result<Delegation, Fault> {
    let kind = get.u32()?;
    match kind {
        0 => Ok(Delegation::None),
        1 | 4 => {
            let state = StateId::get(get)?;
            get.bool()?;
            ace(get)?;
            Ok(Delegation::Read(state))
        }
        2 | 5 => {
            let state = StateId::get(get)?;
            get.bool()?;
            match get.u32()? {
                1 | 2 => get.u64()?,
                other => return Err(Fault::Reply(format!("has the space limit {other}"))),
            };
            ace(get)?;
            Ok(Delegation::Write(state))
        }
        3 => {
            let why = get.u32()?;
            if matches!(why, 1 | 2) {
                get.bool()?;
            }
            Ok(Delegation::Refused(why))
        }
        other => Err(Fault::Reply(format!("has the delegation type {other}"))),
    }
}

fn ace(get: &mut Get<'_>) -> Result<(), Fault> {
    get.raw(12)?;
    get.opaque()?;
    Ok(())
}

fn dir_delegation(get: &mut Get<'_>) -> Result<Option<StateId>, Fault> {
    if get.u32()? != 0 {
        get.bool()?;
        return Ok(None);
    }
    get.u64()?;
    let state = StateId::get(get)?;
    for _ in 0..3 {
        get_bits(get)?;
    }
    Ok(Some(state))
}

fn page(get: &mut Get<'_>) -> Result<Page, Fault> {
    let bytes = get.0.len();
    let verifier = get.array()?;
    let entries = get.chain(|get| Ok((get.u64()?, get.opaque()?, Attrs::get(get)?)))?;
    let eof = get.bool()?;
    Ok(Page { verifier, entries, eof, bytes: bytes - get.0.len() })
}

fn flavor(get: &mut Get<'_>) -> Result<u32, Fault> {
    let flavor = get.u32()?;
    if flavor == 6 {
        get.opaque()?;
        get.raw(8)?;
    }
    Ok(flavor)
}

fn client(get: &mut Get<'_>) -> Result<Client, Fault> {
    let (id, sequence, flags) = (get.u64()?, get.u32()?, get.u32()?);
    let protected = match get.u32()? {
        0 => None,
        1 => Some([get_bits(get)?, get_bits(get)?]),
        other => return Err(Fault::Reply(format!("protects state by {other}"))),
    };
    let (_minor, server_major, scope) = (get.u64()?, get.opaque()?, get.opaque()?);
    get.list(|get| {
        get.opaque()?;
        get.opaque()?;
        get.raw(12).map(drop)
    })?;
    Ok(Client { id, sequence, flags, protected, server_major, scope })
}

fn channel(get: &mut Get<'_>) -> Result<Channel, Fault> {
    let channel = Channel {
        header_pad: get.u32()?,
        request_max: get.u32()?,
        response_max: get.u32()?,
        cached_max: get.u32()?,
        operations: get.u32()?,
        requests: get.u32()?,
    };
    get.list(Get::u32)?;
    Ok(channel)
}

fn created(get: &mut Get<'_>) -> Result<Created, Fault> {
    let (id, sequence, flags) = (get.array()?, get.u32()?, get.u32()?);
    Ok(Created { id, sequence, flags, fore: channel(get)?, back: channel(get)? })
}

fn part(get: &mut Get<'_>) -> Result<Part, Fault> {
    match get.u32()? {
        0 => {
            let (offset, data) = (get.u64()?, get.opaque()?);
            Ok((offset, data.len() as u64, Some(data)))
        }
        1 => Ok((get.u64()?, get.u64()?, None)),
        other => Err(Fault::Reply(format!("has the content {other}"))),
    }
}
