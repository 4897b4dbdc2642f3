//! Users of this host whom a server lets in by its Unix socket.
//!
//! Invariant: where users are named, nobody else of this host gets in by the socket but root and
//! the server's own user, and the socket lies where those who are named can reach it. What they may
//! do is for the permissions of the files to say: the kernel names each of them.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use dafs_client::local_socket_candidates;
use dafs_dat::Address;
use dafs_server::{ConnectRule, Origin, Peers, PrincipalPattern};
use nix::unistd::User;
use rustix::fs::{Mode, OFlags};

use crate::serve::Arguments;

/// The rules that come before all others: they let in the users named, root and the server's own by
/// the socket, and nobody else by it. None, if no users are named.
pub fn rules(arguments: &Arguments) -> Result<Vec<ConnectRule>> {
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
    // Nothing is said of the network: there everybody may come as without these rules.
    if arguments.allow_from.is_empty() && arguments.connect.is_empty() {
        rules.push(ConnectRule { allow: true, peers: Peers::default() });
    }
    Ok(rules)
}

/// The number of a user of this host.
fn number(name: &str) -> Result<u32> {
    let found =
        User::from_name(name).with_context(|| format!("allow-user: looking up {name:?}"))?;
    match (found, name.parse()) {
        (Some(user), _) => Ok(user.uid.as_raw()),
        // It may be that of somebody whom a directory service does not tell now.
        (None, Ok(number)) if number != u32::MAX => Ok(number),
        (None, _) => {
            bail!("allow-user: this host has no user {name:?}; write a login name or a user number")
        }
    }
}

/// Where the socket goes that nobody has named: the first usual place whose directory can be made
/// or is ours, and which those it is for can reach.
pub fn usual_socket(arguments: &Arguments) -> Result<Option<PathBuf>> {
    let is_for_others = !arguments.allow_user.is_empty();
    let mut candidates = local_socket_candidates(arguments.tcp_address().port()).into_iter();
    let found =
        candidates.find(|path| path.parent().is_some_and(|at| is_usable(at, is_for_others)));
    if found.is_none() && is_for_others {
        bail!(
            "allow-user: there is no usual place for a socket that other users can reach; \
             give --socket PATH"
        );
    }
    Ok(found)
}

/// Whether a directory can be made, or is there and is this user's own: whoever owns it
/// could put another socket in the place of ours.
fn is_usable(directory: &Path, is_for_others: bool) -> bool {
    if is_for_others && directory.parent().is_none_or(|above| barrier(above).is_some()) {
        return false;
    }
    let own = rustix::process::geteuid();
    let mode = if own.is_root() { 0o755 } else { 0o700 };
    let _ = std::fs::DirBuilder::new().mode(mode).create(directory);
    // Clients believe no socket in a directory that others may write to.
    let is_own = |metadata: std::fs::Metadata| {
        let is_closed = metadata.mode() & 0o022 == 0;
        metadata.is_dir() && is_closed && [0, own.as_raw()].contains(&metadata.uid())
    };
    std::fs::symlink_metadata(directory).is_ok_and(is_own)
        && rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok()
        && (!is_for_others || let_through(directory).is_ok())
}

/// Lets everybody through a directory of our own, to what they know the name of.
fn let_through(directory: &Path) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory, flags, Mode::empty())?;
    let mode = rustix::fs::fstat(&opened)?.st_mode & 0o7777;
    match mode & SEARCH_OF_ALL {
        SEARCH_OF_ALL => Ok(()),
        _ => rustix::fs::fchmod(&opened, Mode::from_raw_mode(mode | SEARCH_OF_ALL)),
    }
}

/// Opens the socket to those who are let in. A server that acts for everybody lets everybody
/// connect, and one that names users those: the kernel says who they are, and the rules keep others
/// out before they have said a word. One that has a single user's rights, or is there for the
/// program that started it, keeps its socket to that user: sockets begin as their owner's alone,
/// whatever the umask is.
pub fn open_sockets(arguments: &Arguments, addresses: &[Address]) {
    let is_for_others = !arguments.allow_user.is_empty();
    let is_ones_own = !is_for_others && !rustix::process::geteuid().is_root();
    if arguments.one_time_password || is_ones_own {
        return;
    }
    for address in addresses {
        let Address::Shm(path) = address else { continue };
        if let Err(error) = std::fs::set_permissions(path, PermissionsExt::from_mode(0o666)) {
            tracing::warn!(path = %path.display(), %error, "others cannot connect");
        }
        if let Some(closed) = path.parent().and_then(barrier).filter(|_| is_for_others) {
            tracing::warn!(
                path = %path.display(),
                "those of allow-user cannot reach the socket: {} lets nobody else through; choose \
                 another --socket, or chmod o+x",
                closed.display()
            );
        }
    }
}

/// The first directory of a way that does not let everybody through.
fn barrier(path: &Path) -> Option<&Path> {
    let is_closed = |at: &&Path| {
        let found = std::fs::metadata(if at.as_os_str().is_empty() { Path::new(".") } else { at });
        found.is_ok_and(|metadata| metadata.mode() & 0o001 == 0)
    };
    path.ancestors().find(is_closed)
}

/// Search of a directory, for its group and for all others.
const SEARCH_OF_ALL: u32 = 0o011;
