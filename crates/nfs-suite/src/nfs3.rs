//! A client of NFS version 3 (RFC 1813), with all 22 procedures.
//!
//! Invariant: a reply is returned only if it was decoded completely, without bytes left.

use crate::fault::Fault;
use crate::rpc::{Auth, Call, Connection};
use crate::xdr::{Get, Put};

/// The RPC program number of NFS.
pub const PROGRAM: u32 = 100_003;

/// A file handle, as the server has encoded it.
pub type Fh = Vec<u8>;
/// A time: the seconds since 1970, and the nanoseconds after the second.
pub type Time = (u32, u32);
/// A value that changes when the server restarts or the cookies of a directory become invalid.
pub type Verifier = [u8; 8];

/// The types of files, as the protocol numbers them.
pub mod kind {
    /// A regular file with data.
    pub const REG: u32 = 1;
    /// A directory of names.
    pub const DIR: u32 = 2;
    /// A block device node.
    pub const BLK: u32 = 3;
    /// A character device node.
    pub const CHR: u32 = 4;
    /// A symbolic link to a path.
    pub const LNK: u32 = 5;
    /// A Unix domain socket, as a special file.
    pub const SOCK: u32 = 6;
    /// A named pipe (FIFO), as a special file.
    pub const FIFO: u32 = 7;
}

/// The names of the procedures, in the order of their numbers.
pub const PROCEDURES: [&str; 22] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "LOOKUP",
    "ACCESS",
    "READLINK",
    "READ",
    "WRITE",
    "CREATE",
    "MKDIR",
    "SYMLINK",
    "MKNOD",
    "REMOVE",
    "RMDIR",
    "RENAME",
    "LINK",
    "READDIR",
    "READDIRPLUS",
    "FSSTAT",
    "FSINFO",
    "PATHCONF",
    "COMMIT",
];

/// The attributes of a file, named as in the RFC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub struct Attr {
    pub kind: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub used: u64,
    pub rdev: (u32, u32),
    pub fsid: u64,
    pub fileid: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
}

/// Attributes of a file before an operation: size, time of modification, time of change.
pub type Pre = (u64, Time, Time);

/// The attributes of a file before and after an operation, if the reply contains them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wcc {
    /// The attributes before the operation.
    pub before: Option<Pre>,
    /// The attributes after the operation.
    pub after: Option<Attr>,
}

/// The way in which SETATTR sets a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// The time is not changed.
    #[default]
    Keep,
    /// The time is set to the server's present time.
    Server,
    /// The time is set to this value.
    To(Time),
}

/// The attributes that a call sets; `None` leaves an attribute unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub struct Sattr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: SetTime,
    pub mtime: SetTime,
}

/// The behavior of CREATE if the file already exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The call uses the existing file.
    Unchecked(Sattr),
    /// The call fails with EXIST.
    Guarded(Sattr),
    /// The call fails, unless the file was created with this verifier.
    Exclusive(Verifier),
}

/// A file that LOOKUP has found.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub struct Found {
    pub fh: Fh,
    pub attr: Option<Attr>,
    pub dir: Option<Attr>,
}

/// An object that a call has created.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub struct Made {
    pub fh: Option<Fh>,
    pub attr: Option<Attr>,
    pub dir: Wcc,
}

/// The data of a READ.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub struct Data {
    pub attr: Option<Attr>,
    pub count: u32,
    pub eof: bool,
    pub data: Vec<u8>,
}

/// The results of a WRITE.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub struct Written {
    pub wcc: Wcc,
    pub count: u32,
    pub committed: u32,
    pub verifier: Verifier,
}

/// One page of a directory listing.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub struct Page {
    pub attr: Option<Attr>,
    pub verifier: Verifier,
    pub entries: Vec<Entry>,
    pub eof: bool,
    /// The length of the encoded results in bytes.
    pub bytes: usize,
}

/// An entry of a directory listing. READDIR returns neither attributes nor a handle.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub struct Entry {
    pub fileid: u64,
    pub name: Vec<u8>,
    pub cookie: u64,
    pub attr: Option<Attr>,
    pub fh: Option<Fh>,
}

