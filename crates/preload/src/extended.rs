//! Extended attributes: `user.*`, as the named attributes of DAFS.
//!
//! Invariant: no other kind is there: the server keeps none. A value that finds no room leaves the
//! one before.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use dafs_client::{ChainFailure, ObjectType, OpenOptions, Outcome as Brought, SetAttributes};
use dafs_client::{Session, ShareAccess, Status};
use dafs_types::FileHandle;

use crate::errors::{Failure, Outcome, fail};
use crate::route::Place;
use crate::state::{Description, State};
use crate::waiting::{settle, wait};

/// What can have attributes.
pub struct Bearer {
    session: Session,
    handle: FileHandle,
    /// Links and what is no file have none of the user's.
    has_any: bool,
}

impl State {
    /// What is at a place.
    pub fn bearer(&mut self, place: &Place, follow: bool) -> Outcome<Bearer> {
        let object = self.object(place, follow)?;
        let kind = object.metadata.kind;
        let has_any = matches!(kind, ObjectType::Regular | ObjectType::Directory);
        Ok(Bearer { session: object.session, handle: object.metadata.handle, has_any })
    }

    /// What is open.
    pub fn bearer_of(&mut self, of: &Description) -> Outcome<Bearer> {
        of.must_be_open()?;
        let (session, _) = self.connection.mount(of.identity.mount)?;
        Ok(Bearer { session, handle: of.identity.handle, has_any: true })
    }
}

impl Bearer {
    /// The directory of the attributes.
    fn directory(&self) -> Outcome<FileHandle> {
        settle(&self.session.client(), self.session.attributes_of_async(self.handle, ""))
    }

    /// The value of an attribute.
    pub fn get(&self, name: &[u8]) -> Outcome<Vec<u8>> {
        let name = known(name)?;
        if !self.has_any {
            return fail(libc::ENODATA);
        }
        let (client, directory) = (self.session.client(), self.directory()?);
        let buffer = client.allocate(VALUE_BYTES_MAX)?;
        let value = buffer.slice(0, VALUE_BYTES_MAX)?;
        let chain = self.session.chain().at(directory).open(name, &OpenOptions::read());
        let brought = wait(&client, chain.read_into(0, value).close().run_async());
        let brought = brought.map_err(|failure| self.failed(failure))?;
        let moved = brought.iter().find_map(Brought::transferred);
        let Some(moved) = moved else { return fail(libc::EIO) };
        let mut value = vec![0; moved.length as usize];
        buffer.read(0, &mut value);
        Ok(value)
    }

    /// Gives an attribute a value.
    pub fn set(&self, name: &[u8], value: &[u8], flags: i32) -> Outcome<i32> {
        if flags & !(libc::XATTR_CREATE | libc::XATTR_REPLACE) != 0 {
            return fail(libc::EINVAL);
        }
        let name = known(name)?;
        if value.len() > VALUE_BYTES_MAX {
            return fail(libc::E2BIG);
        }
        if !self.has_any {
            return fail(libc::EPERM);
        }
        let directory = self.directory()?;
        // Made or replaced, and never either: what was made is taken away if it finds no room.
        loop {
            if flags & libc::XATTR_CREATE == 0 {
                match self.put(directory, name, value, false) {
                    Err(Failure::Errno(libc::ENODATA)) if flags & libc::XATTR_REPLACE == 0 => {}
                    done => return done.map(|()| 0),
                }
            }
            match self.put(directory, name, value, true) {
                Err(Failure::Errno(libc::EEXIST)) if flags & libc::XATTR_CREATE == 0 => {}
                done => return done.map(|()| 0),
            }
        }
    }

    fn put(&self, directory: FileHandle, name: &OsStr, value: &[u8], is_new: bool) -> Outcome<()> {
        let client = self.session.client();
        let buffer = client.allocate(value.len().max(1))?;
        buffer.write(0, value);
        let options = OpenOptions {
            access: ShareAccess::Write,
            create: is_new,
            create_new: is_new,
            ..OpenOptions::read()
        };
        let size = SetAttributes { size: Some(value.len() as u64), ..SetAttributes::default() };
        let mut chain = self.session.chain().at(directory).open(name, &options);
        if !value.is_empty() {
            chain = chain.write_from(0, buffer.slice(0, value.len())?);
        }
        let put = wait(&client, chain.setattr(&size).close().run_async());
        let Err(failure) = put else { return Ok(()) };
        let was_made = is_new && failure.member > 0;
        let failed = self.failed(failure);
        if was_made {
            let removing = self.session.chain().at(directory).remove(name).run_async();
            let _ = wait(&client, removing);
        }
        Err(failed)
    }

    /// The names of all attributes, each with a zero behind it.
    pub fn list(&self) -> Outcome<Vec<u8>> {
        let mut names = Vec::new();
        let directory = match self.directory() {
            Ok(directory) if self.has_any => directory,
            // What can have none has none.
            Ok(_) | Err(Failure::Errno(libc::EOPNOTSUPP)) => return Ok(names),
            Err(failure) => return Err(failure),
        };
        let listing = self.session.list_async(directory, "");
        for entry in settle(&self.session.client(), listing)? {
            names.extend_from_slice(USER_PREFIX);
            names.extend_from_slice(entry.name.as_bytes());
            names.push(0);
        }
        Ok(names)
    }

    /// Takes an attribute away.
    pub fn remove(&self, name: &[u8]) -> Outcome<i32> {
        let name = known(name)?;
        if !self.has_any {
            return fail(libc::EPERM);
        }
        let removing = self.session.chain().at(self.directory()?).remove(name).run_async();
        let removed = wait(&self.session.client(), removing);
        removed.map(|_| 0).map_err(|failure| self.failed(failure))
    }

    /// Why a chain about an attribute has failed. What it has left open is closed.
    fn failed(&self, failure: ChainFailure) -> Failure {
        if let Some(&Brought::Opened { file, state }) = failure.done.first() {
            // Dropping it closes it.
            drop(self.session.opened(file, state, ""));
        }
        match failure.error.status() {
            Some(Status::NoEnt) => Failure::Errno(libc::ENODATA),
            Some(Status::FBig) => Failure::Errno(libc::E2BIG),
            _ => failure.into(),
        }
    }
}

/// An attribute's name on the server, if it is of a kind that is kept there.
fn known(name: &[u8]) -> Outcome<&OsStr> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return fail(libc::ERANGE);
    }
    let Some(name) = name.strip_prefix(USER_PREFIX) else { return fail(libc::EOPNOTSUPP) };
    if name.is_empty() || name.contains(&b'/') || matches!(name, b"." | b"..") {
        return fail(libc::EINVAL);
    }
    Ok(OsStr::from_bytes(name))
}

const USER_PREFIX: &[u8] = b"user.";
/// Longest name and value that Linux has.
const NAME_BYTES_MAX: usize = 255;
const VALUE_BYTES_MAX: usize = 65_536;
