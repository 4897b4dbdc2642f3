//! Paths of objects, and names of temporary files.
//!
//! Invariant: a part of a path is the name of a file or directory, byte by byte. `object_store`
//! lets no part be empty, `.` or `..`, nor hold a slash or a control character.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use dafs_client::{Chain, Session};
use object_store::path::Path;

use crate::error::{Fault, StoreError};

/// What names of temporary files begin with. No object has such a name, and none is listed.
pub(crate) const RESERVED: &str = ".dafs-object-store-";

/// Where an object is: its directories below the root of the store, and its name.
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

/// The parts of a path; `None` if one of them names a temporary file.
pub(crate) fn parts(path: &Path) -> Option<Vec<String>> {
    let parts: Vec<String> = path.parts().map(|part| part.as_ref().to_owned()).collect();
    let is_reserved = parts.iter().any(|part| part.starts_with(RESERVED));
    (!is_reserved).then_some(parts)
}

/// A name for a temporary file that no other has.
pub(crate) fn temporary() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    // Keyed anew in each process. Should two names be the same after all, creation is exclusive.
    let random = std::hash::BuildHasher::hash_one(&*HASHER, (count, time, std::process::id()));
    format!("{RESERVED}{random:016x}{count:x}")
}

static HASHER: std::sync::LazyLock<std::hash::RandomState> =
    std::sync::LazyLock::new(std::hash::RandomState::new);

/// Begins a chain at a directory and adds the LOOKUPs of `names`. Returns their number with it. The
/// server follows no symbolic links, and neither does a chain.
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

/// The names that one LOOKUP holds: at least one, which always fits.
fn fitting(names: &[String]) -> usize {
    let mut bytes = 0;
    let fits = names.iter().take(LOOKUP_NAMES_MAX).take_while(|name| {
        bytes += name.len() + 8;
        bytes <= LOOKUP_BYTES_MAX
    });
    fits.count().max(1)
}

/// The names that a chain walks before it does what it is for. Longer paths are walked before.
pub(crate) const CHAIN_NAMES_MAX: usize = 16;
/// Names of one LOOKUP.
const LOOKUP_NAMES_MAX: usize = 12;
/// Bytes of names of one LOOKUP. On the wire a name may take three times its length, and the
/// smallest request has 2048 bytes.
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
