//! Decides which data of a call and of its reply travels in chunks.

use dafs_nfs_wire::nfs3::{self, NFS3};
use dafs_nfs_wire::nfs4::{self, CallReader, NFS4, Operation};
use dafs_nfs_wire::rpc::{Target, decode_call};
use dafs_nfs_wire::xdr::{Opaque, Place, Reader, Xdr, padding};
use dafs_rpcrdma::binding::{ReplySize, call_items, nfs3_reply_size, nfs4_reply_size};

/// How a call and its reply travel.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// What the call asks for. `None` if it cannot be decoded.
    pub(crate) target: Option<Target>,
    /// The data of the call that is in a Read chunk.
    pub(crate) read: Option<Place>,
    /// The lengths of the Write chunks.
    pub(crate) writes: Vec<usize>,
    /// The length of the Reply chunk. `None` if there is none.
    pub(crate) reply: Option<usize>,
}

impl Plan {
    /// Plans a call. `inline` is the number of bytes for which a Send has room.
    pub(crate) fn new(rpc: &[u8], inline: usize) -> Self {
        let mut plan = Self::default();
        if rpc.len() > inline {
            plan.read = call_items(Reader::new(rpc)).into_iter().max_by_key(|item| item.length);
        }
        let mut reader = Reader::new(rpc);
        if let Ok(call) = decode_call(&mut reader) {
            let (program, version, procedure) = (call.program, call.version, call.procedure);
            plan.target = Some(Target { program, version, procedure });
            // The size of a reply with a checksum, or encrypted, is not computed.
            if call.credential.flavor < FLAVOR_GSS
                && let Some(size) = size_of(program, version, procedure, reader)
            {
                let chunks = size.write_chunks(inline as u64).iter();
                plan.writes = chunks.map(|bytes| bounded(*bytes)).collect();
                plan.reply = size.reply_chunk(inline as u64).map(bounded);
                return plan;
            }
        }
        plan.reply = Some(UNKNOWN_BYTES);
        plan
    }

    /// Returns the call without the data that is in a Read chunk.
    pub(crate) fn rest(&self, rpc: &[u8]) -> Vec<u8> {
        let Some(Place { start, length }) = self.read else { return rpc.to_vec() };
        let after = (start + length + padding(length)).min(rpc.len());
        [&rpc[..start], &rpc[after..]].concat()
    }
}

/// Returns the maximum size of the reply to a call of NFS. `None` if the arguments cannot be
/// decoded.
fn size_of(program: u32, version: u32, procedure: u32, reader: Reader<'_>) -> Option<ReplySize> {
    if (program, version) == (NFS3.number, NFS3.version) {
        let procedure = nfs3::Procedure::from_number(procedure)?;
        let arguments = nfs3::Arguments::decode(procedure, &mut reader.clone()).ok()?;
        return Some(nfs3_reply_size(&arguments));
    }
    if (program, version, procedure) != (NFS4.number, NFS4.version, COMPOUND) {
        return None;
    }
    let tag = Opaque::<'_, { nfs4::limits::TAG_BYTES_MAX }>::decode(&mut reader.clone()).ok()?;
    let mut calls = CallReader::<Operation<'_>>::new(reader).ok()?;
    let mut operations = Vec::new();
    while let Some(operation) = calls.next_call() {
        operations.push(operation.ok()?);
    }
    Some(nfs4_reply_size(tag.0.len(), operations.iter(), REPLY_BYTES_MAX))
}

fn bounded(bytes: u64) -> usize {
    usize::try_from(bytes.min(REPLY_BYTES_MAX)).unwrap_or(usize::MAX)
}

/// The number of the procedure COMPOUND of NFSv4.
const COMPOUND: u32 = nfs4::compound::Procedure::Compound.number();
/// The first flavor by which replies may be protected (RPCSEC_GSS).
const FLAVOR_GSS: u32 = 6;
/// The length of the Reply chunk for a reply of unknown size, in bytes.
const UNKNOWN_BYTES: usize = REPLY_BYTES_MAX as usize;
/// The maximum length of a reply in bytes.
const REPLY_BYTES_MAX: u64 = (1 << 20) + (64 << 10);
