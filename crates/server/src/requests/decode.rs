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

/// Names as the file system has them, for as long as an operation needs them.
pub(crate) type Scratch<'m> = SmallVec<[Cow<'m, [u8]>; 8]>;

/// Puts the components of a path, within the limits, behind the names that are there: a moved list
/// is a copied one.
pub(crate) fn components<'m>(path: &Path<'m>, names: &mut Scratch<'m>) -> Result<(), Status> {
    let mut bytes = 0;
    for text in path.iter() {
        let name = name_of(text)?;
        bytes += name.len() + 1;
        if names.len() == limits::PATH_COMPONENTS_MAX || bytes > limits::PATH_BYTES_MAX + 1 {
            return Err(Status::NameTooLong);
        }
        names.push(name);
    }
    Ok(())
}

/// Attributes that are to be set.
pub(crate) fn settings_of(attributes: &FileAttributeBlock<'_>) -> Result<SetAttributes, Status> {
    attributes.set().map_err(|error| error.status())
}
