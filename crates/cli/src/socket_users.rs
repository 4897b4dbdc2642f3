//! Controls which local users may connect through the server's Unix socket.
//!
//! Invariant: if --allow-user names users, only these users, root and the server's own user can
//! connect through the socket, and all of them can reach its directory. The kernel reports the
//! identity of each client, and file permissions decide what the client may do.

use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use dafs_client::local_socket_candidates;
use dafs_dat::Address;
use dafs_server::{ConnectRule, Origin, Peers, PrincipalPattern};
use nix::unistd::User;
use rustix::fs::{FileType, Mode, OFlags};

use crate::serve::Arguments;

/// Returns the rules that precede all others. These rules admit the named users, root and the
/// server's own user through the socket, and reject all other users there. Returns no rules if no
/// users are named.
pub(crate) fn rules(arguments: &Arguments) -> Result<Vec<ConnectRule>> {
    if arguments.allow_user.is_empty() {
        return Ok(Vec::new());
    }
    let own = rustix::process::geteuid().as_raw();
    let mut principals = vec![PrincipalPattern::Uid(0), PrincipalPattern::Uid(own)];
    for name in &arguments.allow_user {
        principals.push(PrincipalPattern::Uid(number(name)?));
    }
    let local = Peers { from: vec![Origin::Local], ..Peers::default() };
    let named = Peers { principals, ..local.clone() };
    let mut rules =
        vec![ConnectRule { allow: true, peers: named }, ConnectRule { allow: false, peers: local }];
    // No rules limit network clients, so add a rule that admits them as if there were no rules.
    if arguments.allow_from.is_empty() && arguments.connect.is_empty() {
        rules.push(ConnectRule { allow: true, peers: Peers::default() });
    }
    Ok(rules)
}

/// Returns the user id for the name of a local user.
fn number(name: &str) -> Result<u32> {
    let found =
        User::from_name(name).with_context(|| format!("allow-user: looking up {name:?}"))?;
    match (found, name.parse()) {
        (Some(user), _) => Ok(user.uid.as_raw()),
        // Accept a number that is not in the user database: a directory service may be unavailable.
        (None, Ok(number)) if number != u32::MAX => Ok(number),
        (None, _) => {
            bail!("allow-user: this host has no user {name:?}; write a login name or a user number")
        }
    }
}

/// Returns the default path of the socket: the first of the usual paths whose directory can be made
/// or belongs to this user, and which the intended users can reach.
pub(crate) fn usual_socket(arguments: &Arguments) -> Result<Option<PathBuf>> {
    let is_for_others = !arguments.allow_user.is_empty();
    let mut candidates = local_socket_candidates(arguments.tcp_address().port()).into_iter();
    let found =
        candidates.find(|path| path.parent().is_some_and(|at| is_usable(at, is_for_others)));
    if found.is_none() && is_for_others {
        bail!(
            "allow-user: there is no default place for a socket that other users can reach; \
             give --socket PATH"
        );
    }
    Ok(found)
}

/// True if the directory can be made, or exists and belongs to this user. The owner matters,
/// because the owner of a directory could replace the socket in it.
fn is_usable(directory: &Path, is_for_others: bool) -> bool {
    if is_for_others && directory.parent().is_none_or(|above| barrier(above).is_some()) {
        return false;
    }
    let own = rustix::process::geteuid();
    let mode = if own.is_root() { 0o755 } else { 0o700 };
    let _ = std::fs::DirBuilder::new().mode(mode).create(directory);
    // Clients do not trust a socket in a directory that other users can write to.
    let is_own = |metadata: std::fs::Metadata| {
        let is_closed = metadata.mode() & 0o022 == 0;
        metadata.is_dir() && is_closed && [0, own.as_raw()].contains(&metadata.uid())
    };
    std::fs::symlink_metadata(directory).is_ok_and(is_own)
        && rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok()
        && (!is_for_others || let_through(directory).is_ok())
}

/// Lets all users pass through the server's directory to a file whose name they know.
fn let_through(directory: &Path) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory, flags, Mode::empty())?;
    let mode = rustix::fs::fstat(&opened)?.st_mode & 0o7777;
    match mode & SEARCH_OF_ALL {
        SEARCH_OF_ALL => Ok(()),
        _ => rustix::fs::fchmod(&opened, Mode::from_raw_mode(mode | SEARCH_OF_ALL)),
    }
}

/// Opens the socket to the admitted users. If the server acts for all users or the configuration
/// names users, every user of this host may connect, because the kernel reports the user, and the
/// rules reject a user before the first request. A server with the rights of a single user, or one
/// that a program started for itself, keeps its socket private. A new socket is accessible to its
/// owner alone, whatever the umask is.
pub(crate) fn open_sockets(arguments: &Arguments, addresses: &[Address]) {
    let is_for_others = !arguments.allow_user.is_empty();
    let is_ones_own = !is_for_others && !rustix::process::geteuid().is_root();
    if arguments.one_time_password || is_ones_own {
        return;
    }
    for address in addresses {
        let Address::Shm(path) = address else { continue };
        if let Err(error) = open_socket(path) {
            let error = format!("{error:#}");
            tracing::warn!(path = %path.display(), error, "other users cannot connect");
        }
        if let Some(closed) = path.parent().and_then(barrier).filter(|_| is_for_others) {
            tracing::warn!(
                path = %path.display(),
                "the users of allow-user cannot reach the socket: other users may not enter {}; \
                 choose another --socket, or chmod o+x",
                closed.display()
            );
        }
    }
}

/// Lets all users open a socket. A link or another file in its place is refused, and the
/// file that is checked is the file that is changed.
fn open_socket(path: &Path) -> Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&opened)?;
    let is_socket = FileType::from_raw_mode(found.st_mode) == FileType::Socket;
    if !is_socket || found.st_uid != rustix::process::geteuid().as_raw() {
        bail!("it is not the socket of this server");
    }
    let opened = format!("/proc/self/fd/{}", opened.as_raw_fd());
    Ok(std::fs::set_permissions(opened, PermissionsExt::from_mode(0o666))?)
}

/// Returns the first directory of a path through which some users cannot pass, if there is one.
fn barrier(path: &Path) -> Option<&Path> {
    let is_closed = |at: &&Path| {
        let found = std::fs::metadata(if at.as_os_str().is_empty() { Path::new(".") } else { at });
        found.is_ok_and(|metadata| metadata.mode() & 0o001 == 0)
    };
    path.ancestors().find(is_closed)
}

/// The search permission bits of a directory for group and others.
const SEARCH_OF_ALL: u32 = 0o011;
