//! The security flavors of NFS clients: AUTH_SYS, and Kerberos with three protections.

use std::fmt;

use super::rules::NfsClients;
use crate::access::authorize::PartialTerms;

/// A security flavor: how the calls of a client are authenticated and protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flavor {
    /// The client states the ids of its users, without proof.
    Sys,
    /// Users authenticate by Kerberos. Arguments and results are not protected.
    Krb5,
    /// Users authenticate by Kerberos. Arguments and results have checksums.
    Krb5i,
    /// Users authenticate by Kerberos. Arguments and results are encrypted.
    Krb5p,
}

/// The terms of an entry for calls with one flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorTerms {
    /// The flavor of the calls.
    pub flavor: Flavor,
    /// The terms for these calls.
    pub terms: PartialTerms,
    /// True if calls are served whatever the port of the client is. It matters only for AUTH_SYS,
    /// because Kerberos proves who calls.
    pub any_port: bool,
}

impl Flavor {
    /// All flavors, the weakest first.
    pub const ALL: [Self; 4] = [Self::Sys, Self::Krb5, Self::Krb5i, Self::Krb5p];

    /// Returns the name of the flavor in exports(5).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sys => "sys",
            Self::Krb5 => "krb5",
            Self::Krb5i => "krb5i",
            Self::Krb5p => "krb5p",
        }
    }

    /// Returns the flavor with a name of exports(5). `None` if the server has no such flavor.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|flavor| flavor.name() == name)
    }

    /// Parses a list with the syntax of the option `sec` of exports(5): names with colons between
    /// them, the preferred flavor first.
    ///
    /// # Errors
    /// The first name that is no flavor of the server.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        let mut list = Vec::new();
        for name in text.split(':') {
            let flavor = Self::from_name(name).ok_or_else(|| {
                format!(
                    "{name:?} is no flavor; write sys, krb5, krb5i or krb5p, or several with colons"
                )
            })?;
            if !list.contains(&flavor) {
                list.push(flavor);
            }
        }
        Ok(list)
    }
}

impl NfsClients {
    /// Returns the terms for calls with a flavor, and whether any port will do. `None` if the entry
    /// does not accept the flavor. For no flavor in particular, returns the first terms.
    pub(crate) fn terms_of(&self, flavor: Option<Flavor>) -> Option<(&PartialTerms, bool)> {
        let Some(flavor) = flavor else {
            let any_port = match self.flavors.is_empty() {
                true => self.any_port,
                false => self.flavors.iter().any(|of| of.any_port || of.flavor != Flavor::Sys),
            };
            let terms = self.flavors.first().map_or(&self.terms, |of| &of.terms);
            return Some((terms, any_port));
        };
        if self.flavors.is_empty() {
            return (flavor == Flavor::Sys).then_some((&self.terms, self.any_port));
        }
        let own = self.flavors.iter().find(|of| of.flavor == flavor)?;
        Some((&own.terms, own.any_port || flavor != Flavor::Sys))
    }

    /// Returns the terms for AUTH_SYS, and whether any port will do. `None` if the entry accepts
    /// only calls whose user Kerberos has proved.
    #[must_use]
    pub fn sys_terms(&self) -> Option<(&PartialTerms, bool)> {
        self.terms_of(Some(Flavor::Sys))
    }

    /// Makes the entry accept these flavors, on the terms that it has for all calls.
    pub(crate) fn accept(&mut self, flavors: &[Flavor]) {
        let Self { terms, any_port, .. } = self;
        let of = |flavor: &Flavor| FlavorTerms {
            flavor: *flavor,
            terms: terms.clone(),
            any_port: *any_port,
        };
        self.flavors = flavors.iter().map(of).collect();
    }

    /// Returns true if the entry accepts calls that are authenticated by Kerberos.
    pub(crate) fn needs_kerberos(&self) -> bool {
        self.flavors.iter().any(|of| of.flavor != Flavor::Sys)
    }
}

impl fmt::Display for Flavor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}
