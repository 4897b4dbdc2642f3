//! The system's GSS-API library, found when it is first wanted.
//!
//! Invariant: once loaded it stays, for it leaves threads' data behind that it must free
//! itself; a failure to load is not remembered, so that it may be installed meanwhile.

use std::sync::{Arc, OnceLock};

use crate::calls::Name;
use crate::error::{self, GssError};
use crate::name::Principal;
use crate::raw::{Functions, PRINCIPAL};

/// The library's name since 1.1 of MIT krb5, on every Linux distribution.
const FILE: &str = "libgssapi_krb5.so.2";

/// The loaded library; shared by everything that was made with it.
pub struct Library {
    pub(crate) functions: Functions,
}

/// Why the host has no Kerberos authentication. Nothing else depends on it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GssUnavailable {
    /// There is no library.
    #[error(
        "Kerberos authentication needs {file}, which cannot be loaded: install the package \
         libgssapi-krb5-2 (Debian, Ubuntu), krb5-libs (Fedora, RHEL, Alpine) or krb5 (SUSE, Arch)"
    )]
    Missing {
        /// The file looked for.
        file: &'static str,
        /// What the loader said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The library lacks what 1.11 of MIT krb5 (2012) brought.
    #[error("{file} has no {function}: Kerberos authentication needs MIT krb5 1.11 or later")]
    TooOld {
        /// The file.
        file: &'static str,
        /// What is not there.
        function: &'static str,
        /// What the loader said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// This build of the library never loads it.
    #[error(
        "this program was built without Kerberos: build it with the feature `kerberos` of \
         dafs-client (`library` of dafs-gss)"
    )]
    NotBuilt,
}

impl Library {
    /// Loads the library, or hands out the one that is loaded. Reads files when it loads.
    ///
    /// # Errors
    /// If the host has none, or one that is too old; the message says what to install.
    pub fn load() -> Result<Arc<Self>, GssUnavailable> {
        static LOADED: OnceLock<Arc<Library>> = OnceLock::new();
        if let Some(library) = LOADED.get() {
            return Ok(Arc::clone(library));
        }
        let library = Arc::new(Self { functions: Functions::load(FILE)? });
        Ok(Arc::clone(LOADED.get_or_init(|| library)))
    }

    /// The local user a principal is, by the rules of `krb5.conf` (`auth_to_local`); `None`
    /// if it is nobody here. Without rules `alice` of the default realm is `alice`, and
    /// so is `root` `root`: whether that is wanted the caller decides.
    ///
    /// # Errors
    /// If the text is no principal, or the rules cannot be read.
    pub fn local_name(self: &Arc<Self>, who: &Principal) -> Result<Option<String>, GssError> {
        let name = Name::import(self, who.as_str(), &PRINCIPAL)?;
        match name.local_name() {
            Ok(local) => Ok(Some(local)),
            Err(error) if error::is_without_local_name(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl std::fmt::Debug for Library {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Library").field("file", &FILE).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "library"))]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_it_is_told_what_to_install() {
        let Err(error) = Functions::load("libgssapi_krb5.so.none") else {
            panic!("there is no such library");
        };
        assert!(matches!(error, GssUnavailable::Missing { .. }));
        assert!(error.to_string().contains("libgssapi-krb5-2"), "{error}");
    }

    #[test]
    fn another_library_is_not_taken_for_it() {
        let Err(error) = Functions::load("libc.so.6") else {
            panic!("the C library has no GSS-API");
        };
        assert!(error.to_string().contains("1.11"), "{error}");
    }
}
