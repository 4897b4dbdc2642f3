//! The system's GSS-API library, loaded at its first use.
//!
//! Invariant: the library is never unloaded, because only it can free its per-thread data. A
//! failure to load is not remembered, so the library may be installed later.

use std::sync::{Arc, OnceLock};

use crate::calls::Name;
use crate::error::{self, GssError};
use crate::name::Principal;
use crate::raw::{Functions, PRINCIPAL};

/// The file name of the library since MIT krb5 1.1, on every Linux distribution.
const FILE: &str = "libgssapi_krb5.so.2";

/// The loaded library, shared by all objects created with it.
pub struct Library {
    pub(crate) functions: Functions,
}

/// The reason why Kerberos authentication is not available. Nothing else depends on the library.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GssUnavailable {
    /// The library cannot be loaded.
    #[error(
        "Kerberos authentication needs {file}, which cannot be loaded: install the package \
         libgssapi-krb5-2 (Debian, Ubuntu), krb5-libs (Fedora, RHEL, Alpine) or krb5 (SUSE, Arch)"
    )]
    Missing {
        /// The file name of the library.
        file: &'static str,
        /// The error of the loader.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The library lacks a function that MIT krb5 has since 1.11 (2012).
    #[error("{file} has no {function}: Kerberos authentication needs MIT krb5 1.11 or later")]
    TooOld {
        /// The file name of the library.
        file: &'static str,
        /// The name of the missing function.
        function: &'static str,
        /// The error of the loader.
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
    /// Loads the library, or returns the one already loaded. Loading reads files.
    ///
    /// # Errors
    /// [`GssUnavailable`] if the host has no library or one that is too old. The message says what
    /// to install.
    pub fn load() -> Result<Arc<Self>, GssUnavailable> {
        static LOADED: OnceLock<Arc<Library>> = OnceLock::new();
        if let Some(library) = LOADED.get() {
            return Ok(Arc::clone(library));
        }
        let library = Arc::new(Self { functions: Functions::load(FILE)? });
        Ok(Arc::clone(LOADED.get_or_init(|| library)))
    }

    /// Returns the local user of a principal by the rules in `krb5.conf` (`auth_to_local`), or
    /// `None` if there is none. Without rules, `alice` of the default realm is the user `alice`,
    /// and `root` of the default realm is `root`. The caller must decide if that is acceptable.
    ///
    /// # Errors
    /// [`GssError`] if the text is not a valid principal or the rules cannot be read.
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
