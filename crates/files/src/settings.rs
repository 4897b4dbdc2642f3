//! Attributes that are to be set, in the form in which the store takes them.

use dafs_store::{AttributeChanges, ExtraChanges, StoreError};

/// What is to be set, as the store takes it. Owners are decimal numbers here.
pub fn changes_in(
    settings: &dafs_types::SetAttributes,
) -> Result<(AttributeChanges, ExtraChanges), StoreError> {
    let changes = AttributeChanges::from_protocol(settings, |_| None, |_| None)?;
    let (acl, mime_type) = (settings.acl.clone(), settings.mime_type.clone());
    Ok((changes, ExtraChanges { acl, mime_type }))
}
