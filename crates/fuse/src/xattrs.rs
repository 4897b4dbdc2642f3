//! Extended attributes. Attributes of `user.*` are the named attributes of DAFS.
//!
//! Invariant: attributes of other kinds do not exist, because the server stores none, so attributes
//! that affect permissions cannot be reached here. If a new value does not fit, the old value
//! stays.
//!
//! An attribute is a small file on the server, in a directory that belongs to its object. Each
//! operation is one chain: look up, open, transfer, close. The kernel serializes changes of an
//! object's attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use dafs_client::{Buffer, ChainFailure, OpenOptions, Outcome, SetAttributes};
use dafs_types::{FileHandle, ShareAccess, Status};
use dafs_wire::Request;
use dafs_wire::messages::OneHandle;

use crate::abi::Message;
use crate::attributes::last_metadata;
use crate::engine::{Engine, ErrnoResult, Reply};

impl Engine {
    pub(crate) async fn setxattr(
        self: Rc<Self>,
        node: u64,
        name: &[u8],
        value: Vec<u8>,
        flags: u32,
    ) -> ErrnoResult<Reply> {
        let name = known(name)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(E2BIG);
        }
        let handle = self.node(node)?.handle;
        let buffer = self.client.allocate(value.len().max(1)).map_err(|_| ENOMEM)?;
        buffer.write(0, &value);
        let (buffer, length) = (&buffer, value.len());
        // Request either to create or to replace the attribute, so that an attribute that was
        // created here can be removed if the value does not fit.
        loop {
            if flags & XATTR_CREATE == 0 {
                match self.put(handle, name, buffer, length, false).await {
                    Err(ENODATA) if flags & XATTR_REPLACE == 0 => {}
                    done => return done.map(|()| Reply::Done),
                }
            }
            match self.put(handle, name, buffer, length, true).await {
                Err(EEXIST) if flags & XATTR_CREATE == 0 => {}
                done => return done.map(|()| Reply::Done),
            }
        }
    }

    /// Writes the value of an attribute.
    async fn put(
        self: &Rc<Self>,
        object: FileHandle,
        name: &OsStr,
        buffer: &Buffer,
        length: usize,
        is_new: bool,
    ) -> ErrnoResult<()> {
        let options =
            OpenOptions::read().access(ShareAccess::Write).create(is_new).create_new(is_new);
        let size = SetAttributes { size: Some(length as u64), ..SetAttributes::default() };
        let (session, _) = self.session();
        let mut chain = session.chain().request(&directory_of(object)).open(name, &options);
        if length > 0 {
            let value = buffer.slice(0, length).map_err(|error| self.failed(&error))?;
            chain = chain.write_from(0, value);
        }
        let Err(failure) = chain.setattr(&size).close().run_async().await else { return Ok(()) };
        let was_made = is_new && failure.member > MADE;
        let errno = self.attribute_failed(failure);
        if was_made {
            let remove = session.chain().request(&directory_of(object)).remove(name);
            drop(remove.run_async().await);
        }
        Err(errno)
    }

    pub(crate) async fn getxattr(
        self: Rc<Self>,
        node: u64,
        name: &[u8],
        size: u32,
    ) -> ErrnoResult<Reply> {
        let name = known(name)?;
        let handle = self.node(node)?.handle;
        let (session, _) = self.session();
        let chain = session.chain().request(&directory_of(handle));
        if size == 0 {
            let found = chain.lookup(name).getattr().run_async().await;
            let found = found.map_err(|failure| self.attribute_failed(failure))?;
            return Ok(length_reply(last_metadata(found)?.size));
        }
        // One extra byte shows whether the value is longer.
        let room = VALUE_BYTES_MAX.min(size as usize) + 1;
        let buffer = self.client.allocate(room).map_err(|_| ENOMEM)?;
        let value = buffer.slice(0, room).map_err(|error| self.failed(&error))?;
        let chain = chain.open(name, &OpenOptions::read()).read_into(0, value).close();
        let outcomes = chain.run_async().await;
        let outcomes = outcomes.map_err(|failure| self.attribute_failed(failure))?;
        let moved = outcomes.iter().find_map(Outcome::transferred).ok_or(EIO)?;
        let length = moved.length as usize;
        if length > size as usize {
            return Err(ERANGE);
        }
        let mut value = vec![0; length];
        buffer.read(0, &mut value);
        Ok(Reply::Body(value))
    }

    pub(crate) async fn listxattr(self: Rc<Self>, node: u64, size: u32) -> ErrnoResult<Reply> {
        let handle = self.node(node)?.handle;
        let (session, _) = self.session();
        let directory = session.attributes_of_async(handle, "").await;
        let directory = match directory.map_err(|error| self.failed(&error)) {
            Ok(directory) => directory,
            // An object that cannot have attributes has none.
            Err(EOPNOTSUPP) => return Ok(list_reply(Vec::new(), size)),
            Err(errno) => return Err(errno),
        };
        let entries = session.list_async(directory, "").await;
        let entries = entries.map_err(|error| self.failed(&error))?;
        let mut names = Vec::new();
        for entry in entries {
            names.extend_from_slice(USER_PREFIX);
            names.extend_from_slice(entry.name.as_bytes());
            names.push(0);
        }
        if size != 0 && names.len() > size as usize {
            return Err(ERANGE);
        }
        Ok(list_reply(names, size))
    }

    pub(crate) async fn removexattr(self: Rc<Self>, node: u64, name: &[u8]) -> ErrnoResult<Reply> {
        let name = known(name)?;
        let handle = self.node(node)?.handle;
        let (session, _) = self.session();
        let removed = session.chain().request(&directory_of(handle)).remove(name).run_async().await;
        removed.map(|_| Reply::Done).map_err(|failure| self.attribute_failed(failure))
    }

    /// Returns the error number of a failed chain on an attribute. Closes the attribute if the
    /// chain left it open.
    fn attribute_failed(self: &Rc<Self>, failure: ChainFailure) -> i32 {
        if let Some(&Outcome::Opened { file, state }) = failure.done.get(MADE) {
            // Dropping the file closes it.
            drop(self.session().0.opened(file, state, ""));
        }
        match failure.error.status() {
            // NOENT means that the attribute is missing: the object was found before.
            Some(Status::NoEnt) if failure.member == MADE => ENODATA,
            Some(Status::FBig) => E2BIG,
            _ => self.failed(&failure.error),
        }
    }
}

