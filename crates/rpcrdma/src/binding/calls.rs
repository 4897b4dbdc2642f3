//! The eligible data of calls.
//!
//! Invariant: a Read chunk is accepted only if it contains exactly one eligible item of its call,
//! with or without its padding.

use dafs_nfs_wire::nfs3;
use dafs_nfs_wire::nfs4::directory::CreateKind;
use dafs_nfs_wire::nfs4::{CallReader, Operation};
use dafs_nfs_wire::rpc::gss::{GssCredential, GssProcedure, GssService};
use dafs_nfs_wire::rpc::{Call, Credential, decode_call};
use dafs_nfs_wire::xdr::{Place, Reader, padding};

use super::{COMPOUND, Protocol};
use crate::server::IncomingCall;

/// A Read chunk of a call does not contain an eligible item. The call is refused with ERR_CHUNK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("a Read chunk of the call contains data that is not eligible")]
pub struct BindingFault;

/// Checks that each Read chunk of a call contains an eligible item. `fetched` is the call's buffer.
///
/// # Errors
/// If a Read chunk contains other data, so that the call must be refused.
pub fn check_call(call: &IncomingCall, fetched: &[u8]) -> Result<(), BindingFault> {
    if call.chunks().is_empty() {
        return Ok(());
    }
    // Only the data of a WRITE can be skipped. Other items are decoded with the call, which is then
    // assembled.
    let fast = call.reader(fetched).map(call_items);
    if fast.is_some_and(|items| are_items(call.chunks(), &items)) {
        return Ok(());
    }
    check_assembled(call, &call.assemble(fetched))
}

/// Checks that each Read chunk of a call contains an eligible item. `whole` is the whole call, as
/// [`IncomingCall::assemble`] returns it.
///
/// # Errors
/// If a Read chunk contains other data, so that the call must be refused.
pub fn check_assembled(call: &IncomingCall, whole: &[u8]) -> Result<(), BindingFault> {
    if call.chunks().is_empty() || are_items(call.chunks(), &call_items(Reader::new(whole))) {
        return Ok(());
    }
    Err(BindingFault)
}

/// Returns the eligible items of a call, up to the first argument that cannot be decoded.
#[must_use]
pub fn call_items(mut reader: Reader<'_>) -> Vec<Place> {
    let mut items = Vec::new();
    let Ok(call) = decode_call(&mut reader) else { return items };
    if wraps_arguments(&call) {
        return items;
    }
    match Protocol::of(call.program, call.version) {
        Some(Protocol::Nfs3) => items.extend(nfs3_item(call.procedure, reader)),
        Some(Protocol::Nfs4) if call.procedure == COMPOUND => nfs4_items(reader, &mut items),
        Some(Protocol::Nfs4) | None => {}
    }
    items
}

fn nfs3_item(procedure: u32, mut reader: Reader<'_>) -> Option<Place> {
    let procedure = nfs3::Procedure::from_number(procedure)?;
    match nfs3::Arguments::decode(procedure, &mut reader).ok()? {
        nfs3::Arguments::Write(arguments) => Some(last(&reader, arguments.data.length())),
        nfs3::Arguments::SymLink(arguments) => Some(last(&reader, arguments.link.target.len())),
        _ => None,
    }
}

fn nfs4_items(reader: Reader<'_>, items: &mut Vec<Place>) {
    let Ok(mut calls) = CallReader::<Operation<'_>>::new(reader) else { return };
    loop {
        let start = calls.reader().position();
        let Some(Ok(operation)) = calls.next_call() else { return };
        match operation {
            Operation::Write(arguments) => {
                items.push(last(calls.reader(), arguments.data.length()));
            }
            Operation::Create(arguments) => {
                if let CreateKind::SymbolicLink(text) = arguments.kind {
                    // After the numbers of the operation and of the type, and the length.
                    items.push(Place { start: start + 12, length: text.len() });
                }
            }
            _ => {}
        }
    }
}

/// Returns the location of an item that was decoded last.
fn last(reader: &Reader<'_>, length: usize) -> Place {
    Place { start: reader.position().saturating_sub(length + padding(length)), length }
}

fn are_items(chunks: &[Place], items: &[Place]) -> bool {
    let is_item = |chunk: &Place| {
        let fits = |item: &Place| {
            let padded = item.length + padding(item.length);
            item.start == chunk.start && (chunk.length == item.length || chunk.length == padded)
        };
        items.iter().any(fits)
    };
    chunks.iter().all(is_item)
}

/// Returns true if the arguments of a call are encrypted or protected by a checksum.
fn wraps_arguments(call: &Call<'_>) -> bool {
    match call.credential.credential() {
        Ok(Credential::Gss(GssCredential::Version1(gss))) => {
            gss.procedure != GssProcedure::Data || gss.service != GssService::None
        }
        Ok(_) => false,
        Err(_) => true,
    }
}
