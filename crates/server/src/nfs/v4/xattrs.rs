//! The operations on extended attributes (RFC 8276): GETXATTR, SETXATTR, LISTXATTRS and
//! REMOVEXATTR.

use dafs_nfs_wire::nfs4::copy::{ListXattrsArgs, ListXattrsDone, SetXattrArgs, SetXattrMode};
use dafs_nfs_wire::nfs4::types::Name;
use dafs_nfs_wire::nfs4::{Answer, Reply, Status};
use dafs_nfs_wire::xdr::{List, Opaque};
use dafs_ops::{LIST_COUNT_MAX, ListXattrs, SetXattr, Xattr, XattrMode};

use super::compound::Service;
use super::convert::change;
use super::fault::{Result, not_done};
use super::waiting::Did;

impl Service<'_, '_, '_> {
    pub(super) fn get_xattr(&mut self, name: &Name<'_>) -> Result<Did> {
        let (by, ask) = (self.by()?, Xattr { file: self.current()?, name: name.0 });
        let found = self.reactor.files().xattr(&by, &ask);
        let value = found.map_err(|why| not_done(self.reactor, why))?;
        self.push(&Answer::GetXattr(Reply::Ok(Opaque(&value))))
    }

    pub(super) fn set_xattr(&mut self, asked: &SetXattrArgs<'_>) -> Result<Did> {
        let mode = xattr_mode_of(asked.mode);
        let (file, name, value) = (self.current()?, asked.name.0, asked.value.0);
        let by = self.by()?;
        let set = self.reactor.files().set_xattr(&by, &SetXattr { file, name, value, mode });
        let changed = set.map_err(|why| not_done(self.reactor, why))?;
        self.push(&Answer::SetXattr(Reply::Ok(change(changed))))
    }

    pub(super) fn list_xattrs(&mut self, asked: &ListXattrsArgs) -> Result<Did> {
        let room = u32::try_from(self.desk.writer.room()).unwrap_or(u32::MAX);
        let room = asked.bytes_max.min(room.saturating_sub(RESULT_HEAD_BYTES));
        let ask = ListXattrs {
            file: self.current()?,
            cookie: asked.cookie,
            count_max: LIST_COUNT_MAX as u32,
            name_bytes_max: room.checked_sub(LIST_HEAD_BYTES).ok_or(Status::TooSmall)?,
        };
        let by = self.by()?;
        let page = self.reactor.files().xattrs(&by, &ask);
        let page = page.map_err(|why| not_done(self.reactor, why))?;
        let names = List(page.names.iter().map(|name| Opaque(&name[..])).collect());
        let done = ListXattrsDone { cookie: page.cookie, names, is_end: page.is_end };
        self.push(&Answer::ListXattrs(Reply::Ok(done)))
    }

    pub(super) fn remove_xattr(&mut self, name: &Name<'_>) -> Result<Did> {
        let (by, ask) = (self.by()?, Xattr { file: self.current()?, name: name.0 });
        let removed = self.reactor.files().remove_xattr(&by, &ask);
        let changed = removed.map_err(|why| not_done(self.reactor, why))?;
        self.push(&Answer::RemoveXattr(Reply::Ok(change(changed))))
    }
}

/// Converts the conditions of SETXATTR.
pub(super) fn xattr_mode_of(asked: SetXattrMode) -> XattrMode {
    match asked {
        SetXattrMode::Either => XattrMode::Either,
        SetXattrMode::Create => XattrMode::Create,
        SetXattrMode::Replace => XattrMode::Replace,
    }
}

/// The number of bytes of a result before its own fields: operation number and status.
const RESULT_HEAD_BYTES: u32 = 8;
/// The number of bytes of the result of LISTXATTRS without names: cookie, number of names, and end.
const LIST_HEAD_BYTES: u32 = 16;