/// The results of FSINFO.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub struct FsInfo {
    pub attr: Option<Attr>,
    pub rtmax: u32,
    pub rtpref: u32,
    pub rtmult: u32,
    pub wtmax: u32,
    pub wtpref: u32,
    pub wtmult: u32,
    pub dtpref: u32,
    pub maxfilesize: u64,
    pub time_delta: Time,
    pub properties: u32,
}

/// The results of PATHCONF.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub struct PathConf {
    pub attr: Option<Attr>,
    pub linkmax: u32,
    pub name_max: u32,
    pub no_trunc: bool,
    pub chown_restricted: bool,
    pub case_insensitive: bool,
    pub case_preserving: bool,
}

/// A client of NFS version 3.
#[derive(Debug)]
pub struct Nfs3 {
    /// The connection to the server.
    pub connection: Connection,
    /// The credential with which all calls are sent.
    pub auth: Auth,
}

impl Sattr {
    /// Returns attributes of which only the mode is set.
    #[must_use]
    pub fn mode(mode: u32) -> Self {
        Self { mode: Some(mode), ..Self::default() }
    }

    /// Returns attributes of which only the size is set.
    #[must_use]
    pub fn size(size: u64) -> Self {
        Self { size: Some(size), ..Self::default() }
    }

    /// Returns attributes of which only the owner and the group are set.
    #[must_use]
    pub fn owner(uid: u32, gid: u32) -> Self {
        Self { uid: Some(uid), gid: Some(gid), ..Self::default() }
    }

    /// Appends the encoded attributes.
    #[must_use]
    pub fn put(&self, put: Put) -> Put {
        let time = |put: Put, time: SetTime| match time {
            SetTime::Keep => put.u32(0),
            SetTime::Server => put.u32(1),
            SetTime::To((seconds, nanoseconds)) => put.u32(2).u32(seconds).u32(nanoseconds),
        };
        let put = put.option(self.mode, Put::u32).option(self.uid, Put::u32);
        let put = put.option(self.gid, Put::u32).option(self.size, Put::u64);
        time(time(put, self.atime), self.mtime)
    }
}

impl How {
    fn put(&self, put: Put) -> Put {
        match self {
            Self::Unchecked(attributes) => attributes.put(put.u32(0)),
            Self::Guarded(attributes) => attributes.put(put.u32(1)),
            Self::Exclusive(verifier) => put.u32(2).raw(verifier),
        }
    }
}

impl Nfs3 {
    /// Returns a call of a procedure, which the caller can send later.
    #[must_use]
    pub fn prepare(&self, procedure: u32, arguments: Put) -> Call {
        Call::new(PROGRAM, 3, procedure, &self.auth, arguments.0)
    }

