//! Names, paths and attributes as DAFS messages bring them, in the form in which operations take
//! them.

use std::borrow::Cow;

use dafs_types::names::from_wire;
use dafs_types::{SetAttributes, Status, limits};
use dafs_wire::{FileAttributeBlock, Path};
use smallvec::SmallVec;

/// The name that a string of a message stands for (`docs/spec/names.md`).
pub(crate) fn name_of(text: &str) -> Result<Cow<'_, [u8]>, Status> {
    from_wire(text).map_err(|_| Status::Inval)
}

/// The names of a path.
pub(crate) struct Components<'a>(SmallVec<[Cow<'a, [u8]>; 8]>);

impl<'a> Components<'a> {
    /// The names themselves.
    pub fn into_names(self) -> SmallVec<[Cow<'a, [u8]>; 8]> {
        self.0
    }

    /// The names in order.
    pub fn list(&self) -> SmallVec<[&[u8]; 8]> {
        self.0.iter().map(|name| &**name).collect()
    }
}

/// The components of a path, within the limits.
pub(crate) fn components<'a>(path: &Path<'a>) -> Result<Components<'a>, Status> {
    let mut names = SmallVec::new();
    let mut bytes = 0;
    for text in path.iter() {
        let name = name_of(text)?;
        bytes += name.len() + 1;
        if names.len() == limits::PATH_COMPONENTS_MAX || bytes > limits::PATH_BYTES_MAX + 1 {
            return Err(Status::NameTooLong);
        }
        names.push(name);
    }
    Ok(Components(names))
}

/// Attributes that are to be set.
pub(crate) fn settings_of(attributes: &FileAttributeBlock<'_>) -> Result<SetAttributes, Status> {
    attributes.set().map_err(|error| error.status())
}
