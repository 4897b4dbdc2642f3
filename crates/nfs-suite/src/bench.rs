//! The environment of a test case: the server, connections to it, and a directory for the case
//! alone.
//!
//! Invariant: everything that a case has created is removed when the case ends.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

use crate::fault::Fault;
use crate::mount::Mount;
use crate::nfs3::{Fh, How, Nfs3, Sattr, Wcc, kind};
use crate::nfs4::ops;
use crate::nfs4::session::{Session, Wish};
use crate::rpc::{Auth, Connection};
use crate::status;
use crate::suite::{Protocol, Skip};

/// The server under test and its exports.
#[derive(Clone, Debug)]
pub struct Target {
    /// The address of the NFS service.
    pub nfs: SocketAddr,
    /// The address of the mount service.
    pub mount: SocketAddr,
    /// The path of an export that user 0 may change without being squashed (mapped to another
    /// user).
    pub path: String,
    /// The path of a read-only export, which contains a regular file named `file`.
    pub read_only: Option<String>,
    /// The path of an export that squashes user 0 (maps it to another user).
    pub squashed: Option<String>,
    /// The number of seconds for which a case waits for a server that restarts.
    pub restart_seconds: u64,
}

/// The environment of one test case.
#[derive(Debug)]
pub struct Bench {
    /// The server under test.
    pub target: Target,
    /// A client of version 3 as user 0. The name of the field is short, because most cases use it
    /// often.
    pub c: Nfs3,
    /// The handle of the case's directory, which every user may change.
    pub dir: Fh,
    /// The handle of the export's root.
    pub root: Fh,
    /// The name of the case's directory.
    pub name: String,
    minor: u32,
    session_count: u32,
}

/// The user id of an ordinary user.
pub const USER: u32 = 12_001;
/// The user id of another ordinary user.
pub const OTHER: u32 = 12_002;

/// The number of attempts per second to connect to a server that restarts.
const STEPS_PER_SECOND: u64 = 10;
/// The longest time in milliseconds after which clocks of file systems go on.
const TICK_MS: u64 = 20;
/// The size in bytes of each listing by which the names in a case's directory are removed.
const PAGE_BYTES: u32 = 32 << 10;

impl Target {
    /// Returns the server and the export of a URL: nfs://HOST:PORT/PATH. The port may be missing,
    /// and is 2049 then. The mount service has the same address.
    pub fn of(url: &str) -> Result<Self> {
        let rest = url.strip_prefix("nfs://").context("the URL does not begin with nfs://")?;
        let (server, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let server = if server.contains(':') { server.into() } else { format!("{server}:2049") };
        let mut addresses =
            server.to_socket_addrs().with_context(|| format!("{server} is no address"))?;
        let nfs = addresses.next().with_context(|| format!("{server} has no address"))?;
        Ok(Self {
            nfs,
            mount: nfs,
            path: if path.is_empty() { "/".into() } else { path.into() },
            read_only: None,
            squashed: None,
            restart_seconds: 0,
        })
    }
}

impl Bench {
    /// Connects to a server and creates the directory of a case.
    pub fn new(target: &Target, number: usize, protocol: Protocol) -> Result<Self> {
        let auth = Auth::user(0);
        await_server(target);
        let mut mount = Mount { connection: Connection::open(target.mount)?, auth: auth.clone() };
        let root = mount.mnt(&target.path).context("mounting the export")?.fh;
        let mut c = Nfs3 { connection: Connection::open(target.nfs)?, auth };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let name = format!("suite-{now}-{number}");
        let made = c.mkdir(&root, &name, Sattr::mode(0o777)).context("making a directory")?;
        let dir = made.fh.context("MKDIR returns no handle")?;
        // Set the mode again, because the server may have applied its umask.
        c.setattr(&dir, Sattr::mode(0o777), None)?;
        let minor = if protocol == Protocol::Nfs42 { 2 } else { 1 };
        Ok(Self { target: target.clone(), c, dir, root, name, minor, session_count: 0 })
    }

    /// Returns a client that acts as another user, over a connection of its own.
    pub fn user(&self, uid: u32) -> Result<Nfs3> {
        self.client(Auth::user(uid))
    }

    /// Returns a client that uses this credential, over a connection of its own.
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

    /// Returns what a new client asks for, with a name that no other client has.
    pub fn wish(&mut self) -> Wish {
        self.session_count += 1;
        let owner = format!("{}-{}", self.name, self.session_count);
        Wish::new(owner.as_bytes(), Auth::user(0), self.minor)
    }

    /// Returns a session of a new client, which is user 0.
    pub fn session(&mut self) -> Result<Session> {
        self.session_as(Auth::user(0))
    }

    /// Returns a session of a new client with a credential.
    pub fn session_as(&mut self, auth: Auth) -> Result<Session> {
        let wish = Wish { auth, ..self.wish() };
        self.session_of(&wish)
    }

    /// Returns the session of a client that asks for something special.
    pub fn session_of(&self, wish: &Wish) -> Result<Session> {
        let mut session = Session::start(self.target.nfs, wish).context("starting a session")?;
        session.dir = self.walk(&mut session, &self.name)?;
        Ok(session)
    }

    /// Returns the handle of a path below the export, for version 4.
    pub fn walk(&self, session: &mut Session, below: &str) -> Result<Fh> {
        self.walk_from(session, &format!("{}/{below}", self.target.path))
    }

