//! A list of names: the components of a path, or fence identities.
//!
//! Invariant: encoded names are checked once, from start to end, when they are decoded. Iterating
//! over them cannot fail and allocates nothing.

use std::borrow::Cow;
use std::fmt;

use crate::codec::{Code, put_count};

/// An ordered list of names, stored in one of several forms. Two lists are equal if they have the
/// same names in the same order.
#[derive(Clone, Copy)]
pub struct Names<'m>(Source<'m>);

#[derive(Clone, Copy)]
enum Source<'m> {
    Slices(&'m [&'m [u8]]),
    Cows(&'m [Cow<'m, [u8]>]),
    /// The names as in an encoded operation: each name is preceded by its length.
    Encoded {
        bytes: &'m [u8],
        count: usize,
    },
}

impl<'m> Names<'m> {
    /// Creates a list of borrowed names.
    #[must_use]
    pub fn new(names: &'m [&'m [u8]]) -> Self {
        Self(Source::Slices(names))
    }

    /// Creates a list of names, some of which may be owned.
    #[must_use]
    pub fn of(names: &'m [Cow<'m, [u8]>]) -> Self {
        Self(Source::Cows(names))
    }

    /// Returns the number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {
            Source::Slices(names) => names.len(),
            Source::Cows(names) => names.len(),
            Source::Encoded { count, .. } => count,
        }
    }

    /// Returns true if there are no names.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over the names in order.
    pub fn iter(&self) -> impl Iterator<Item = &'m [u8]> + use<'m> {
        let source = self.0;
        let mut rest = match source {
            Source::Encoded { bytes, .. } => bytes,
            Source::Slices(_) | Source::Cows(_) => &[],
        };
        (0..self.len()).map_while(move |index| match source {
            Source::Slices(names) => names.get(index).copied(),
            Source::Cows(names) => names.get(index).map(|name| &**name),
            Source::Encoded { .. } => Code::take(&mut rest),
        })
    }
}

impl PartialEq for Names<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Names<'_> {}

impl fmt::Debug for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.iter().map(|name| name.escape_ascii().to_string());
        f.debug_list().entries(names).finish()
    }
}

impl<'m> Code<'m> for Names<'m> {
    fn kind() -> String {
        "names".to_owned()
    }

    fn put(&self, to: &mut Vec<u8>) {
        put_count(self.len(), to);
        self.iter().for_each(|name| name.put(to));
    }

    fn take(from: &mut &'m [u8]) -> Option<Self> {
        let count = u32::take(from)? as usize;
        let whole = *from;
        // Each name takes at least four bytes, so a count that is too high reaches the end.
        for _ in 0..count {
            <&[u8]>::take(from)?;
        }
        let bytes = &whole[..whole.len() - from.len()];
        Some(Self(Source::Encoded { bytes, count }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_wherever_they_lie() {
        let slices: [&[u8]; 3] = [b"a", b"", b"\xff"];
        let cows = slices.map(Cow::Borrowed);
        let mut bytes = Vec::new();
        Names::new(&slices).put(&mut bytes);
        let decoded = Names::take(&mut bytes.as_slice()).unwrap();
        assert_eq!(Names::new(&slices), Names::of(&cows));
        assert_eq!(Names::new(&slices), decoded);
        assert_eq!((decoded.len(), decoded.is_empty()), (3, false));
        assert_ne!(decoded, Names::new(&slices[..2]));
        assert_eq!(format!("{decoded:?}"), r#"["a", "", "\\xff"]"#);
    }
}
