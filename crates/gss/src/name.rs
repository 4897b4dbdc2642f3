//! The names of services and of authenticated clients.
//!
//! Invariant: a name is text of at most [`NAME_BYTES_MAX`] bytes and contains no NUL.

use std::fmt;
use std::str::FromStr;

use crate::NAME_BYTES_MAX;

/// The service name of a server that conforms to the draft: `dafs@host` (draft 6.2.2).
const SERVICE: &str = "dafs";

/// The name of a service that a server provides or to which a client authenticates.
///
/// Text such as `dafs@host` is parsed as a host-based service. The configuration of Kerberos
/// determines its realm, and the library may ask a name server for the canonical name of the host
/// (`dns_canonicalize_hostname` in `krb5.conf`). Text with a slash, such as `dafs/host@REALM`, is a
/// principal and is used unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceName {
    text: String,
    is_principal: bool,
}

impl ServiceName {
    /// Returns the name `dafs@host`.
    ///
    /// # Errors
    /// [`NameError`] if the name of the host is empty, too long or contains invalid characters.
    pub fn of_host(host: &str) -> Result<Self, NameError> {
        if host.contains('/') {
            return Err(NameError::Malformed(host.to_owned()));
        }
        format!("{SERVICE}@{host}").parse()
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_principal(&self) -> bool {
        self.is_principal
    }
}

impl FromStr for ServiceName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let is_principal = text.contains('/');
        let separator = if is_principal { '/' } else { '@' };
        let has_both = text
            .split_once(separator)
            .is_some_and(|(service, host)| !service.is_empty() && !host.is_empty());
        checked(text)?;
        if has_both {
            Ok(Self { text: text.to_owned(), is_principal })
        } else {
            Err(NameError::Malformed(text.to_owned()))
        }
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// A principal in Kerberos' notation: `alice@REALM`, with special characters escaped by
/// backslashes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal(String);

impl Principal {
    /// Wraps text as a principal. The library parses it only when it is used.
    ///
    /// # Errors
    /// [`NameError`] if the text is empty, too long or contains a NUL.
    pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
        let text = text.into();
        checked(&text)?;
        Ok(Self(text))
    }

    /// Returns the principal as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The reason why text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text has neither form of a service name.
    #[error("{0:?} names no service: expected service@host or service/host@REALM")]
    Malformed(String),
    /// The text is empty, too long or contains a NUL.
    #[error("a name has between 1 and {NAME_BYTES_MAX} bytes and no NUL; this one has {length}")]
    Impossible {
        /// The length of the text in bytes.
        length: usize,
    },
}

fn checked(text: &str) -> Result<(), NameError> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX || text.contains('\0') {
        return Err(NameError::Impossible { length: text.len() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_tells_service_and_principal_apart() {
        let service: ServiceName = "dafs@server.example".parse().unwrap();
        assert!(!service.is_principal());
        assert_eq!(ServiceName::of_host("server.example"), Ok(service));
        let principal: ServiceName = "dafs/server.example@EXAMPLE".parse().unwrap();
        assert!(principal.is_principal());
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for text in ["dafs", "@host", "dafs@", "/host", "dafs/"] {
            let refusal = text.parse::<ServiceName>();
            assert_eq!(refusal, Err(NameError::Malformed(text.to_owned())));
        }
        for text in ["", "dafs@ho\0st", &format!("dafs@{}", "x".repeat(NAME_BYTES_MAX))] {
            let refusal = text.parse::<ServiceName>();
            assert_eq!(refusal, Err(NameError::Impossible { length: text.len() }));
        }
        assert!(ServiceName::of_host("").is_err());
        assert!(ServiceName::of_host("host/other").is_err());
        assert!(Principal::new("a\0b").is_err());
    }
}
