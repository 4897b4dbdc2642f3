//! Looks users up by name, first in the password file, then on this host.
//!
//! Invariant: a lookup may block (on files or directory services), so it runs on the worker pool.

use std::ffi::CString;

use dafs_types::Credentials;
use nix::unistd::{Gid, User, getgrouplist};

use crate::access::live::Live;

/// The sources in which a user name is looked up.
#[derive(Clone, Debug)]
pub(crate) struct Users {
    live: Live,
}

impl Users {
    /// Creates the sources: the current password file first, then this host.
    pub(crate) fn new(live: Live) -> Self {
        Self { live }
    }

    /// Returns the credentials of the user with this name. `None` if no source has the user.
    pub(crate) fn find(&self, name: &str) -> Option<Credentials> {
        if let Some(who) = self.live.passwords().credentials(name) {
            return Some(who);
        }
        match of_this_host(name) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(user = name, %error, "looking up a user failed");
                None
            }
        }
    }
}

/// Looks a user up in the user database of this host (files or directory services).
fn of_this_host(name: &str) -> nix::Result<Option<Credentials>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let Some(user) = name.to_str().ok().map(User::from_name).transpose()?.flatten() else {
        return Ok(None);
    };
    let groups: Vec<u32> = getgrouplist(&name, user.gid)?.into_iter().map(Gid::as_raw).collect();
    // The server treats a user whose ids are invalid as nonexistent.
    Ok(Credentials::new(user.uid.as_raw(), user.gid.as_raw(), groups).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::authorize::AccessRules;
    use crate::access::passwords::PasswordFile;

    #[test]
    fn users_of_the_file_come_before_those_of_the_host() {
        let mut file = PasswordFile::default();
        let who = Credentials::new(4711, 4712, [5]).unwrap();
        file.set("root", who.clone(), "secret").unwrap();
        assert_eq!(Users::new(Live::new(AccessRules::default(), file)).find("root"), Some(who));
        let host = Users::new(Live::default());
        assert_eq!(host.find("root").map(|who| who.uid()), Some(0));
        assert_eq!(host.find("nobody of this name"), None);
        assert_eq!(host.find("ro\0ot"), None);
    }
}
