//! Attributes that clients set: decodes them into the form that operations on files need.

use std::sync::LazyLock;

use dafs_nfs_wire::nfs4::attribute_types::SetTime as Asked;
use dafs_nfs_wire::nfs4::attributes::{Use, attribute_row, number};
use dafs_nfs_wire::nfs4::{Attributes, Bitmap, Fattr, Status};
use dafs_types::{SetAttributes, SetTime, Timestamp};

use super::attributes::supported;
use super::fault::Result;

/// The attributes that a client sets.
pub(super) struct Settings {
    /// The attributes in the form that operations on files need.
    pub attributes: SetAttributes,
    /// The numbers of the attributes, which the reply contains.
    pub mask: Bitmap,
}

/// Decodes attributes that a client sets. `is_new` is true if they are the attributes of a new
/// object.
pub(super) fn settings_of(given: &Fattr<'_>, is_new: bool) -> Result<Settings> {
    for number in given.mask.iter() {
        let row = attribute_row(number).ok_or(Status::AttrNotSupp)?;
        if !supported().contains(number) {
            return Err(Status::AttrNotSupp);
        }
        if row.access == Use::Read {
            return Err(Status::Inval);
        }
    }
    let decoded = given.decode().map_err(|error| error.status())?;
    let Attributes { size, mode, owner, owner_group, time_access_set, time_modify_set, .. } =
        &decoded;
    if mode.is_some_and(|mode| mode & !MODE_BITS != 0) {
        return Err(Status::Inval);
    }
    if size.is_some_and(|size| size > i64::MAX as u64) {
        return Err(Status::FBig);
    }
    let mode = match (&decoded.mode_umask, is_new) {
        (Some(_), false) => return Err(Status::Inval),
        (Some(asked), true) => Some(asked.mode & !asked.umask & MODE_BITS),
        (None, _) => *mode,
    };
    let attributes = SetAttributes {
        mode,
        size: *size,
        owner: owner.as_ref().map(|owner| id_of(owner.0)).transpose()?,
        owner_group: owner_group.as_ref().map(|group| id_of(group.0)).transpose()?,
        time_access: time_access_set.as_ref().map(time_of),
        time_modify: time_modify_set.as_ref().map(time_of),
        ..SetAttributes::default()
    };
    Ok(Settings { attributes, mask: given.mask })
}

/// Returns the attributes that an exclusive creation can set. The times are not among them, because
/// the store may keep the verifier of the creation in them.
pub(super) fn of_exclusive_files() -> &'static Bitmap {
    static SETTABLE: LazyLock<Bitmap> = LazyLock::new(|| {
        Bitmap::of(&[
            number::size,
            number::mode,
            number::owner,
            number::owner_group,
            number::mode_umask,
        ])
    });
    &SETTABLE
}

/// Returns the attributes in which the store may keep the verifier of an exclusive creation.
pub(super) fn of_verifiers() -> &'static Bitmap {
    static TIMES: LazyLock<Bitmap> =
        LazyLock::new(|| Bitmap::of(&[number::time_access, number::time_modify]));
    &TIMES
}

/// Returns the numeric id of a user or group as decimal text. Clients with AUTH_SYS send ids as
/// text.
fn id_of(text: &[u8]) -> Result<String> {
    let text = std::str::from_utf8(text).map_err(|_| Status::BadOwner)?;
    let number: u32 = text.parse().map_err(|_| Status::BadOwner)?;
    Ok(number.to_string())
}

fn time_of(asked: &Asked) -> SetTime {
    match asked {
        Asked::ServerTime => SetTime::Server,
        Asked::ClientTime(time) => {
            SetTime::Client(Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds })
        }
    }
}

/// The bits of a mode that clients can set.
const MODE_BITS: u32 = 0o7777;
