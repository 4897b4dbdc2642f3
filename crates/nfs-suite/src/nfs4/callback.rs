//! Callbacks: the calls that a server of version 4.1 sends to its client.
//!
//! Invariant: every callback gets a reply, so that the server can use its slot again.

use super::StateId;
use super::attributes::get_bits;
use crate::fault::Fault;
use crate::rpc::Connection;
use crate::xdr::{Get, Put};

/// The RPC program number for callbacks that the suite's sessions name.
pub const PROGRAM: u32 = 0x4000_0000;

/// An operation in a callback from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields have the names of the RFC")]
pub enum Callback {
    /// CB_GETATTR: asks for attributes of a file of which the client holds a delegation.
    GetAttr { fh: Vec<u8>, wanted: Vec<u32> },
    /// CB_RECALL: asks the client to return a delegation.
    Recall { state: StateId, truncate: bool, fh: Vec<u8> },
    /// CB_RECALL_ANY: asks the client to return some of its delegations.
    RecallAny { keep: u32 },
    /// CB_RECALL_SLOT: states the highest slot that the client may use.
    RecallSlot { highest: u32 },
    /// CB_SEQUENCE: states the session, the sequence number and the slot of the callback.
    Sequence { id: [u8; 16], number: u32, slot: u32 },
    /// CB_NOTIFY_LOCK: reports that a lock may be available now.
    NotifyLock { fh: Vec<u8>, owner: Vec<u8> },
    /// CB_OFFLOAD: reports that a copy has ended.
    Offload { fh: Vec<u8>, state: StateId, status: u32 },
}

/// Waits for the next callback, replies to all of its operations with success, and returns them.
/// The reply to CB_GETATTR contains these encoded attributes.
pub fn answer(connection: &mut Connection, attributes: &[u8]) -> Result<Vec<Callback>, Fault> {
    loop {
        let record = connection.call_of_server()?;
        let (xid, callbacks) = parse(&record)?;
        let header = Put::new().u32(xid).u32(1).u32(0).u32(0).u32(0).u32(0);
        let Some((tag, callbacks)) = callbacks else {
            connection.send_record(&header.0)?;
            continue;
        };
        let put = header.u32(0).opaque(tag);
        let put = put.list(&callbacks, |put, callback| match callback {
            Callback::GetAttr { .. } => put.u32(3).u32(0).raw(attributes),
            Callback::Recall { .. } => put.u32(4).u32(0),
            Callback::RecallAny { .. } => put.u32(8).u32(0),
            Callback::RecallSlot { .. } => put.u32(10).u32(0),
            Callback::Sequence { id, number, slot } => {
                put.u32(11).u32(0).raw(id).u32(*number).u32(*slot).u32(*slot).u32(*slot)
            }
            Callback::NotifyLock { .. } => put.u32(13).u32(0),
            Callback::Offload { .. } => put.u32(15).u32(0),
        });
        connection.send_record(&put.0)?;
        return Ok(callbacks);
    }
}

/// Decodes a callback. Returns its identifier, and its tag and operations; these are `None` for
/// NULL.
#[allow(clippy::type_complexity, reason = "used once")]
fn parse(record: &[u8]) -> Result<(u32, Option<(Vec<u8>, Vec<Callback>)>), Fault> {
    let mut get = Get(record);
    let (xid, kind, rpc) = (get.u32()?, get.u32()?, get.u32()?);
    let (program, version, procedure) = (get.u32()?, get.u32()?, get.u32()?);
    if (kind, rpc, program, version) != (0, 2, PROGRAM, 1) {
        let text = format!("is a call of program {program} version {version}, not a callback");
        return Err(Fault::Reply(text));
    }
    for _ in 0..2 {
        get.u32()?;
        get.opaque()?;
    }
    if procedure == 0 {
        return Ok((xid, None));
    }
    let tag = get.opaque()?;
    let (_minor, _ident) = (get.u32()?, get.u32()?);
    let callbacks = get.list(operation)?;
    get.finish()?;
    Ok((xid, Some((tag, callbacks))))
}

fn operation(get: &mut Get<'_>) -> Result<Callback, Fault> {
    Ok(match get.u32()? {
        3 => Callback::GetAttr { fh: get.opaque()?, wanted: get_bits(get)? },
        4 => {
            let (state, truncate) = (StateId::get(get)?, get.bool()?);
            Callback::Recall { state, truncate, fh: get.opaque()? }
        }
        8 => {
            let keep = get.u32()?;
            get_bits(get)?;
            Callback::RecallAny { keep }
        }
        10 => Callback::RecallSlot { highest: get.u32()? },
        11 => {
            let (id, number, slot) = (get.array()?, get.u32()?, get.u32()?);
            let (_highest, _cached) = (get.u32()?, get.bool()?);
            get.list(|get| {
                get.raw(16)?;
                get.list(|get| get.raw(8).map(drop))
            })?;
            Callback::Sequence { id, number, slot }
        }
        13 => {
            let fh = get.opaque()?;
            get.u64()?;
            Callback::NotifyLock { fh, owner: get.opaque()? }
        }
        15 => {
            let (fh, state, status) = (get.opaque()?, StateId::get(get)?, get.u32()?);
            match status {
                0 => {
                    get.list(StateId::get)?;
                    get.raw(20)?;
                }
                _ => drop(get.u64()?),
            }
            Callback::Offload { fh, state, status }
        }
        other => return Err(Fault::Reply(format!("is a callback with operation {other}"))),
    })
}
