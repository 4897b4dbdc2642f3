//! The operations on file handles: PUTFH, PUTROOTFH, GETFH, SAVEFH, RESTOREFH, LOOKUP, LOOKUPP and
//! SECINFO.

use std::sync::Arc;

use dafs_files::caller::View;
use dafs_gss::KERBEROS_OID;
use dafs_nfs_wire::nfs4::copy::{Flavor, GssFlavor, SecInfoDone, SecInfoStyle};
use dafs_nfs_wire::nfs4::types::{FileHandle as Given, Name, check_name};
use dafs_nfs_wire::nfs4::{Answer, OperationKind, Reply, Status};
use dafs_nfs_wire::rpc::flavor;
use dafs_nfs_wire::rpc::gss::GssService;
use dafs_nfs_wire::xdr::{List, Opaque, Reader};
use dafs_store::StoreError;
use dafs_types::{FileHandle, ObjectType};

use super::compound::Service;
use super::convert::status_of;
use super::fault::{Result, failed};
use super::waiting::Did;
use crate::access::exports::flavors::Flavor as Own;
use crate::access::exports::rules::{NfsPeer, TransportSecurity};
use crate::requests::handles;

impl Service<'_, '_, '_> {
    pub(super) fn put_root(&mut self, rest: &[u8]) -> Result<Did> {
        let by = self.by()?;
        let root = match by.store().root(&by) {
            Ok(root) => root.handle,
            Err(error) => {
                let whole = self.view_of_all_flavors().ok_or_else(|| status_of(error))?;
                let root = whole.store.root(&by).map_err(status_of)?.handle;
                self.check_flavor(&root, rest)?;
                root
            }
        };
        self.set_current(root);
        self.push(&Answer::PutRootFh(Status::Ok))
    }

    pub(super) fn put_handle(&mut self, given: &Given<'_>, rest: &[u8]) -> Result<Did> {
        let mut handle = FileHandle(given.0.try_into().map_err(|_| Status::BadHandle)?);
        handles::renew(&*self.reactor.shared.whole_store, &mut handle);
        let by = self.by()?;
        self.reactor.files().check_fence(&by, &handle).map_err(status_of)?;
        self.check_flavor(&handle, rest)?;
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

    pub(super) fn look_up(&mut self, name: &Name<'_>, rest: &[u8]) -> Result<Did> {
        let found = match self.found(name) {
            Ok(found) => found,
            Err(Status::NoEnt) => {
                let peer = self.c.sender.peer.clone();
                let found = self.found_with_any_flavor(&peer, name)?;
                self.check_flavor(&found, rest)?;
                found
            }
            Err(status) => return Err(status),
        };
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

    /// Looks up a name in the current directory, as if the call had the flavor that the object
    /// needs. `peer` is the client.
    fn found_with_any_flavor(&mut self, peer: &NfsPeer, name: &Name<'_>) -> Result<FileHandle> {
        let directory = self.current()?;
        let by = self.by()?;
        let name = check_name(name, NAME_BYTES_MAX)?;
        let whole = self.reactor.shared.entrance.nfs_view(peer).ok_or(Status::NoEnt)?;
        whole.store.lookup(&by, &directory, name).map(|found| found.handle).map_err(status_of)
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
        let mut peer = self.c.sender.peer.clone();
        let found = match self.found(name) {
            Err(status @ (Status::NoEnt | Status::WrongSec)) => {
                // The client lacks TLS and asks because of this status. The flavors do not depend
                // on TLS.
                if status == Status::WrongSec {
                    peer.security = TransportSecurity::Mtls;
                }
                self.found_with_any_flavor(&peer, name)?
            }
            found => found?,
        };
        // The operation clears the current file handle (RFC 8881 section 2.6.3.1.1.8).
        self.c.current = None;
        let done = self.flavors_of(&peer, &found);
        self.push(&Answer::SecInfo(Reply::Ok(done)))
    }

    pub(super) fn security_of_current(&mut self, style: SecInfoStyle) -> Result<Did> {
        let about = match style {
            SecInfoStyle::CurrentHandle => self.current()?,
            SecInfoStyle::Parent => {
                let directory = self.directory()?;
                let by = self.by()?;
                by.store().lookup_parent(&by, &directory).map_err(status_of)?.handle
            }
        };
        self.c.current = None;
        let peer = self.c.sender.peer.clone();
        let done = self.flavors_of(&peer, &about);
        self.push(&Answer::SecInfoNoName(Reply::Ok(done)))
    }

    /// Returns the flavors with which the client may use an object, the preferred one first.
    fn flavors_of(&mut self, peer: &NfsPeer, handle: &FileHandle) -> SecInfoDone<'static> {
        let entrance = &mut self.reactor.shared.entrance;
        let found = entrance.flavors_of(peer, handle);
        let gss = |service| {
            let mechanism = Opaque(KERBEROS_OID);
            Flavor::Gss(GssFlavor { mechanism, quality: 0, service })
        };
        let shown = found.into_iter().map(|own| match own {
            Own::Sys => Flavor::Other(flavor::SYS),
            Own::Krb5 => gss(GssService::None),
            Own::Krb5i => gss(GssService::Integrity),
            Own::Krb5p => gss(GssService::Privacy),
        });
        SecInfoDone { flavors: List(shown.collect()) }
    }

    /// Returns the client's view of everything that it may see with any flavor.
    fn view_of_all_flavors(&mut self) -> Option<Arc<View>> {
        self.reactor.shared.entrance.nfs_view(&self.c.sender.peer)
    }

    /// Refuses an object if its export does not accept the flavor of the call, but another one. An
    /// operation that asks for the accepted flavors may follow (RFC 8881 section 2.6.3.1). `rest`
    /// is the encoding of the operations after the current one.
    fn check_flavor(&mut self, handle: &FileHandle, rest: &[u8]) -> Result<()> {
        if self.by()?.store().shows(handle) {
            return Ok(());
        }
        let next = Reader::new(rest).u32().ok().filter(|_| self.c.left > 0);
        let asks = [OperationKind::SecInfo, OperationKind::SecInfoNoName];
        let is_asked =
            next.and_then(OperationKind::from_number).is_some_and(|next| asks.contains(&next));
        let is_seen = self.view_of_all_flavors().is_some_and(|whole| whole.store.shows(handle));
        if is_seen && !is_asked { Err(Status::WrongSec) } else { Ok(()) }
    }
}

/// The maximum length of a name in bytes.
pub(super) const NAME_BYTES_MAX: usize = 255;