    /// Returns the handle of a path below the server's root, for version 4.
    pub fn walk_from(&self, session: &mut Session, path: &str) -> Result<Fh> {
        let mut ops = vec![ops::putrootfh()];
        ops.extend(path.split('/').filter(|name| !name.is_empty()).map(ops::lookup));
        ops.push(ops::getfh());
        let reply = session.ok(&ops).with_context(|| format!("walking to {path}"))?;
        Ok(reply.fh(ops.len() - 1)?)
    }

    /// Creates an empty file with mode 644 in the case's directory.
    pub fn file(&mut self, name: &str) -> Result<Fh> {
        self.file_with_mode(name, 0o644)
    }

    /// Creates an empty file with a mode in the case's directory.
    pub fn file_with_mode(&mut self, name: &str, mode: u32) -> Result<Fh> {
        let made = self.c.create(&self.dir, name, How::Guarded(Sattr::mode(mode)))?;
        let fh = made.fh.context("CREATE returns no handle")?;
        self.c.setattr(&fh, Sattr::mode(mode), None)?;
        Ok(fh)
    }

    /// Creates a file with data in the case's directory.
    pub fn file_with(&mut self, name: &str, data: &[u8]) -> Result<Fh> {
        let fh = self.file(name)?;
        let written = self.c.write(&fh, 0, 2, data)?;
        same("the bytes written", written.count as usize, data.len())?;
        Ok(fh)
    }

    /// Creates a directory with a mode in the case's directory.
    pub fn sub(&mut self, name: &str, mode: u32) -> Result<Fh> {
        let made = self.c.mkdir(&self.dir, name, Sattr::mode(mode))?;
        let fh = made.fh.context("MKDIR returns no handle")?;
        self.c.setattr(&fh, Sattr::mode(mode), None)?;
        Ok(fh)
    }

    /// Creates a symbolic link in the case's directory.
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

    /// Mounts the read-only export. Skips the case if the target has none.
    pub fn read_only(&self) -> Result<Fh> {
        Ok(self.mount()?.mnt(self.read_only_path()?)?.fh)
    }

    /// Mounts the export that squashes user 0. Skips the case if the target has none.
    pub fn squashed(&self) -> Result<Fh> {
        Ok(self.mount()?.mnt(self.squashed_path()?)?.fh)
    }

    /// Returns the path of the read-only export. Skips the case if the target has none.
    pub fn read_only_path(&self) -> Result<String> {
        let path = self.target.read_only.clone();
        Ok(path.ok_or_else(|| Skip("the server has no read-only export".into()))?)
    }

    /// Returns the path of the export that squashes user 0. Skips the case if the target has none.
    pub fn squashed_path(&self) -> Result<String> {
        let path = self.target.squashed.clone();
        Ok(path.ok_or_else(|| Skip("the server has no squashed export".into()))?)
    }

    /// Removes the case's directory and everything in it, as far as possible.
    pub fn clean_up(&mut self) {
        let Ok(mut client) = self.client(Auth::user(0)) else { return };
        let dir = self.dir.clone();
        let _ = empty(&mut client, &dir);
        let _ = client.rmdir(&self.root, &self.name);
    }
}

/// Waits until a server that restarts accepts a connection, or the target's time for that has
/// passed.
fn await_server(target: &Target) {
    for _ in 0..target.restart_seconds * STEPS_PER_SECOND {
        if Connection::open(target.nfs).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1000 / STEPS_PER_SECOND));
    }
}

/// Removes all entries of a directory.
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

/// Waits until the server's clock has gone on. Until then, the next change may get the same time as
/// the last one, and the change attribute of something that has just changed may rise, although
/// nothing more has changed.
pub fn await_tick() {
    std::thread::sleep(Duration::from_millis(TICK_MS));
}

/// Returns bytes whose values depend on their offsets, so that misplaced bytes are noticed.
#[must_use]
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Checks that two values are equal.
pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, wanted: T) -> Result<()> {
    ensure!(got == wanted, "{what}: got {got:?}, expected {wanted:?}");
    Ok(())
}

/// Checks that a call fails with one of these statuses. Returns the attributes in the reply.
pub fn refusal<T>(wanted: &[u32], result: Result<T, Fault>) -> Result<Vec<Wcc>> {
    let names: Vec<_> = wanted.iter().map(|one| status::name(*one)).collect();
    let expected = format!("expected {}", names.join(" or "));
    match result {
        Err(Fault::Status { status, wcc, .. }) if wanted.contains(&status) => Ok(wcc),
        Err(fault) => Err(fault).context(expected),
        Ok(_) => bail!("succeeds, {expected}"),
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

/// Checks that the server accepts a call at the level of RPC, but does not execute it and returns
/// this accept status.
pub fn not_done<T>(wanted: u32, result: Result<T, Fault>) -> Result<Vec<u32>> {
    let name = crate::fault::accept_name(wanted);
    match result {
        Err(Fault::NotDone { status, detail }) if status == wanted => Ok(detail),
        Err(fault) => bail!("{fault}, expected {name}"),
        Ok(_) => bail!("succeeds, expected {name}"),
    }
}

/// Checks that the server denies a call at the level of RPC, with this reject status.
pub fn denied<T>(wanted: u32, result: Result<T, Fault>) -> Result<Vec<u32>> {
    match result {
        Err(Fault::Denied { status, detail }) if status == wanted => Ok(detail),
        Err(fault) => bail!("{fault}, expected a denial with {wanted}"),
        Ok(_) => bail!("succeeds, expected a denial with {wanted}"),
    }
}
