//! Paths of objects, and names of temporary files.
//!
//! Invariant: each part of a path is the name of a file or directory, byte by byte. `object_store`
//! ensures that a part is not empty, `.` or `..`, and contains no slash or control character.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use dafs_client::{Chain, Session};
use object_store::path::Path;

use crate::error::{Fault, StoreError};

/// The prefix of the names of temporary files. Objects cannot have such names, and listings skip
/// them.
pub(crate) const RESERVED: &str = ".dafs-object-store-";

/// The location of an object: its directories below the root of the store, and its name.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub parents: Vec<String>,
    pub name: String,
    /// The whole path, for messages.
    pub shown: String,
}

impl Place {
    pub(crate) fn of(path: &Path) -> Result<Self, Fault> {
        let mut parents = parts(path).ok_or(Fault::Refused(StoreError::ReservedName))?;
        let name = parents.pop().ok_or(Fault::Refused(StoreError::EmptyPath))?;
        Ok(Self { parents, name, shown: path.to_string() })
    }
}

/// Returns the parts of a path; `None` if a part is reserved for temporary files.
pub(crate) fn parts(path: &Path) -> Option<Vec<String>> {
    let parts: Vec<String> = path.parts().map(|part| part.as_ref().to_owned()).collect();
    let is_reserved = parts.iter().any(|part| part.starts_with(RESERVED));
    (!is_reserved).then_some(parts)
}

/// Returns a new, random name for a temporary file.
pub(crate) fn temporary() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    // The hash has a random key in each process. Creation is exclusive, in case two names are
    // equal.
    let random = std::hash::BuildHasher::hash_one(&*HASHER, (count, time, std::process::id()));
    format!("{RESERVED}{random:016x}{count:x}")
}

static HASHER: std::sync::LazyLock<std::hash::RandomState> =
    std::sync::LazyLock::new(std::hash::RandomState::new);

/// Begins a chain at a directory and adds LOOKUP requests for `names`. Returns the chain and the
/// number of these requests. The server follows no symbolic links.
pub(crate) fn walk<'s>(
    session: &'s Session,
    from: dafs_client::FileHandle,
    names: &[String],
) -> (Chain<'s>, usize) {
    let (mut chain, mut count, mut at) = (session.chain().at(from), 0, 0);
    while at < names.len() {
        let run = fitting(&names[at..]);
        chain = chain.lookup(names[at..at + run].join("/"));
        (count, at) = (count + 1, at + run);
    }
    (chain, count)
}

/// Returns the number of names that fit in one LOOKUP: at least one, which always fits.
fn fitting(names: &[String]) -> usize {
    let mut bytes = 0;
    let fits = names.iter().take(LOOKUP_NAMES_MAX).take_while(|name| {
        bytes += name.len() + 8;
        bytes <= LOOKUP_BYTES_MAX
    });
    fits.count().max(1)
}

/// The maximum number of names that a chain looks up before its other requests. The beginning of a
/// longer path is looked up by earlier chains.
pub(crate) const CHAIN_NAMES_MAX: usize = 16;
/// The maximum number of names in one LOOKUP.
const LOOKUP_NAMES_MAX: usize = 12;
/// The maximum number of bytes of names in one LOOKUP. On the wire a name may take three times its
/// length, and the smallest request size is 2048 bytes.
const LOOKUP_BYTES_MAX: usize = 600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_differ_and_are_no_objects() {
        let (one, other) = (temporary(), temporary());
        assert_ne!(one, other);
        assert!(Place::of(&Path::from(one)).is_err());
        assert!(parts(&Path::from(format!("a/{other}/b"))).is_none());
        assert!(Place::of(&Path::from("")).is_err());
    }

    #[test]
    fn a_lookup_takes_as_many_names_as_fit() {
        let names = |count, length| vec!["n".repeat(length); count];
        assert_eq!(fitting(&names(40, 1)), LOOKUP_NAMES_MAX);
        assert_eq!(fitting(&names(4, 255)), 2);
        assert_eq!(fitting(&names(1, 4000)), 1);
    }
}
