//! What a case works with: the server, connections to it, and a directory of its own.
//!
//! Invariant: what a case made is removed when it ends.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::fault::Fault;
use crate::mount::Mount;
use crate::nfs3::{Fh, How, Nfs3, Sattr, Wcc, kind};
use crate::rpc::{Auth, Connection};
use crate::status;
use crate::suite::{Protocol, Skip};

/// A server and its exports.
#[derive(Clone, Debug)]
pub struct Target {
    /// The address of the NFS service.
    pub nfs: SocketAddr,
    /// The address of the mount service.
    pub mount: SocketAddr,
    /// The path of an export that user 0 may change as user 0.
    pub path: String,
    /// The path of an export that nobody may change, with a regular file named `file`.
    pub read_only: Option<String>,
    /// The path of an export that takes user 0 for another.
    pub squashed: Option<String>,
    /// How many seconds a case waits for a server that is restarting.
    pub restart_seconds: u64,
}

/// What a case works with.
#[derive(Debug)]
pub struct Bench {
    /// The server under test.
    pub target: Target,
    /// A client of version 3 that is user 0. Its name is short, since most cases use it often.
    pub c: Nfs3,
    /// The handle of the case's own directory, which everybody may change.
    pub dir: Fh,
    /// The handle of the export's root.
    pub root: Fh,
    /// The name of the case's directory.
    pub name: String,
}

/// The number of an ordinary user.
pub const USER: u32 = 12_001;
/// The number of another ordinary user.
pub const OTHER: u32 = 12_002;

/// How often a second a server that is restarting is looked for.
const STEPS_PER_SECOND: u64 = 10;
/// The length of the pages of names that are removed when a case ends.
const PAGE_BYTES: u32 = 32 << 10;

impl Bench {
    /// Connects to a server and makes the directory of a case.
    pub fn new(target: &Target, number: usize, _: Protocol) -> Result<Self> {
        let auth = Auth::user(0);
        await_server(target);
        let mut mount = Mount { connection: Connection::open(target.mount)?, auth: auth.clone() };
        let root = mount.mnt(&target.path).context("mounting the export")?.fh;
        let mut c = Nfs3 { connection: Connection::open(target.nfs)?, auth };
        let name = format!("suite-{}-{number}", std::process::id());
        let made = c.mkdir(&root, &name, Sattr::mode(0o777)).context("making a directory")?;
        let dir = made.fh.context("MKDIR returns no handle")?;
        // A server may apply its umask.
        c.setattr(&dir, Sattr::mode(0o777), None)?;
        Ok(Self { target: target.clone(), c, dir, root, name })
    }

    /// Returns a client with its own connection, which is another user.
    pub fn user(&self, uid: u32) -> Result<Nfs3> {
        self.client(Auth::user(uid))
    }

    /// Returns a client with its own connection and this credential.
    pub fn client(&self, auth: Auth) -> Result<Nfs3> {
        Ok(Nfs3 { connection: Connection::open(self.target.nfs)?, auth })
    }

    /// Returns a new connection to the NFS service.
    pub fn connection(&self) -> Result<Connection> {
        Ok(Connection::open(self.target.nfs)?)
    }

    /// Returns a client of the mount service.
    pub fn mount(&self) -> Result<Mount> {
        Ok(Mount { connection: Connection::open(self.target.mount)?, auth: Auth::user(0) })
    }

    /// Makes an empty file with mode 644 in the case's directory.
    pub fn file(&mut self, name: &str) -> Result<Fh> {
        self.file_with_mode(name, 0o644)
    }

    /// Makes an empty file with a mode.
    pub fn file_with_mode(&mut self, name: &str, mode: u32) -> Result<Fh> {
        let made = self.c.create(&self.dir, name, How::Guarded(Sattr::mode(mode)))?;
        let fh = made.fh.context("CREATE returns no handle")?;
        self.c.setattr(&fh, Sattr::mode(mode), None)?;
        Ok(fh)
    }

    /// Makes a file with data.
    pub fn file_with(&mut self, name: &str, data: &[u8]) -> Result<Fh> {
        let fh = self.file(name)?;
        let written = self.c.write(&fh, 0, 2, data)?;
        same("the bytes written", written.count as usize, data.len())?;
        Ok(fh)
    }

    /// Makes a directory with a mode.
    pub fn sub(&mut self, name: &str, mode: u32) -> Result<Fh> {
        let made = self.c.mkdir(&self.dir, name, Sattr::mode(mode))?;
        let fh = made.fh.context("MKDIR returns no handle")?;
        self.c.setattr(&fh, Sattr::mode(mode), None)?;
        Ok(fh)
    }