    /// Calls a procedure. Decodes the results of a success with one function, and those of a
    /// failure with the other.
    fn run<T>(
        &mut self,
        procedure: u32,
        arguments: Put,
        success: impl FnOnce(&mut Get<'_>) -> Result<T, Fault>,
        failure: impl FnOnce(&mut Get<'_>) -> Result<Vec<Wcc>, Fault>,
    ) -> Result<T, Fault> {
        let call = self.prepare(procedure, arguments);
        let results = self.connection.call(&call)?;
        decode(procedure, &results, success, failure)
    }

    /// Calls NULL, which does nothing.
    pub fn null(&mut self) -> Result<(), Fault> {
        let call = self.prepare(0, Put::new());
        Get(&self.connection.call(&call)?).finish()
    }

    /// Calls GETATTR. Returns the attributes of the file.
    pub fn getattr(&mut self, fh: &[u8]) -> Result<Attr, Fault> {
        self.run(1, Put::new().opaque(fh), attr, nothing)
    }

    /// Calls SETATTR. If there is a guard, it is the change time that the file must have.
    pub fn setattr(&mut self, fh: &[u8], to: Sattr, guard: Option<Time>) -> Result<Wcc, Fault> {
        let put = to.put(Put::new().opaque(fh));
        let put = put.option(guard, |put, time| put.u32(time.0).u32(time.1));
        self.run(2, put, wcc, one_wcc)
    }

    /// Calls LOOKUP. Returns the file with this name.
    pub fn lookup(&mut self, dir: &[u8], name: impl AsRef<[u8]>) -> Result<Found, Fault> {
        let found = |get: &mut Get<'_>| {
            Ok(Found { fh: get.opaque()?, attr: get.option(attr)?, dir: get.option(attr)? })
        };
        self.run(3, at(dir, name), found, one_attr)
    }

    /// Calls ACCESS. Returns the rights, of those in `rights`, that the caller has.
    pub fn access(&mut self, fh: &[u8], rights: u32) -> Result<(Option<Attr>, u32), Fault> {
        let granted = |get: &mut Get<'_>| Ok((get.option(attr)?, get.u32()?));
        self.run(4, Put::new().opaque(fh).u32(rights), granted, one_attr)
    }

    /// Calls READLINK. Returns the target of the link.
    pub fn readlink(&mut self, fh: &[u8]) -> Result<(Option<Attr>, Vec<u8>), Fault> {
        let target = |get: &mut Get<'_>| Ok((get.option(attr)?, get.opaque()?));
        self.run(5, Put::new().opaque(fh), target, one_attr)
    }

    /// Calls READ. Returns the data.
    pub fn read(&mut self, fh: &[u8], offset: u64, count: u32) -> Result<Data, Fault> {
        let put = Put::new().opaque(fh).u64(offset).u32(count);
        let data = |get: &mut Get<'_>| {
            let (attr, count, eof) = (get.option(attr)?, get.u32()?, get.bool()?);
            Ok(Data { attr, count, eof, data: get.opaque()? })
        };
        self.run(6, put, data, one_attr)
    }

    /// Calls WRITE. The stability is 0 (unstable), 1 (data sync) or 2 (file sync).
    pub fn write(
        &mut self,
        fh: &[u8],
        offset: u64,
        stable: u32,
        data: &[u8],
    ) -> Result<Written, Fault> {
        let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.write_count(fh, offset, count, stable, data)
    }

