//! Converts the attributes of a request that sets attributes to the form that the store takes.

use dafs_store::{AttributeChanges, ExtraChanges, StoreError};

/// Converts attributes to the store's form. Owner and group must be decimal ids.
pub fn changes_in(
    settings: &dafs_types::SetAttributes,
) -> Result<(AttributeChanges, ExtraChanges), StoreError> {
    let changes = AttributeChanges::from_protocol(settings, |_| None, |_| None)?;
    let (acl, mime_type) = (settings.acl.clone(), settings.mime_type.clone());
    Ok((changes, ExtraChanges { acl, mime_type }))
}
