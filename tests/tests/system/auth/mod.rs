//! Tests which clients are admitted, as which user, and to what: rules, trusted clients, Kerberos.

mod acting;
mod guessing;
mod kerberos;
mod returning;
mod rules;
mod tls;
mod tokens;

use std::path::Path;

use dafs_client::{Client, ClientConfig, ClientError, Session, SessionOptions};
use dafs_server::PasswordFile;
use dafs_types::Credentials;

use crate::fixture::{Fixture, Transport};

/// Returns a session, or the reason why there is none.
fn try_connect(
    fixture: &Fixture,
    transport: Transport,
    options: &SessionOptions,
) -> Result<Session, ClientError> {
    let client = Client::new(ClientConfig::default()).unwrap();
    client.connect_to(&fixture.address(transport), options)
}

/// Makes a password file with these users, whose passwords are their names.
pub(crate) fn passwords(file: &Path, users: &[(&str, u32)]) {
    let mut passwords = PasswordFile::default();
    for (name, uid) in users {
        let who = Credentials::plain(*uid, *uid).unwrap();
        passwords.set(name, who, name).unwrap();
    }
    passwords.save(file).unwrap();
}

/// Returns the owner of a local file.
fn owner(file: &Path) -> u32 {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(file).unwrap())
}

/// Lets all users access a path in the served directory.
fn open_to_all(fixture: &Fixture, path: &str) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    for directory in [fixture.root().to_path_buf(), fixture.local(""), fixture.local(path)] {
        std::fs::set_permissions(directory, std::fs::Permissions::clone(&mode)).unwrap();
    }
}
