//! Registered credentials of trusted clients (draft 3.1.1, 3.1.1.1.2, 6.2.8, 6.2.9).
//!
//! Invariant: a request that was given credentials has them until it ends, whatever is
//! released meanwhile; and once a release was answered with OK, no request runs with the
//! credentials it named, and none begins.
//!
//! Credentials belong to a client and serve all of its sessions. A request names them by
//! the handle in its header; [`CredentialTable::acquire`] is two array accesses. What takes
//! a directory of users, a name, is not looked up here: registering it yields a
//! [`CredentialLookup`], which the driver answers when it knows.
//!
//! ```text
//! register ─► looking up ──looked_up──► registered ◄─► in use
//!    │             │ unknown                │ release, if not in use
//!    │             ▼                        ▼
//!    │            gone                     gone
//!    └────(ID, DEFAULT)────────────────► registered
//!
//! client_gone: gone at once, or with the last request or lookup that needs the place
//! ```
//!
//! Where the draft is silent:
//! - RELEASE_CRED of credentials in use is CRHAND_CONFLICT, and changes nothing. No text
//!   says when that status is due, and nothing else could be. So OK means what the
//!   invariant says, and a client that wants to drop a user's rights can rely on it.
//! - A handle that names nothing of this client is NO_CREDS, in requests and in RELEASE_CRED.
//! - More credentials than negotiated are RESOURCE ("the server will return a error").
//! - A user nobody knows is INVAL, the status that REGISTER_CRED's list has for arguments.
//! - GSS names are NOTSUPP unless [`CredentialPolicy::gss_names`] says the driver can map
//!   them; NAME, ID and DEFAULT always work, where DEFAULT has something to stand for.

mod table;

pub use table::{CredentialCounters, CredentialTable, CredentialUse, RegisteredCredential};

use dafs_types::Credentials;

use crate::unkept::ConfigError;

/// Most credentials of all clients together; the index part of a handle has 16 bits.
const CREDENTIALS_LIMIT: u32 = 1 << 16;

/// Limits and policies of registered credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialPolicy {
    /// Whether any client may turn out to be trusted; otherwise none is told that it could
    /// register credentials.
    pub is_served: bool,
    /// Credentials of clients that ask for the default number.
    pub per_client_default: u32,
    /// Most credentials a client may negotiate.
    pub per_client_max: u32,
    /// Most credentials of all clients together.
    pub total_max: u32,
    /// Most supplementary groups of one set; INVAL beyond (draft 6.2.8).
    pub groups_max: u32,
    /// Whether the driver can map GSS names to users.
    pub gss_names: bool,
    /// What DEFAULT stands for; `None` answers it with NOTSUPP.
    pub default: Option<Credentials>,
}

impl Default for CredentialPolicy {
    fn default() -> Self {
        Self {
            is_served: false,
            per_client_default: 64,
            per_client_max: 1024,
            total_max: 8192,
            groups_max: dafs_wire::limits::GROUPS_MAX as u32,
            gss_names: false,
            default: Some(Credentials::nobody()),
        }
    }
}

impl CredentialPolicy {
    /// Checks every limit.
    ///
    /// # Errors
    /// A limit that is zero, beyond what the table can number, or below a default.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let ranges = [
            ("credentials.per_client_max", self.per_client_max, CREDENTIALS_LIMIT),
            ("credentials.total_max", self.total_max, CREDENTIALS_LIMIT),
            ("credentials.groups_max", self.groups_max, dafs_wire::limits::GROUPS_MAX as u32),
        ];
        for (name, value, most) in ranges {
            if !(1..=most).contains(&value) {
                return Err(ConfigError::OutOfRange(name));
            }
        }
        if (1..=self.per_client_max).contains(&self.per_client_default) {
            Ok(())
        } else {
            Err(ConfigError::DefaultOutsideBounds("credentials.per_client_default"))
        }
    }

    /// The number of credentials for a client's first session (draft 6.2.1): 0 asks for
    /// the default. Its later sessions get what [`CredentialTable::join`] says.
    #[must_use]
    pub fn agree(&self, asked: u32) -> u32 {
        if !self.is_served {
            return 0;
        }
        if asked == 0 { self.per_client_default } else { asked.min(self.per_client_max) }
    }
}

/// What came of REGISTER_CRED.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registration {
    /// Answer with this handle.
    Done(dafs_types::CredHandle),
    /// Look somebody up, now or later, and call [`CredentialTable::looked_up`].
    LookUp(CredentialLookup, CredentialName),
}

/// Names one lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CredentialLookup(u32);

/// Whom to look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialName {
    /// A user's name.
    User(Box<str>),
    /// A GSS mechanism name.
    Gss(Box<[u8]>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_ranges_and_the_default_lies_inside() {
        assert_eq!(CredentialPolicy::default().check(), Ok(()));
        let policy = CredentialPolicy { total_max: 1 << 17, ..CredentialPolicy::default() };
        assert_eq!(policy.check(), Err(ConfigError::OutOfRange("credentials.total_max")));
        let policy = CredentialPolicy { per_client_max: 63, ..CredentialPolicy::default() };
        let outside = ConfigError::DefaultOutsideBounds("credentials.per_client_default");
        assert_eq!(policy.check(), Err(outside));
    }

    #[test]
    fn the_server_has_the_last_word_on_the_number() {
        let policy = CredentialPolicy { is_served: true, ..CredentialPolicy::default() };
        assert_eq!([0, 1, 5000].map(|asked| policy.agree(asked)), [64, 1, 1024]);
        assert_eq!(CredentialPolicy::default().agree(5), 0);
    }
}
