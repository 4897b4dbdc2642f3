//! A client of MOUNT version 3 (RFC 1813 appendix I).

use crate::fault::Fault;
use crate::nfs3::Fh;
use crate::rpc::{Auth, Call, Connection};
use crate::xdr::{Get, Put};

/// The RPC program number of MOUNT.
pub const PROGRAM: u32 = 100_005;

/// A client of the mount service.
#[derive(Debug)]
pub struct Mount {
    /// The connection to the service.
    pub connection: Connection,
    /// The credential with which all calls are sent.
    pub auth: Auth,
}

/// The results of a successful MNT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// The handle of the directory.
    pub fh: Fh,
    /// The authentication flavors that the server accepts.
    pub flavors: Vec<u32>,
}

/// The name of a host and the path that it has mounted.
pub type Mounter = (Vec<u8>, Vec<u8>);

/// An export, and the groups of hosts that may mount it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The path of the directory.
    pub path: Vec<u8>,
    /// The groups of hosts that may mount the directory; empty if all hosts may.
    pub groups: Vec<Vec<u8>>,
}

impl Mount {
    /// Calls a procedure with encoded arguments.
    pub fn raw(&mut self, procedure: u32, arguments: Vec<u8>) -> Result<Vec<u8>, Fault> {
        self.connection.call(&Call::new(PROGRAM, 3, procedure, &self.auth, arguments))
    }

    /// Calls NULL, which does nothing.
    pub fn null(&mut self) -> Result<(), Fault> {
        Get(&self.raw(0, Vec::new())?).finish()
    }

    /// Calls MNT. Returns the handle of the directory with this path.
    pub fn mnt(&mut self, path: impl AsRef<[u8]>) -> Result<Mounted, Fault> {
        let results = self.raw(1, Put::new().opaque(path).0)?;
        let mut get = Get(&results);
        let status = get.u32()?;
        if status != 0 {
            get.finish()?;
            return Err(Fault::Status { what: "MNT".into(), status, wcc: Vec::new() });
        }
        let mounted = Mounted { fh: get.opaque()?, flavors: get.list(Get::u32)? };
        get.finish()?;
        Ok(mounted)
    }

    /// Calls DUMP. Returns the hosts that have mounted directories, and the paths.
    pub fn dump(&mut self) -> Result<Vec<Mounter>, Fault> {
        let results = self.raw(2, Vec::new())?;
        let mut get = Get(&results);
        let entries = get.chain(|get| Ok((get.opaque()?, get.opaque()?)))?;
        get.finish()?;
        Ok(entries)
    }

    /// Calls UMNT for one path.
    pub fn umnt(&mut self, path: impl AsRef<[u8]>) -> Result<(), Fault> {
        Get(&self.raw(3, Put::new().opaque(path).0)?).finish()
    }

    /// Calls UMNTALL for all paths.
    pub fn umntall(&mut self) -> Result<(), Fault> {
        Get(&self.raw(4, Vec::new())?).finish()
    }

    /// Calls EXPORT. Returns the list of exports.
    pub fn export(&mut self) -> Result<Vec<Export>, Fault> {
        let results = self.raw(5, Vec::new())?;
        let mut get = Get(&results);
        let exports =
            get.chain(|get| Ok(Export { path: get.opaque()?, groups: get.chain(Get::opaque)? }))?;
        get.finish()?;
        Ok(exports)
    }
}
