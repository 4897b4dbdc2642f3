//! Sockets at well-known places, and whose server there can be believed.
//!
//! Invariant: whoever may make names in the place's directory, and whoever answers, is root, this
//! process's own user, or whom root has given the directory to; at a place that is named after a
//! user it is root or that one. What was looked at is what is connected to: from the look on, the
//! directory is a descriptor.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// Whose server at a Unix socket a client talks to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SocketTrust {
    /// Anybody's: whoever connects has been told of that socket, and means it.
    #[default]
    Named,
    /// Root's, this user's, or that of whom root gave the socket's directory to: the socket was
    /// found at a place where anybody may look, and others may have put theirs there.
    Found,
    /// Root's or this user's: the socket was named, and its directory is called after the user,
    /// where anybody may make such a directory while the user has none.
    OfUser(u32),
}

/// A socket that was found, and can be believed.
#[derive(Debug)]
pub struct FoundSocket {
    directory: OwnedFd,
    name: OsString,
    owners: Owners,
}

/// Why a server that was found is not talked to.
#[derive(Debug, thiserror::Error)]
pub enum Distrust {
    /// Its directory is somebody else's.
    #[error("{path} belongs to user {owner}, who could pose as the server; it is passed over")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// Others may make names in its directory.
    #[error(
        "others may write to {path} (mode {mode:03o}), and could pose as the server; chmod 755 it"
    )]
    Writable {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The socket is somebody else's, or none.
    #[error("{path} is no socket of this user's, of root's or of the service's; it is passed over")]
    Socket {
        /// The socket.
        path: PathBuf,
    },
    /// Somebody else listens.
    #[error("user {owner} answers at {path}, who poses as the server; it is passed over")]
    Peer {
        /// The socket.
        path: PathBuf,
        /// Who listens.
        owner: u32,
    },
    /// It could not be looked at.
    #[error("cannot look at {path}")]
    System {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Who may stand behind a name.
#[derive(Clone, Copy, Debug)]
struct Owners {
    /// This process's user, or whom the place is named after.
    own: u32,
    /// Whom root has given the directory to, as service managers do in `/run`.
    chosen_by_root: Option<u32>,
}

impl Owners {
    fn has(self, uid: u32) -> bool {
        uid == 0 || uid == self.own || self.chosen_by_root == Some(uid)
    }
}

impl FoundSocket {
    /// Looks at a place. `None` if nothing is there.
    ///
    /// # Errors
    /// [`Distrust`] if what is there may be another user's.
    pub fn look(path: &Path) -> Result<Option<Self>, Distrust> {
        Self::look_for(path, None)
    }

    /// Looks at a place of this user's. `None` if nothing is there.
    ///
    /// # Errors
    /// [`Distrust`] if what is there is neither root's nor that user's.
    pub fn look_at_place_of(path: &Path, user: u32) -> Result<Option<Self>, Distrust> {
        Self::look_for(path, Some(user))
    }

    /// Looks at a place of this user's, or else at a usual one.
    fn look_for(path: &Path, user: Option<u32>) -> Result<Option<Self>, Distrust> {
        let failed = |source: Errno| Distrust::System { path: path.into(), source: source.into() };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(failed(Errno::INVAL));
        };
        // A link there is whoever's who made it.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(parent, flags, Mode::empty()) {
            Ok(directory) => directory,
            // Who may not enter it does not get to the socket either.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let seen = rustix::fs::fstat(&directory).map_err(failed)?;
        let above = rustix::fs::statat(&directory, "..", AtFlags::empty()).map_err(failed)?;
        let is_roots_choice = user.is_none() && above.st_uid == 0 && !others_may_write(&above);
        let own = user.unwrap_or_else(|| rustix::process::geteuid().as_raw());
        let owners = Owners { own, chosen_by_root: is_roots_choice.then_some(seen.st_uid) };
        let socket = match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(socket) => socket,
            Err(Errno::ACCESS) if user.is_none() => return Ok(None),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        if !owners.has(seen.st_uid) {
            return Err(Distrust::Directory { path: parent.into(), owner: seen.st_uid });
        }
        if others_may_write(&seen) {
            let mode = seen.st_mode & 0o777;
            return Err(Distrust::Writable { path: parent.into(), mode });
        }
        let is_socket = FileType::from_raw_mode(socket.st_mode) == FileType::Socket;
        if !is_socket || !owners.has(socket.st_uid) {
            return Err(Distrust::Socket { path: path.into() });
        }
        Ok(Some(Self { directory, name: name.to_owned(), owners }))
    }

    /// A path by which exactly this socket is connected to, for as long as this value lives.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.directory.as_raw_fd().to_string()).join(&self.name)
    }

    /// Whether who answers is who may.
    ///
    /// # Errors
    /// [`Distrust::Peer`] if not.
    pub fn judge(&self, connected: impl AsFd, path: &Path) -> Result<(), Distrust> {
        let peer = listener_of(connected)
            .map_err(|source| Distrust::System { path: path.into(), source: source.into() })?;
        match self.owners.has(peer) {
            true => Ok(()),
            false => Err(Distrust::Peer { path: path.into(), owner: peer }),
        }
    }
}