    /// Calls WRITE with a count that may differ from the length of the data.
    pub fn write_count(
        &mut self,
        fh: &[u8],
        offset: u64,
        count: u32,
        stable: u32,
        data: &[u8],
    ) -> Result<Written, Fault> {
        let put = Put::new().opaque(fh).u64(offset).u32(count).u32(stable).opaque(data);
        let written = |get: &mut Get<'_>| {
            let (wcc, count, committed) = (wcc(get)?, get.u32()?, get.u32()?);
            Ok(Written { wcc, count, committed, verifier: get.array()? })
        };
        self.run(7, put, written, one_wcc)
    }

    /// Calls CREATE, which creates a regular file.
    pub fn create(&mut self, dir: &[u8], name: impl AsRef<[u8]>, how: How) -> Result<Made, Fault> {
        self.run(8, how.put(at(dir, name)), made, one_wcc)
    }

    /// Calls MKDIR, which creates a directory.
    pub fn mkdir(
        &mut self,
        dir: &[u8],
        name: impl AsRef<[u8]>,
        with: Sattr,
    ) -> Result<Made, Fault> {
        self.run(9, with.put(at(dir, name)), made, one_wcc)
    }

    /// Calls SYMLINK, which creates a symbolic link.
    pub fn symlink(
        &mut self,
        dir: &[u8],
        name: impl AsRef<[u8]>,
        target: impl AsRef<[u8]>,
        with: Sattr,
    ) -> Result<Made, Fault> {
        self.run(10, with.put(at(dir, name)).opaque(target), made, one_wcc)
    }

    /// Calls MKNOD, which creates a special file. The server ignores the device number for other
    /// types than devices.
    pub fn mknod(
        &mut self,
        dir: &[u8],
        name: impl AsRef<[u8]>,
        kind: u32,
        with: Sattr,
        device: (u32, u32),
    ) -> Result<Made, Fault> {
        let put = at(dir, name).u32(kind);
        let put = match kind {
            kind::CHR | kind::BLK => with.put(put).u32(device.0).u32(device.1),
            kind::SOCK | kind::FIFO => with.put(put),
            _ => put,
        };
        self.run(11, put, made, one_wcc)
    }

    /// Calls REMOVE, which removes a name of an object that is not a directory.
    pub fn remove(&mut self, dir: &[u8], name: impl AsRef<[u8]>) -> Result<Wcc, Fault> {
        self.run(12, at(dir, name), wcc, one_wcc)
    }

    /// Calls RMDIR, which removes an empty directory.
    pub fn rmdir(&mut self, dir: &[u8], name: impl AsRef<[u8]>) -> Result<Wcc, Fault> {
        self.run(13, at(dir, name), wcc, one_wcc)
    }

    /// Calls RENAME, which moves or renames an object.
    pub fn rename(
        &mut self,
        from: (&[u8], &[u8]),
        to: (&[u8], &[u8]),
    ) -> Result<(Wcc, Wcc), Fault> {
        let put = Put::new().opaque(from.0).opaque(from.1).opaque(to.0).opaque(to.1);
        let both = |get: &mut Get<'_>| Ok((wcc(get)?, wcc(get)?));
        self.run(14, put, both, |get| Ok(vec![wcc(get)?, wcc(get)?]))
    }

    /// Calls LINK, which creates a further name of a file.
    pub fn link(
        &mut self,
        fh: &[u8],
        dir: &[u8],
        name: impl AsRef<[u8]>,
    ) -> Result<(Option<Attr>, Wcc), Fault> {
        let put = Put::new().opaque(fh).opaque(dir).opaque(name);
        let both = |get: &mut Get<'_>| Ok((get.option(attr)?, wcc(get)?));
        self.run(15, put, both, |get| {
            Ok(vec![Wcc { before: None, after: get.option(attr)? }, wcc(get)?])
        })
    }

    /// Calls READDIR. Returns a page of names.
    pub fn readdir(
        &mut self,
        dir: &[u8],
        cookie: u64,
        verifier: Verifier,
        count: u32,
    ) -> Result<Page, Fault> {
        let put = Put::new().opaque(dir).u64(cookie).raw(&verifier).u32(count);
        self.run(16, put, |get| page(get, false), one_attr)
    }

    /// Calls READDIRPLUS. Returns a page of names with attributes and handles.
    pub fn readdirplus(
        &mut self,
        dir: &[u8],
        cookie: u64,
        verifier: Verifier,
        (dircount, maxcount): (u32, u32),
    ) -> Result<Page, Fault> {
        let put = Put::new().opaque(dir).u64(cookie).raw(&verifier).u32(dircount).u32(maxcount);
        self.run(17, put, |get| page(get, true), one_attr)
    }

    /// Calls FSSTAT. Returns the numbers of total, free and available bytes, and the same three
    /// numbers of files.
    pub fn fsstat(&mut self, fh: &[u8]) -> Result<(Option<Attr>, [u64; 6], u32), Fault> {
        let stat = |get: &mut Get<'_>| {
            let attr = get.option(attr)?;
            let mut sizes = [0; 6];
            for size in &mut sizes {
                *size = get.u64()?;
            }
            Ok((attr, sizes, get.u32()?))
        };
        self.run(18, Put::new().opaque(fh), stat, one_attr)
    }

    /// Calls FSINFO. Returns the limits of the file system.
    pub fn fsinfo(&mut self, fh: &[u8]) -> Result<FsInfo, Fault> {
        let info = |get: &mut Get<'_>| {
            Ok(FsInfo {
                attr: get.option(attr)?,
                rtmax: get.u32()?,
                rtpref: get.u32()?,
                rtmult: get.u32()?,
                wtmax: get.u32()?,
                wtpref: get.u32()?,
                wtmult: get.u32()?,
                dtpref: get.u32()?,
                maxfilesize: get.u64()?,
                time_delta: time(get)?,
                properties: get.u32()?,
            })
        };
        self.run(19, Put::new().opaque(fh), info, one_attr)
    }

    /// Calls PATHCONF. Returns the limits of names.
    pub fn pathconf(&mut self, fh: &[u8]) -> Result<PathConf, Fault> {
        let conf = |get: &mut Get<'_>| {
            Ok(PathConf {
                attr: get.option(attr)?,
                linkmax: get.u32()?,
                name_max: get.u32()?,
                no_trunc: get.bool()?,
                chown_restricted: get.bool()?,
                case_insensitive: get.bool()?,
                case_preserving: get.bool()?,
            })
        };
        self.run(20, Put::new().opaque(fh), conf, one_attr)
    }

    /// Calls COMMIT, which puts written data on stable storage.
    pub fn commit(&mut self, fh: &[u8], offset: u64, count: u32) -> Result<(Wcc, Verifier), Fault> {
        let put = Put::new().opaque(fh).u64(offset).u32(count);
        self.run(21, put, |get| Ok((wcc(get)?, get.array()?)), one_wcc)
    }
}

