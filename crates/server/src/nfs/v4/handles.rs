//! The operations on file handles: PUTFH, PUTROOTFH, GETFH, SAVEFH, RESTOREFH, LOOKUP, LOOKUPP and
//! SECINFO.

use dafs_nfs_wire::nfs4::copy::{Flavor, SecInfoDone, SecInfoStyle};
use dafs_nfs_wire::nfs4::types::{FileHandle as Given, Name, check_name};
use dafs_nfs_wire::nfs4::{Answer, Reply, Status};
use dafs_nfs_wire::rpc::flavor;
use dafs_nfs_wire::xdr::{List, Opaque};
use dafs_store::StoreError;
use dafs_types::{FileHandle, ObjectType};

use super::compound::Service;
use super::convert::status_of;
use super::fault::{Result, failed};
use super::waiting::Did;
use crate::requests::handles;

impl Service<'_, '_, '_> {
    pub(super) fn put_root(&mut self) -> Result<Did> {
        let by = self.by()?;
        let root = by.store().root(&by).map_err(status_of)?;
        self.set_current(root.handle);
        self.push(&Answer::PutRootFh(Status::Ok))
    }

    pub(super) fn put_handle(&mut self, given: &Given<'_>) -> Result<Did> {
        let mut handle = FileHandle(given.0.try_into().map_err(|_| Status::BadHandle)?);
        handles::renew(&*self.reactor.shared.whole_store, &mut handle);
        let by = self.by()?;
        self.reactor.files().check_fence(&by, &handle).map_err(status_of)?;
        self.set_current(handle);
        self.push(&Answer::PutFh(Status::Ok))
    }

    pub(super) fn get_handle(&mut self) -> Result<Did> {
        let handle = self.current()?;
        self.push(&Answer::GetFh(Reply::Ok(Opaque(&handle.0))))
    }

    pub(super) fn save_handle(&mut self) -> Result<Did> {
        self.c.saved = Some(self.current()?);
        self.c.saved_state = self.c.current_state;
        self.push(&Answer::SaveFh(Status::Ok))
    }

    pub(super) fn restore_handle(&mut self) -> Result<Did> {
        let saved = self.saved()?;
        self.c.current = Some(saved);
        self.c.current_state = self.c.saved_state;
        self.push(&Answer::RestoreFh(Status::Ok))
    }

    pub(super) fn look_up(&mut self, name: &Name<'_>) -> Result<Did> {
        let found = self.found(name)?;
        self.set_current(found);
        self.push(&Answer::Lookup(Status::Ok))
    }

    /// Looks up a name in the current directory. Returns the handle of its object.
    fn found(&mut self, name: &Name<'_>) -> Result<FileHandle> {
        let directory = self.directory()?;
        let name = check_name(name, NAME_BYTES_MAX)?;
        let by = self.by()?;
        let found = match by.store().lookup(&by, &directory, name) {
            Ok(object) => object.handle,
            Err(StoreError::NotFound) if self.needs_tls(&directory, name)? => {
                return Err(Status::WrongSec);
            }
            Err(error) => return Err(failed(self.reactor, &directory, error)),
        };
        self.reactor.files().check_fence(&by, &found).map_err(status_of)?;
        Ok(found)
    }

    /// Returns true if a name in the root is that of exports which the client does not see because
    /// TLS does not protect its connection.
    fn needs_tls(&mut self, directory: &FileHandle, name: &[u8]) -> Result<bool> {
        if !self.reactor.shared.entrance.hides(name, &self.c.sender.peer) {
            return Ok(false);
        }
        let by = self.by()?;
        Ok(by.store().root(&by).map_err(status_of)?.handle == *directory)
    }

    pub(super) fn look_up_parent(&mut self) -> Result<Did> {
        let directory = self.directory()?;
        let by = self.by()?;
        let parent = match by.store().lookup_parent(&by, &directory) {
            Ok(object) => object.handle,
            Err(StoreError::NotFound) => return Err(Status::NoEnt),
            Err(error) => return Err(failed(self.reactor, &directory, error)),
        };
        self.set_current(parent);
        self.push(&Answer::LookupP(Status::Ok))
    }

    /// Returns the current file handle. Fails if its object is not a directory.
    pub(super) fn directory(&mut self) -> Result<FileHandle> {
        let directory = self.current()?;
        match self.kind_of(&directory)? {
            ObjectType::Directory | ObjectType::AttributeDirectory => Ok(directory),
            ObjectType::SymbolicLink => Err(Status::Symlink),
            _ => Err(Status::NotDir),
        }
    }

    /// Returns the type of an object.
    pub(super) fn kind_of(&mut self, handle: &FileHandle) -> Result<ObjectType> {
        let by = self.by()?;
        match self.reactor.files().attributes_of(&by, handle) {
            Ok(found) => Ok(found.kind),
            Err(error) => Err(failed(self.reactor, handle, error)),
        }
    }

    // ---- security ---------------------------------------------------------------------

    pub(super) fn security_of(&mut self, name: &Name<'_>) -> Result<Did> {
        match self.found(name) {
            // The client asks because of this status. The flavors do not depend on TLS.
            Err(Status::WrongSec) => {}
            found => drop(found?),
        }
        // The operation clears the current file handle (RFC 8881 section 2.6.3.1.1.8).
        self.c.current = None;
        self.push(&Answer::SecInfo(Reply::Ok(flavors())))
    }

    pub(super) fn security_of_current(&mut self, style: SecInfoStyle) -> Result<Did> {
        match style {
            SecInfoStyle::CurrentHandle => {
                self.current()?;
            }
            SecInfoStyle::Parent => {
                let directory = self.directory()?;
                let by = self.by()?;
                by.store().lookup_parent(&by, &directory).map_err(status_of)?;
            }
        }
        self.c.current = None;
        self.push(&Answer::SecInfoNoName(Reply::Ok(flavors())))
    }
}

/// Returns the authentication flavors that the server accepts: AUTH_SYS.
fn flavors() -> SecInfoDone<'static> {
    SecInfoDone { flavors: List(vec![Flavor::Other(flavor::SYS)]) }
}

/// The maximum length of a name in bytes.
pub(super) const NAME_BYTES_MAX: usize = 255;
