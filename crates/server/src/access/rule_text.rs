//! Parses access rules from text and formats them as text.

use crate::access::authorize::{Origin, Peers, PrincipalPattern, TransportKind};

use dafs_types::AuthType;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The reason why a rule could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid {what}; write {forms}")]
pub struct RuleError {
    text: String,
    what: &'static str,
    forms: &'static str,
}

impl FromStr for Origin {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        if text == "local" {
            return Ok(Self::Local);
        }
        let error = || RuleError {
            text: text.to_owned(),
            what: "place",
            forms: "local, an address (192.0.2.7) or a network (192.0.2.0/24, 2001:db8::/32)",
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(error)?,
            None => most,
        };
        Ok(Self::Network { address, bits })
    }
}

impl FromStr for TransportKind {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        match text {
            "shm" => Ok(Self::SharedMemory),
            "tcp" => Ok(Self::Tcp),
            "tls" => Ok(Self::Tls),
            "verbs" => Ok(Self::Verbs),
            "nfs" => Ok(Self::Nfs),
            _ => Err(RuleError {
                text: text.to_owned(),
                what: "transport",
                forms: "shm, tcp (which includes TLS), tls, verbs or nfs",
            }),
        }
    }
}

impl FromStr for PrincipalPattern {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let error = || RuleError {
            text: text.to_owned(),
            what: "principal",
            forms: "uid:NUMBER, user:NAME, kerberos:NAME@REALM, certificate:NAME or anonymous; \
                    * in a name stands for anything",
        };
        match text.split_once(':') {
            None if text == "anonymous" => Ok(Self::Anonymous),
            None => Err(error()),
            Some(("uid", number)) => Ok(Self::Uid(number.parse().map_err(|_| error())?)),
            Some((_, "")) => Err(error()),
            Some(("user", name)) => Ok(Self::User(name.to_owned())),
            Some(("kerberos", name)) if name.contains('@') => Ok(Self::Kerberos(name.to_owned())),
            Some(("certificate", name)) => Ok(Self::Certificate(name.to_owned())),
            Some(_) => Err(error()),
        }
    }
}

/// Returns the type of authentication that this name means in a rule.
///
/// # Errors
/// [`RuleError`] if the name is unknown; its text lists the valid names.
pub fn authentication_named(text: &str) -> Result<AuthType, RuleError> {
    match text {
        "none" => Ok(AuthType::None),
        "password" => Ok(AuthType::Text),
        "kerberos" => Ok(AuthType::Gss),
        _ => Err(RuleError {
            text: text.to_owned(),
            what: "type of authentication",
            forms: "none, password or kerberos",
        }),
    }
}

impl fmt::Display for Peers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let mut add = |what: &str, items: Vec<String>| {
            if !items.is_empty() {
                parts.push(format!("{what} {}", items.join(", ")));
            }
        };
        add("from", self.from.iter().map(ToString::to_string).collect());
        add("over", self.transports.iter().map(ToString::to_string).collect());
        add("by", self.authentication.iter().map(|how| named(*how).to_owned()).collect());
        add("as", self.principals.iter().map(ToString::to_string).collect());
        if parts.is_empty() { out.write_str("everybody") } else { out.write_str(&parts.join(" ")) }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => out.write_str("local"),
            Self::Network { address, bits } => write!(out, "{address}/{bits}"),
        }
    }
}

impl fmt::Display for TransportKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::SharedMemory => "shm",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Verbs => "verbs",
            Self::Nfs => "nfs",
        })
    }
}

impl fmt::Display for PrincipalPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uid(uid) => write!(out, "uid:{uid}"),
            Self::Anonymous => out.write_str("anonymous"),
            Self::User(name) => write!(out, "user:{name}"),
            Self::Kerberos(name) => write!(out, "kerberos:{name}"),
            Self::Certificate(name) => write!(out, "certificate:{name}"),
        }
    }
}

/// Returns the name by which rules refer to a type of authentication.
pub(crate) fn named(how: AuthType) -> &'static str {
    match how {
        AuthType::None | AuthType::Default => "none",
        AuthType::Text => "password",
        AuthType::Gss => "kerberos",
    }
}
