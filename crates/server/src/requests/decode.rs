//! Converts the names, paths and attributes of DAFS messages to the form that operations use.

use std::borrow::Cow;

use dafs_types::names::from_wire;
use dafs_types::{SetAttributes, Status, limits};
use dafs_wire::{FileAttributeBlock, Path};
use smallvec::SmallVec;

/// Converts a string of a message to the bytes of a name (`docs/spec/names.md`).
pub(crate) fn name_of(text: &str) -> Result<Cow<'_, [u8]>, Status> {
    from_wire(text).map_err(|_| Status::Inval)
}

/// The decoded names of a request, which an operation borrows.
pub(crate) type Scratch<'m> = SmallVec<[Cow<'m, [u8]>; 8]>;

/// Appends the components of a path to `names`, within the limits on their number and length. They
/// are appended to an existing list because returning a list would copy it.
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

/// Converts the attributes in a request to the form that the store uses to set them.
pub(crate) fn settings_of(attributes: &FileAttributeBlock<'_>) -> Result<SetAttributes, Status> {
    attributes.set().map_err(|error| error.status())
}
