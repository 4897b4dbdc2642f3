//! Reads certificates and keys from files.
//!
//! Invariant: a private key is used only if no user other than its owner, root and a group chosen
//! by root can read the file. The check uses the open file, not its name.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsConfigError;

/// Reads all certificates from a file, in their order in the file; at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let text = read(path, &open(path)?)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| content(path, error.to_string()))?;
    if found.is_empty() {
        return Err(content(path, "it contains no PEM certificate"));
    }
    Ok(found)
}

/// Reads the certificates of authorities from a file.
pub(super) fn authorities(path: &Path) -> Result<RootCertStore, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    for (index, certificate) in certificates(path)?.into_iter().enumerate() {
        let number = index + 1;
        let added = roots.add(certificate);
        added.map_err(|error| content(path, format!("certificate {number}: {error}")))?;
    }
    Ok(roots)
}

/// Reads a private key from a file. Refuses a file that other users could read.
pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsConfigError> {
    let file = open(path)?;
    // Check the open file, because the name may lead to another file a moment later.
    let metadata = file.metadata().map_err(|source| system(path, source))?;
    check_key(path, &metadata, rustix::process::geteuid().as_raw())?;
    PrivateKeyDer::from_pem_slice(&read(path, &file)?).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            content(path, "it contains no PEM private key, or an encrypted one")
        }
        other => content(path, other.to_string()),
    })
}

/// Checks owner and permissions by the rules of PostgreSQL and others: a key may belong to this
/// user and be readable by this user only, or belong to root and be readable by a group.
fn check_key(path: &Path, metadata: &Metadata, user: u32) -> Result<(), TlsConfigError> {
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o777);
    if owner != user && owner != 0 {
        return Err(TlsConfigError::KeyOwner { path: path.into(), uid: owner });
    }
    let forbidden = if owner == 0 { 0o037 } else { 0o077 };
    if mode & forbidden != 0 {
        return Err(TlsConfigError::KeyMode { path: path.into(), mode });
    }
    Ok(())
}

fn open(path: &Path) -> Result<File, TlsConfigError> {
    File::open(path).map_err(|source| system(path, source))
}

fn read(path: &Path, file: &File) -> Result<Vec<u8>, TlsConfigError> {
    let mut text = Vec::new();
    let taken = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text);
    taken.map_err(|source| system(path, source))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(content(path, "too long for a file of certificates"));
    }
    Ok(text)
}

fn system(path: &Path, source: io::Error) -> TlsConfigError {
    TlsConfigError::System { path: path.into(), source }
}

pub(super) fn content(path: &Path, what: impl Into<String>) -> TlsConfigError {
    TlsConfigError::Content { path: path.into(), what: what.into() }
}

/// The maximum size of a file in bytes. A file with all authorities of the public web has about a
/// fifth of this size.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let judge = |mode, user| {
            file.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).unwrap();
            check_key(file.path(), &file.as_file().metadata().unwrap(), user)
        };
        let owner = file.as_file().metadata().unwrap().uid();
        assert!(judge(0o600, owner).is_ok());
        assert!(judge(0o400, owner).is_ok());
        for mode in [0o604, 0o602, 0o660, 0o644, 0o777, 0o601] {
            let error = judge(mode, owner).unwrap_err();
            assert!(matches!(error, TlsConfigError::KeyMode { mode: m, .. } if m == mode));
        }
        // Root may share its key with a group. Another user must not share it at all.
        assert_eq!(judge(0o640, owner).is_ok(), owner == 0);
        // A key that belongs to neither root nor the user is not used, whatever its mode.
        let stranger = judge(0o600, owner + 1);
        assert_eq!(stranger.is_ok(), owner == 0, "{stranger:?}");
    }

    #[test]
    fn what_is_wrong_with_a_file_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "nothing of use\n").unwrap();
        let name = file.path().display().to_string();
        let no_certificate = certificates(file.path()).unwrap_err().to_string();
        assert!(no_certificate.contains(&name) && no_certificate.contains("no PEM certificate"));
        let no_key = private_key(file.path()).unwrap_err().to_string();
        assert!(no_key.contains(&name) && no_key.contains("no PEM private key"));
        let missing = certificates(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(matches!(missing, TlsConfigError::System { .. }));
    }
}