    /// Makes a symbolic link.
    pub fn link_to(&mut self, name: &str, target: &str) -> Result<Fh> {
        let made = self.c.symlink(&self.dir, name, target, Sattr::default())?;
        made.fh.context("SYMLINK returns no handle")
    }

    /// Returns the handle of a file that was removed.
    pub fn stale(&mut self) -> Result<Fh> {
        let fh = self.file("removed")?;
        self.c.remove(&self.dir, "removed")?;
        Ok(fh)
    }

    /// Returns the handle of a directory that was removed.
    pub fn stale_dir(&mut self) -> Result<Fh> {
        let fh = self.sub("removed-directory", 0o777)?;
        self.c.rmdir(&self.dir, "removed-directory")?;
        Ok(fh)
    }

    /// Mounts the export that nobody may change.
    pub fn read_only(&self) -> Result<Fh> {
        self.other_export(self.target.read_only.as_deref(), "read-only")
    }

    /// Mounts the export that takes user 0 for another.
    pub fn squashed(&self) -> Result<Fh> {
        self.other_export(self.target.squashed.as_deref(), "squashed")
    }

    fn other_export(&self, path: Option<&str>, what: &str) -> Result<Fh> {
        let Some(path) = path else {
            return Err(Skip(format!("the server has no {what} export")).into());
        };
        Ok(self.mount()?.mnt(path)?.fh)
    }

    /// Removes the case's directory, as far as possible.
    pub fn clean_up(&mut self) {
        let Ok(mut client) = self.client(Auth::user(0)) else { return };
        let dir = self.dir.clone();
        let _ = empty(&mut client, &dir);
        let _ = client.rmdir(&self.root, &self.name);
    }
}

/// Waits until a server that is restarting accepts a connection, for as long as the target allows.
fn await_server(target: &Target) {
    for _ in 0..target.restart_seconds * STEPS_PER_SECOND {
        if Connection::open(target.nfs).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1000 / STEPS_PER_SECOND));
    }
}

/// Removes everything in a directory.
fn empty(client: &mut Nfs3, dir: &[u8]) -> Result<(), Fault> {
    loop {
        let page = client.readdirplus(dir, 0, [0; 8], (PAGE_BYTES, PAGE_BYTES))?;
        let names: Vec<_> = page
            .entries
            .into_iter()
            .map(|entry| entry.name)
            .filter(|name| name != b"." && name != b"..")
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            let found = client.lookup(dir, &name)?;
            let attr = client.getattr(&found.fh)?;
            if attr.kind == kind::DIR {
                client.setattr(&found.fh, Sattr::mode(0o777), None)?;
                empty(client, &found.fh)?;
                client.rmdir(dir, &name)?;
            } else {
                client.remove(dir, &name)?;
            }
        }
    }
}

/// Checks that two values are equal.
pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, wanted: T) -> Result<()> {
    ensure!(got == wanted, "{what}: got {got:?}, expected {wanted:?}");
    Ok(())
}

/// Checks that a call fails with this status, and returns the attributes that came with it.
pub fn refusal<T>(wanted: &[u32], result: Result<T, Fault>) -> Result<Vec<Wcc>> {
    let expected = || wanted.iter().map(|one| status::name(*one)).collect::<Vec<_>>().join(" or ");
    match result {
        Err(Fault::Status { status, wcc, .. }) if wanted.contains(&status) => Ok(wcc),
        Err(fault) => bail!("{fault}, expected {}", expected()),
        Ok(_) => bail!("succeeds, expected {}", expected()),
    }
}

/// Checks that a call fails with this status.
pub fn refused<T>(wanted: u32, result: Result<T, Fault>) -> Result<()> {
    refusal(&[wanted], result).map(drop)
}

/// Checks that a call fails with one of these statuses.
pub fn refused_as<T>(wanted: &[u32], result: Result<T, Fault>) -> Result<()> {
    refusal(wanted, result).map(drop)
}

/// Checks that RPC accepts a call, but does not do it, with this accept status.
pub fn not_done<T>(wanted: u32, result: Result<T, Fault>) -> Result<Vec<u32>> {
    let name = crate::fault::accept_name(wanted);
    match result {
        Err(Fault::NotDone { status, detail }) if status == wanted => Ok(detail),
        Err(fault) => bail!("{fault}, expected {name}"),
        Ok(_) => bail!("succeeds, expected {name}"),
    }
}

/// Checks that RPC denies a call with this reject status.
pub fn denied<T>(wanted: u32, result: Result<T, Fault>) -> Result<Vec<u32>> {
    match result {
        Err(Fault::Denied { status, detail }) if status == wanted => Ok(detail),
        Err(fault) => bail!("{fault}, expected a denial with {wanted}"),
        Ok(_) => bail!("succeeds, expected a denial with {wanted}"),
    }
}
