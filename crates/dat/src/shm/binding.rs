//! Creates Unix sockets at a path.
//!
//! Invariant: from the moment when a socket is created, only its owner can connect to it, whatever
//! the umask of the process. The only object that is removed from the path is a socket of this
//! server on which no process listens.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode};
use rustix::io::{Errno, Result};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Creates a stream socket at a path. Only this user and root can connect to the socket.
///
/// # Errors
/// The system's error; `AddrInUse` if another object is at the path, or a process listens there.
pub fn listen_privately(path: &Path) -> std::io::Result<UnixListener> {
    let socket = bind(path, SocketType::STREAM, SocketFlags::CLOEXEC)?;
    rustix::net::listen(&socket, STREAM_BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// Creates a socket at a path, replacing a socket on which no process listens any more.
pub(super) fn bind(path: &Path, kind: SocketType, flags: SocketFlags) -> Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let new = || rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None);
    let socket = new()?;
    // The file gets the mode of the socket without the bits of the umask, so that other users can
    // never connect.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    match rustix::net::bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            if !is_ours(path)? || rustix::net::connect(&new()?, &address) != Err(Errno::CONNREFUSED)
            {
                return Err(Errno::ADDRINUSE);
            }
            rustix::fs::unlink(path)?;
            rustix::net::bind(&socket, &address)?;
        }
        other => other?,
    }
    Ok(socket)
}

/// Returns true if the socket at a path belongs to this server's user or, if this user is root, to
/// the owner of the directory.
fn is_ours(path: &Path) -> Result<bool> {
    let found = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
    let own = rustix::process::geteuid();
    let is_socket = FileType::from_raw_mode(found.st_mode) == FileType::Socket;
    let directory = path.parent().filter(|_| own.is_root());
    let keeper = directory.and_then(|directory| rustix::fs::stat(directory).ok());
    let is_keepers = keeper.is_some_and(|keeper| keeper.st_uid == found.st_uid);
    Ok(is_socket && (found.st_uid == own.as_raw() || is_keepers))
}

/// The number of connections that may wait to be accepted.
const STREAM_BACKLOG: i32 = 128;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_is_no_stale_socket_is_never_removed() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        symlink(at("file"), at("link")).unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        for name in ["file", "link", "directory"] {
            let refused = listen_privately(&at(name)).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::AddrInUse, "{name}");
        }
        assert_eq!(std::fs::read(at("file")).unwrap(), b"text");
        let listener = listen_privately(&at("socket")).unwrap();
        assert!(listen_privately(&at("socket")).is_err(), "somebody listens");
        drop(listener);
        let again = listen_privately(&at("socket")).unwrap();
        let _connected = UnixStream::connect(at("socket")).unwrap();
        again.accept().unwrap();
        let metadata = std::fs::symlink_metadata(at("socket")).unwrap();
        assert!(metadata.file_type().is_socket());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn anothers_stale_socket_stays() {
        if !dafs_tests::is_root() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("socket");
        drop(listen_privately(&path).unwrap());
        std::os::unix::fs::chown(&path, Some(41_031), None).unwrap();
        assert!(listen_privately(&path).is_err());
        assert!(path.exists());
    }
}
