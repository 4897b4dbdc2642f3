//! Registered credentials of trusted clients (draft 3.1.1, 3.1.1.1.2, 6.2.8, 6.2.9).
//!
//! Invariants: a request that uses credentials keeps them until it ends, even if they are released
//! meanwhile. After the server has replied OK to a release, no request with the released
//! credentials is in progress or starts.
//!
//! Credentials belong to a client and can be used in all of its sessions. A request contains the
//! handle of the credentials in its header; [`CredentialTable::acquire`] needs only two array
//! accesses. User names are not looked up here: the registration of a name returns a
//! [`CredentialLookup`], and the server reports the result later.
//!
//! ```text
//! register ─► looking up ──looked_up──► registered ◄─► in use
//!    │             │ unknown                │ release, if not in use
//!    │             ▼                        ▼
//!    │            gone                     gone
//!    └────(ID, DEFAULT)────────────────► registered
//!
//! client_gone: gone immediately, or when the last request or lookup that uses the slot ends
//! ```
//!
//! Decisions where the draft does not define the behaviour:
//! - RELEASE_CRED of credentials in use gets CRHAND_CONFLICT, and changes nothing. The draft does
//!   not say when that status is returned, and no other use of it is possible. So the reply OK
//!   means what the invariant says, and a client that wants to remove a user's rights can rely on
//!   it.
//! - A handle that names no credentials of this client gets NO_CREDS, in requests and in
//!   RELEASE_CRED.
//! - A registration beyond the negotiated number gets RESOURCE ("the server will return a error").
//! - An unknown user gets INVAL, the status for arguments in REGISTER_CRED's list.
//! - GSS names get NOTSUPP unless [`CredentialPolicy::gss_names`] says that the server can map
//!   them. NAME and ID are always accepted. DEFAULT is accepted if it is configured.

mod table;

pub use table::{CredentialCounters, CredentialTable, CredentialUse, RegisteredCredential};

use dafs_types::Credentials;

use crate::config_error::ConfigError;

/// The maximum total number of credentials of all clients; the index part of a handle has 16 bits.
const CREDENTIALS_LIMIT: u32 = 1 << 16;

/// Limits and policies of registered credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialPolicy {
    /// True if clients may be trusted at all. If false, the server tells every client that it may
    /// not register credentials.
    pub is_served: bool,
    /// The number of credentials for a client that asks for the default number.
    pub per_client_default: u32,
    /// The maximum number of credentials that a client may negotiate.
    pub per_client_max: u32,
    /// The maximum total number of credentials of all clients.
    pub total_max: u32,
    /// The maximum number of supplementary groups of one identity. A registration with more groups
    /// gets INVAL (draft 6.2.8).
    pub groups_max: u32,
    /// True if the server can map GSS names to users.
    pub gss_names: bool,
    /// The identity for registrations of type DEFAULT. `None` refuses such registrations with
    /// NOTSUPP.
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
    /// [`ConfigError`] with the name of a limit that is zero, exceeds the capacity of the table, or
    /// is less than a default.
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

    /// Returns the number of credentials that a client's first session negotiates (draft 6.2.1),
    /// given the number `asked` in the client's request; 0 asks for the default. For later sessions
    /// of the client, [`CredentialTable::join`] returns the number.
    #[must_use]
    pub fn agree(&self, asked: u32) -> u32 {
        if !self.is_served {
            return 0;
        }
        if asked == 0 { self.per_client_default } else { asked.min(self.per_client_max) }
    }
}

/// The result of REGISTER_CRED.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registration {
    /// The server must reply with this handle.
    Done(dafs_types::CredHandle),
    /// The server must look the name up, now or later, and call [`CredentialTable::looked_up`] with
    /// the result.
    LookUp(CredentialLookup, CredentialName),
}

/// The id of one lookup of a user name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CredentialLookup(u32);

/// A user name that the server must look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialName {
    /// The name of a user of this host.
    User(Box<str>),
    /// The name of a user in the form of a GSS mechanism.
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
    fn the_server_decides_the_number_of_credentials() {
        let policy = CredentialPolicy { is_served: true, ..CredentialPolicy::default() };
        assert_eq!([0, 1, 5000].map(|asked| policy.agree(asked)), [64, 1, 1024]);
        assert_eq!(CredentialPolicy::default().agree(5), 0);
    }
}
