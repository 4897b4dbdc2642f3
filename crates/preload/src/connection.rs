//! Sessions with the servers. A session is made when a path beneath its prefix is first used.
//!
//! Invariants:
//! - The library's own descriptors are above those that programs use ([`FLOOR`]) and are recorded,
//!   so a program that closes all descriptors does not close them.
//! - A child process has its own sessions.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::time::Duration;

use dafs_client::{
    Buffer, Client, ClientConfig, Location, Login, Outcome as Brought, ServerName, Session,
    SessionEvent, SessionOptions, TlsClient, TlsClientFiles, TransportChoice,
};
use dafs_types::{FileHandle, check_secret};
use rustix::fs::{Mode, OFlags};

use crate::config;
use crate::errors::{Failure, Outcome};
use crate::state::note_own;
use crate::waiting::wait_while_reachable;

/// The client, its sessions, and the memory registered for transfers.
#[derive(Default)]
pub(crate) struct Connection {
    client: Option<Client>,
    mounts: Vec<Option<(Session, FileHandle)>>,
    staging: Option<Buffer>,
    restarts: Rc<Cell<u64>>,
    own: BTreeSet<RawFd>,
    /// The indexes of the mounts whose servers can send callbacks to this client.
    listening: BTreeSet<usize>,
}

impl Connection {
    /// Returns the session of a mount and the handle of its root. Connects if necessary.
    pub(crate) fn mount(&mut self, index: usize) -> Outcome<(Session, FileHandle)> {
        if let Some(Some((session, root))) = self.mounts.get(index) {
            return Ok((session.clone(), *root));
        }
        let Some(mount) = config::get().mounts.get(index) else {
            return Err(Failure::Errno(libc::EIO));
        };
        let before = descriptors();
        let connected = above_floor(|| self.connect(&mount.location));
        for number in descriptors().difference(&before) {
            self.keep(*number);
        }
        let made = connected.inspect_err(|reason| {
            eprintln!("dafs: {}: {reason}", dafs_client::shown_path(&mount.prefix));
        });
        let (session, root) = made.map_err(|_| Failure::Errno(libc::EIO))?;
        if self.mounts.len() <= index {
            self.mounts.resize_with(index + 1, || None);
        }
        self.mounts[index] = Some((session.clone(), root));
        Ok((session, root))
    }

    fn connect(&mut self, location: &Location) -> Result<(Session, FileHandle), String> {
        let client = match &self.client {
            Some(client) => client.clone(),
            None => Client::new(client_config()?).map_err(|error| error.in_full())?,
        };
        if self.staging.is_none() {
            self.staging = Some(client.allocate(STAGING_BYTES).map_err(|e| e.to_string())?);
        }
        self.client = Some(client.clone());
        let mut location = location.clone();
        if let (ServerName::Host { tls, .. }, true) =
            (&mut location.server, config::is_set("DAFS_TLS"))
        {
            *tls = true;
        }
        let options = options(&location)?;
        let session = client.connect(&location, &options).map_err(|error| error.in_full())?;
        let restarts = self.restarts.clone();
        session.on_event(move |event| {
            if let SessionEvent::Recovered { server_restarted: true, .. } = event {
                restarts.set(restarts.get() + 1);
            }
        });
        let chain = session.chain();
        let chain = if location.path.is_empty() { chain } else { chain.lookup(&location.path) };
        let found = chain.getattr().run().map_err(|failure| failure.error.in_full())?;
        match found.last() {
            Some(Brought::Metadata(metadata)) => Ok((session, metadata.handle)),
            _ => Err("the server did not report its root".into()),
        }
    }

    /// Returns a read-only descriptor of the local file that holds a file of a mount, if the server
    /// is on this host and passes a descriptor. The caller owns the descriptor, whose number is
    /// below the floor.
    pub(crate) fn descriptor_of(
        &mut self,
        index: usize,
        (handle, path): (FileHandle, &OsStr),
    ) -> Option<OwnedFd> {
        let (session, _) = self.mount(index).ok()?;
        if self.listening.insert(index) {
            let before = descriptors();
            let listens = above_floor(|| session.listen());
            for number in descriptors().difference(&before) {
                self.keep(*number);
            }
            listens.ok()?;
        }
        session.descriptor_of(handle, path).ok()?
    }

    /// Disconnects from the servers, so that they keep no state of this process. Does not wait for
    /// a server that is unreachable.
    pub(crate) fn disconnect_all(&mut self) {
        for (session, _) in std::mem::take(&mut self.mounts).into_iter().flatten() {
            let client = session.client();
            // The process is ending, so ignore errors, and do not wait for an unreachable server.
            let _ = wait_while_reachable(&client, session.disconnect_async());
        }
    }

    /// Returns the memory through which servers transfer data. Fails if no session was made yet.
    pub(crate) fn staging(&self) -> Outcome<Buffer> {
        self.staging.clone().ok_or(Failure::Errno(libc::EIO))
    }

    /// Forgets the sessions after a change of identity, so that later calls make new sessions. Open
    /// files keep their sessions.
    pub(crate) fn change_identity(&mut self) {
        self.mounts.clear();
        self.listening.clear();
    }

    /// Returns the client, or `None` before the first session.
    pub(crate) fn client(&self) -> Option<Client> {
        self.client.clone()
    }

