//! A user whose password is valid only while this server runs and is not stored in any file.
//!
//! Invariant: the time that a comparison takes does not reveal how many leading bytes of the
//! password are right.

use std::fmt;

use dafs_types::Credentials;

/// The only user of a server that a program starts for its own use.
///
/// The password is not hashed, so it must be long and random, not chosen by a person.
#[derive(Clone)]
pub struct OneTimeUser {
    name: String,
    credentials: Credentials,
    password: String,
}

impl OneTimeUser {
    /// Creates the user. Returns `None` if the password has fewer than 32 bytes, because it could
    /// then be guessed.
    #[must_use]
    pub fn new(name: &str, credentials: Credentials, password: &str) -> Option<Self> {
        let (name, password) = (name.to_owned(), password.to_owned());
        (password.len() >= BYTES_MIN).then_some(Self { name, credentials, password })
    }

    /// Returns the credentials if the user has this name, without a check of the password.
    pub(crate) fn named(&self, name: &str) -> Option<&Credentials> {
        (self.name == name).then_some(&self.credentials)
    }

    /// Returns true if `password` is this user's password. The comparison takes constant time.
    pub(crate) fn is_password(&self, password: &str) -> bool {
        let (own, theirs) = (self.password.as_bytes(), password.as_bytes());
        let differing = own.iter().zip(theirs).fold(0, |sum, (own, theirs)| sum | (own ^ theirs));
        own.len() == theirs.len() && std::hint::black_box(differing) == 0
    }
}

impl fmt::Debug for OneTimeUser {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("OneTimeUser").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The length of the shortest allowed password in bytes: 128 bits in hexadecimal.
const BYTES_MIN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_password_is_right_and_it_is_never_shown() {
        let who = Credentials::plain(7, 8).unwrap();
        let password = "0123456789abcdef0123456789abcdef";
        let user = OneTimeUser::new("own", who, password).unwrap();
        assert!(user.is_password(password));
        for wrong in ["", &password[1..], &password[..31], &format!("{password}0")] {
            assert!(!user.is_password(wrong), "{wrong:?}");
        }
        assert!(!format!("{user:?}").contains("0123"));
        assert!(OneTimeUser::new("own", Credentials::nobody(), "short").is_none());
    }
}
