//! Checks the owner of a server's socket at a well-known path.
//!
//! Invariant: only root, this process's own user, or the user to whom root has given the directory
//! can create names in the directory and accept connections there. At a path that is named after a
//! user, only root and that user can. The client connects to exactly the object that was checked,
//! because it refers to the directory by a descriptor after the check.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// The rule that decides which users a client trusts to run the server at a Unix socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SocketTrust {
    /// Any user: the caller named this socket explicitly.
    #[default]
    Named,
    /// Root, this user, or the user to whom root has given the socket's directory. The socket was
    /// found at a well-known path, where other users may have put their own.
    Found,
    /// Root or the user with this id. The socket's directory is named after that user, and any
    /// user could create such a directory before that user does.
    OfUser(u32),
}

/// A socket that was found and is trusted.
#[derive(Debug)]
pub struct FoundSocket {
    directory: OwnedFd,
    name: OsString,
    owners: Owners,
}

/// The reason why an existing socket is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum Distrust {
    /// The socket's directory belongs to another user.
    #[error("{path} belongs to user {owner}, who could pose as the server; it is ignored")]
    Directory {
        /// The path of the socket's directory.
        path: PathBuf,
        /// The user id of the directory's owner.
        owner: u32,
    },
    /// Other users may create names in the socket's directory.
    #[error(
        "others may write to {path} (mode {mode:03o}) and could pose as the server; chmod 755 it"
    )]
    Writable {
        /// The path of the socket's directory.
        path: PathBuf,
        /// The permission bits of the directory.
        mode: u32,
    },
    /// The object is not a socket, or belongs to another user.
    #[error("{path} is not a socket of this user, of root or of the service; it is ignored")]
    Socket {
        /// The path of the socket.
        path: PathBuf,
    },
    /// Another user's process accepts connections at the socket.
    #[error("user {owner} listens at {path} and could pose as the server; it is ignored")]
    Peer {
        /// The path of the socket.
        path: PathBuf,
        /// The user id of the listening process.
        owner: u32,
    },
    /// The path or the socket could not be checked.
    #[error("cannot check {path}")]
    System {
        /// The path of the socket.
        path: PathBuf,
        /// The error that the system reported.
        source: std::io::Error,
    },
}

/// The users besides root that may own a path.
#[derive(Clone, Copy, Debug)]
struct Owners {
    /// The user id of this process, or of the user that the path is named after.
    own: u32,
    /// The id of the user to whom root has given the directory, as service managers do in `/run`.
    chosen_by_root: Option<u32>,
}

impl Owners {
    fn has(self, uid: u32) -> bool {
        uid == 0 || uid == self.own || self.chosen_by_root == Some(uid)
    }
}

impl FoundSocket {
    /// Checks a well-known path. Returns `None` if no object is at the path.
    ///
    /// # Errors
    /// [`Distrust`] if the directory or the socket may belong to another user.
    pub fn look(path: &Path) -> Result<Option<Self>, Distrust> {
        Self::look_for(path, None)
    }

    /// Checks a path that is named after a user. Returns `None` if no object is at the path.
    ///
    /// # Errors
    /// [`Distrust`] if the directory or the socket belongs neither to root nor to that user.
    pub fn look_at_place_of(path: &Path, user: u32) -> Result<Option<Self>, Distrust> {
        Self::look_for(path, Some(user))
    }

    /// Checks a path that is named after `user`, or a well-known path if `user` is `None`.
    fn look_for(path: &Path, user: Option<u32>) -> Result<Option<Self>, Distrust> {
        let failed = |source: Errno| Distrust::System { path: path.into(), source: source.into() };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(failed(Errno::INVAL));
        };
        // A symbolic link is not followed, because any user could have created it.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(parent, flags, Mode::empty()) {
            Ok(directory) => directory,
            // A client that may not enter the directory cannot connect to the socket either.
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

    /// Returns a path to exactly this socket, valid until this value is dropped.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.directory.as_raw_fd().to_string()).join(&self.name)
    }

    /// Checks that a trusted user listens at the other end of a connected socket.
    ///
    /// # Errors
    /// [`Distrust::Peer`] if another user listens there.
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

/// Returns the user id under which a server listens at a socket, as reported by the kernel.
///
/// # Errors
/// The system's error if no process accepts a connection at the socket.
pub fn server_user(path: &Path) -> std::io::Result<u32> {
    Ok(listener_of(super::listener::connect(path)?)?)
}

/// Returns the user id of the process that listened at the other end of a connected socket.
fn listener_of(connected: impl AsFd) -> rustix::io::Result<u32> {
    Ok(rustix::net::sockopt::socket_peercred(connected)?.uid.as_raw())
}

/// Returns true if users other than the owner may create names in a directory.
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
        /// Creates a directory with this mode and with a socket in it. Its parent is a directory
        /// that all users may write to.
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
        // Another user's directory at the same path changes nothing after the check.
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
        if !dafs_tests::is_root() {
            return;
        }
        let place = Place::new(0o755);
        let directory = place.top.path().join("dafs");
        chown(&directory, Some(41_021), None).unwrap();
        chown(directory.join("socket"), Some(41_021), None).unwrap();
        assert!(matches!(place.look("dafs/socket"), Err(Distrust::Directory { .. })));
        // The permissions that a service manager sets in /run.
        std::fs::set_permissions(place.top.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let found = place.look("dafs/socket").unwrap().unwrap();
        assert!(found.owners.has(41_021) && found.owners.has(0) && !found.owners.has(41_022));
    }
}