/// Decodes the results of a procedure: the status, and what follows a success or a failure.
pub fn decode<T>(
    procedure: u32,
    results: &[u8],
    success: impl FnOnce(&mut Get<'_>) -> Result<T, Fault>,
    failure: impl FnOnce(&mut Get<'_>) -> Result<Vec<Wcc>, Fault>,
) -> Result<T, Fault> {
    let mut get = Get(results);
    let status = get.u32()?;
    if status != 0 {
        let wcc = failure(&mut get)?;
        get.finish()?;
        let what = PROCEDURES[procedure as usize].into();
        return Err(Fault::Status { what, status, wcc });
    }
    let value = success(&mut get)?;
    get.finish()?;
    Ok(value)
}

/// Encodes a directory and a name.
#[must_use]
pub fn at(dir: &[u8], name: impl AsRef<[u8]>) -> Put {
    Put::new().opaque(dir).opaque(name)
}

fn time(get: &mut Get<'_>) -> Result<Time, Fault> {
    let time = (get.u32()?, get.u32()?);
    if time.1 >= 1_000_000_000 {
        return Err(Fault::Reply(format!("has a time with {} nanoseconds", time.1)));
    }
    Ok(time)
}

/// Decodes the attributes of a file.
pub fn attr(get: &mut Get<'_>) -> Result<Attr, Fault> {
    let kind = get.u32()?;
    if !(kind::REG..=kind::FIFO).contains(&kind) {
        return Err(Fault::Reply(format!("has the file type {kind}")));
    }
    Ok(Attr {
        kind,
        mode: get.u32()?,
        nlink: get.u32()?,
        uid: get.u32()?,
        gid: get.u32()?,
        size: get.u64()?,
        used: get.u64()?,
        rdev: (get.u32()?, get.u32()?),
        fsid: get.u64()?,
        fileid: get.u64()?,
        atime: time(get)?,
        mtime: time(get)?,
        ctime: time(get)?,
    })
}

fn wcc(get: &mut Get<'_>) -> Result<Wcc, Fault> {
    let before = get.option(|get| Ok((get.u64()?, time(get)?, time(get)?)))?;
    Ok(Wcc { before, after: get.option(attr)? })
}

fn nothing(_: &mut Get<'_>) -> Result<Vec<Wcc>, Fault> {
    Ok(Vec::new())
}

fn one_attr(get: &mut Get<'_>) -> Result<Vec<Wcc>, Fault> {
    Ok(vec![Wcc { before: None, after: get.option(attr)? }])
}

fn one_wcc(get: &mut Get<'_>) -> Result<Vec<Wcc>, Fault> {
    Ok(vec![wcc(get)?])
}

fn made(get: &mut Get<'_>) -> Result<Made, Fault> {
    Ok(Made { fh: get.option(Get::opaque)?, attr: get.option(attr)?, dir: wcc(get)? })
}

fn page(get: &mut Get<'_>, is_plus: bool) -> Result<Page, Fault> {
    let bytes = get.0.len();
    let (dir, verifier) = (get.option(attr)?, get.array()?);
    let entries = get.chain(|get| {
        let (fileid, name, cookie) = (get.u64()?, get.opaque()?, get.u64()?);
        let mut entry = Entry { fileid, name, cookie, attr: None, fh: None };
        if is_plus {
            entry.attr = get.option(attr)?;
            entry.fh = get.option(Get::opaque)?;
        }
        Ok(entry)
    })?;
    Ok(Page { attr: dir, verifier, entries, eof: get.bool()?, bytes })
}
