//! Access control lists in an attribute block (draft 6.1.4, attribute 22): a counted array of
//! {type, flag, mask, offset of who}, with offsets from the start of the array.
//!
//! Invariant: no more entries than the limit allows are read or stored, and all entries are checked
//! before the first one is stored.

use dafs_types::limits::{ACL_ENTRIES_MAX, ACL_WHO_BYTES_MAX};
use dafs_types::{Ace, AceFlags, AceKind, AceRights};

use crate::error::{DecodeError, EncodeError};
use crate::field::{numbered, read_enum};
use crate::order::Order;
use crate::scope::{Scope, Writer, offset_u32};

numbered! { AceKind = "kind of access control entry"; }

/// The number of bytes before the first entry: the count.
const BASE: usize = 4;
/// The size of one entry in bytes.
const ENTRY: usize = 16;

/// Checks that a list is complete, within the limit, and has only valid entries.
pub(super) fn check<O: Order>(block: Scope<'_, O>, at: usize) -> Result<(), DecodeError> {
    let (array, count) = array(block, at)?;
    (0..count).try_for_each(|index| entry(array, index).map(drop))
}

/// Decodes the list whose offset is stored at `at`.
pub(super) fn take<O: Order>(block: Scope<'_, O>, at: usize) -> Result<Vec<Ace>, DecodeError> {
    let (array, count) = array(block, at)?;
    (0..count)
        .map(|index| {
            let (kind, flags, rights, who) = entry(array, index)?;
            Ok(Ace { kind, flags, rights, who: who.to_owned() })
        })
        .collect()
}

/// Encodes a list and its offset.
pub(super) fn put<O: Order>(
    writer: &mut Writer<'_, O>,
    at: usize,
    list: &[Ace],
) -> Result<(), EncodeError> {
    if list.len() > ACL_ENTRIES_MAX {
        return Err(EncodeError::TooMany { what: "access control list" });
    }
    writer.variable(at, BASE + list.len() * ENTRY, |array| {
        array.put_u32(0, offset_u32(list.len())?)?;
        for (index, ace) in list.iter().enumerate() {
            let at = BASE + index * ENTRY;
            array.put_u32(at, ace.kind.number())?;
            array.put_u32(at + 4, ace.flags.0)?;
            array.put_u32(at + 8, ace.rights.0)?;
            array.bytes_at(at + 12, ace.who.as_bytes(), ACL_WHO_BYTES_MAX, "name in an entry")?;
        }
        Ok(())
    })
}

fn array<O: Order>(block: Scope<'_, O>, at: usize) -> Result<(Scope<'_, O>, usize), DecodeError> {
    let array = block.variable(at, "access control list")?;
    let count = array.u32(0)? as usize;
    if count > ACL_ENTRIES_MAX {
        return Err(DecodeError::TooMany { what: "access control list" });
    }
    array.require(BASE + count * ENTRY, "access control list")?;
    Ok((array, count))
}

type Entry<'a> = (AceKind, AceFlags, AceRights, &'a str);

fn entry<O: Order>(array: Scope<'_, O>, index: usize) -> Result<Entry<'_>, DecodeError> {
    let at = BASE + index * ENTRY;
    let who = array.bytes_at(at + 12, ACL_WHO_BYTES_MAX, "name in an entry")?;
    let who = std::str::from_utf8(who).map_err(|_| DecodeError::Utf8)?;
    Ok((read_enum(array, at)?, AceFlags(array.u32(at + 4)?), AceRights(array.u32(at + 8)?), who))
}