    /// Returns the number of times that a session was recovered after a server restart.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts.get()
    }

    /// Returns the client's own descriptors in ascending order.
    pub(crate) fn own(&self) -> &BTreeSet<RawFd> {
        &self.own
    }

    /// Records a descriptor as one that the library itself uses.
    pub(crate) fn keep(&mut self, number: RawFd) {
        note_own(number, true);
        self.own.insert(number);
    }

    /// Drops the connection in a child process without sending anything.
    pub(crate) fn forget(self) {
        for number in &self.own {
            // If the child kept its copies of the descriptors, the connection would stay open after
            // the parent has closed it.
            note_own(*number, false);
            real!(close(*number => i32) -> i32);
        }
        std::mem::forget(self);
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the client configuration, with the time to poll before sleeping from the environment.
fn client_config() -> Result<ClientConfig, String> {
    let mut config = ClientConfig::default();
    if let Some(text) = variable("DAFS_SPIN") {
        let spin = text.parse::<u32>();
        let spin =
            spin.map_err(|_| format!("DAFS_SPIN: {text:?} is not a number of microseconds"))?;
        config.wait.spin_max = Duration::from_micros(spin.into());
    }
    Ok(config)
}

/// Returns the session options from the environment, with the same variables as the `dafs` command.
fn options(location: &Location) -> Result<SessionOptions, String> {
    let transport = match variable("DAFS_TRANSPORT").as_deref() {
        None | Some("auto") => TransportChoice::Automatic,
        Some("shm") => TransportChoice::SharedMemory,
        Some("tcp") => TransportChoice::Tcp,
        Some(other) => {
            return Err(format!(
                "DAFS_TRANSPORT: {other:?} is not a transport; write auto, shm or tcp"
            ));
        }
    };
    let tls = match &location.server {
        ServerName::Host { tls: true, .. } => Some(tls()?),
        ServerName::Host { .. } | ServerName::Verbs { .. } | ServerName::Socket(_) => None,
    };
    Ok(SessionOptions::default()
        .transport(transport)
        .login(login(location)?)
        .tls(tls)
        .tls_name(variable("DAFS_TLS_NAME"))
        .fence_id(variable("DAFS_FENCE_ID").unwrap_or_default())
        .channels(channels()?))
}

/// Returns the maximum number of connections for transfers from the environment.
fn channels() -> Result<u16, String> {
    let most = SessionOptions::CHANNELS_MAX;
    let number = match variable("DAFS_CHANNELS").as_deref() {
        None => Some(1),
        Some("auto") => Some(most),
        Some(text) => text.parse().ok().filter(|number| (1..=most).contains(number)),
    };
    number.ok_or_else(|| format!("DAFS_CHANNELS: write 1 to {most}, or auto"))
}

/// Returns the login for a location. If the URL names a user without a password, the password is
/// read from a file, because every started program could read the environment.
fn login(location: &Location) -> Result<Login, String> {
    let Some((user, None)) = &location.user else { return Ok(Login::Automatic) };
    let Some(path) = variable(config::PASSWORD_FROM) else { return Ok(Login::Automatic) };
    let text = read_secret(&path)
        .map_err(|error| format!("{}: {path}: {error}", config::PASSWORD_FROM))?;
    let password = text.lines().next().unwrap_or_default().to_owned();
    Ok(Login::Password { user: user.clone(), password })
}

/// Reads a password from a pipe, or from a file that other users can neither read nor write.
fn read_secret(path: &str) -> std::io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    // Check the open file, because its name may refer to another file a moment later.
    let metadata = file.metadata()?;
    if metadata.is_file() {
        let user = rustix::process::geteuid().as_raw();
        check_secret(metadata.uid(), metadata.mode(), user).map_err(std::io::Error::other)?;
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

fn tls() -> Result<TlsClient, String> {
    let file = |name: &str| std::env::var_os(name).map(std::path::PathBuf::from);
    let authorities = file("DAFS_TLS_CA").ok_or("TLS needs DAFS_TLS_CA".to_owned())?;
    let identity = file("DAFS_TLS_CERT").zip(file("DAFS_TLS_KEY"));
    TlsClient::load(&TlsClientFiles::new(authorities).identity(identity))
        .map_err(|error| error.to_string())
}

/// Returns the open descriptors of this process.
pub(crate) fn descriptors() -> BTreeSet<RawFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return BTreeSet::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.collect()
}

/// Runs `act`, and occupies all numbers below the floor meanwhile, so that descriptors opened by
/// `act` get numbers above it.
pub(crate) fn above_floor<T>(act: impl FnOnce() -> T) -> T {
    let floor = floor();
    let mut fillers = Vec::new();
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    if let Ok(first) = rustix::fs::open("/", flags, Mode::empty()) {
        fillers.push(first);
        while fillers.last().is_some_and(|last| last.as_raw_fd() < floor - 1) {
            let Ok(next) = rustix::io::fcntl_dupfd_cloexec(&fillers[0], 0) else { break };
            if next.as_raw_fd() >= floor {
                break;
            }
            fillers.push(next);
        }
    }
    act()
}

/// Returns the lowest number for the library's own descriptors: [`FLOOR`], or less if the
/// descriptor limit is low.
pub(crate) fn floor() -> RawFd {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(FLOOR, |limit| FLOOR.min(limit as RawFd / 2))
}

/// The lowest number for the library's own descriptors, if the descriptor limit allows it.
const FLOOR: RawFd = 512;
/// The size of the staging memory, which is the maximum number of bytes in one transfer.
pub(crate) const STAGING_BYTES: usize = 1 << 20;