impl From<Distrust> for std::io::Error {
    fn from(distrust: Distrust) -> Self {
        Self::new(std::io::ErrorKind::PermissionDenied, distrust)
    }
}

/// As which user the server listens at a socket, by the kernel's word.
///
/// # Errors
/// What the system says if nobody can be connected to there.
pub fn server_user(path: &Path) -> std::io::Result<u32> {
    Ok(listener_of(super::listener::connect(path)?)?)
}

/// As which user the other side of a connected socket listened.
fn listener_of(connected: impl AsFd) -> rustix::io::Result<u32> {
    Ok(rustix::net::sockopt::socket_peercred(connected)?.uid.as_raw())
}

/// Whether others than the owner may make names in a directory.
fn others_may_write(directory: &Stat) -> bool {
    directory.st_mode & 0o022 != 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    struct Place {
        top: tempfile::TempDir,
        _listener: UnixListener,
    }

    impl Place {
        /// A directory of this mode with a socket in it, in a directory that anybody may write to.
        fn new(mode: u32) -> Self {
            let top = tempfile::tempdir().unwrap();
            let directory = top.path().join("dafs");
            std::fs::create_dir(&directory).unwrap();
            let listener = UnixListener::bind(directory.join("socket")).unwrap();
            std::fs::set_permissions(&directory, PermissionsExt::from_mode(mode)).unwrap();
            std::fs::set_permissions(top.path(), PermissionsExt::from_mode(0o1777)).unwrap();
            Self { top, _listener: listener }
        }

        fn look(&self, path: &str) -> Result<Option<FoundSocket>, Distrust> {
            FoundSocket::look(&self.top.path().join(path))
        }
    }

    #[test]
    fn ones_own_socket_is_believed_and_connected_to_by_the_directory_that_was_seen() {
        let place = Place::new(0o700);
        let found = place.look("dafs/socket").unwrap().unwrap();
        // Somebody else's directory in the place of what was looked at changes nothing.
        std::fs::rename(place.top.path().join("dafs"), place.top.path().join("away")).unwrap();
        let stream = std::os::unix::net::UnixStream::connect(found.path()).unwrap();
        found.judge(&stream, Path::new("dafs/socket")).unwrap();
        assert!(place.look("dafs/socket").unwrap().is_none());
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_not_believed() {
        for mode in [0o777, 0o1777, 0o770, 0o702] {
            let refused = Place::new(mode).look("dafs/socket").unwrap_err();
            assert!(matches!(refused, Distrust::Writable { .. }), "{mode:o}: {refused}");
        }
    }

    #[test]
    fn links_and_files_are_no_sockets() {
        let place = Place::new(0o700);
        symlink(place.top.path().join("dafs"), place.top.path().join("link")).unwrap();
        assert!(place.look("link/socket").unwrap().is_none());
        let directory = place.top.path().join("dafs");
        symlink(directory.join("socket"), directory.join("other")).unwrap();
        std::fs::write(directory.join("file"), "").unwrap();
        for name in ["dafs/other", "dafs/file"] {
            assert!(matches!(place.look(name), Err(Distrust::Socket { .. })), "{name}");
        }
    }

    #[test]
    fn anothers_directory_is_believed_only_where_root_alone_makes_directories() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can give a directory away");
            return;
        }
        let place = Place::new(0o755);
        let directory = place.top.path().join("dafs");
        chown(&directory, Some(41_021), None).unwrap();
        chown(directory.join("socket"), Some(41_021), None).unwrap();
        assert!(matches!(place.look("dafs/socket"), Err(Distrust::Directory { .. })));
        // As a service manager makes them in /run.
        std::fs::set_permissions(place.top.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let found = place.look("dafs/socket").unwrap().unwrap();
        assert!(found.owners.has(41_021) && found.owners.has(0) && !found.owners.has(41_022));
    }
}