/// Returns the request for an object's attribute directory, which begins a chain.
fn directory_of(object: FileHandle) -> Request<'static> {
    Request::OpenAttr(OneHandle { file: object })
}

/// Returns the server's name for an attribute. Fails if the server does not store this kind.
fn known(name: &[u8]) -> ErrnoResult<&OsStr> {
    let name = name.strip_prefix(USER_PREFIX).ok_or(EOPNOTSUPP)?;
    if name.is_empty() || name.contains(&b'/') || matches!(name, b"." | b"..") {
        return Err(EINVAL);
    }
    Ok(OsStr::from_bytes(name))
}

/// Returns a `struct fuse_getxattr_out` with the needed size.
fn length_reply(length: u64) -> Reply {
    let mut message = Message::default();
    message.u32(u32::try_from(length).unwrap_or(u32::MAX)).u32(0);
    Reply::Body(message.0)
}

fn list_reply(names: Vec<u8>, size: u32) -> Reply {
    if size == 0 { length_reply(names.len() as u64) } else { Reply::Body(names) }
}

/// The index of the chain's request that looks up or creates the attribute.
const MADE: usize = 1;
const USER_PREFIX: &[u8] = b"user.";
/// The maximum length in bytes of a value in Linux (`XATTR_SIZE_MAX`).
const VALUE_BYTES_MAX: usize = 65_536;
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
const EIO: i32 = 5;
const E2BIG: i32 = 7;
const ENOMEM: i32 = 12;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;
const ERANGE: i32 = 34;
const ENODATA: i32 = 61;
const EOPNOTSUPP: i32 = 95;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users_are_known_and_others_are_not() {
        assert_eq!(known(b"user.mime_type"), Ok(OsStr::new("mime_type")));
        assert_eq!(known(b"security.selinux"), Err(EOPNOTSUPP));
        assert_eq!(known(b"system.posix_acl_access"), Err(EOPNOTSUPP));
        assert_eq!(known(b"user."), Err(EINVAL));
        assert_eq!(known(b"user.a/b"), Err(EINVAL));
        assert_eq!(known(b"user.\xff"), Ok(OsStr::from_bytes(b"\xff")));
    }
}
