//! Resolves paths to objects, in one round trip if there is no symbolic link.
//!
//! Invariant: every error names the requested path.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use dafs_client::{
    ClientError, Metadata, ObjectType, OpenOptions, Outcome, Session, Status, shown_path,
    split_last,
};

use crate::errors::Failure;

/// Returns the attributes of the object at a path.
///
/// # Errors
/// The server's error, with the path.
pub(crate) async fn find(
    session: &Session,
    path: &OsStr,
    follow: bool,
) -> Result<Metadata, Failure> {
    let chain = session.chain();
    let chain =
        if path.as_bytes().iter().all(|byte| *byte == b'/') { chain } else { chain.lookup(path) };
    match chain.getattr().run_async().await {
        Ok(outcomes) => match outcomes.into_iter().next_back() {
            Some(Outcome::Metadata(found)) if follow && found.kind == ObjectType::SymbolicLink => {
                walk(session, path, true).await
            }
            Some(Outcome::Metadata(found)) => Ok(*found),
            _ => Err(Failure::Client(ClientError::Protocol {
                address: session.address().to_string(),
                what: "unexpected reply to GETATTR_INLINE".into(),
            })),
        },
        Err(failure) if needs_client_resolution(&failure.error) => {
            walk(session, path, follow).await
        }
        Err(failure) => Err(Failure::of(failure.error, path)),
    }
}

/// Returns the attributes of the object at a path. Resolves the path name by name, and follows
/// symbolic links.
async fn walk(session: &Session, path: &OsStr, follow: bool) -> Result<Metadata, Failure> {
    let handle = session.resolve_async(path, follow).await?;
    Ok(session.metadata_async(handle, path).await?)
}

/// Returns the directory that contains the last name of a path, and the name.
///
/// # Errors
/// The errors of [`find`], and INVAL for a path without a name.
pub(crate) async fn parent<'p>(
    session: &Session,
    path: &'p OsStr,
) -> Result<(Metadata, &'p OsStr), Failure> {
    let (directory, name) = split_last(path);
    if matches!(name.as_bytes(), b"" | b"." | b"..") {
        let (what, status) = (shown_path(path).into_owned(), Status::Inval);
        return Err(ClientError::Status { what, status }.into());
    }
    match find(session, directory, true).await {
        Ok(found) => Ok((found, name)),
        Err(Failure::Client(error)) => Err(Failure::of(error, path)),
        Err(other) => Err(other),
    }
}

/// Removes a name. If it is that of a directory, removes everything in the directory, as far as
/// possible.
///
/// # Errors
/// The errors of [`parent`]. An error for the root of a server, before anything is removed.
/// Otherwise the first error of an object that could not be removed.
pub(crate) async fn remove_tree(
    session: &Session,
    path: &OsStr,
    depth_max: Option<usize>,
) -> Result<(), Failure> {
    if split_last(path).1.is_empty() {
        return Err(ClientError::CannotRemove { path: shown_path(path).into_owned() }.into());
    }
    let (directory, name) = parent(session, path).await?;
    let mut first = None;
    let mut tell = |error| {
        first.get_or_insert(error);
    };
    session.remove_tree_in_async(directory.handle, name, path, depth_max, &mut tell).await?;
    first.map_or(Ok(()), |error| Err(error.into()))
}

/// Opens a file by path.
///
/// # Errors
/// The server's error, with the path.
pub(crate) async fn open(
    session: &Session,
    path: &OsStr,
    options: &OpenOptions,
    keeps: bool,
) -> Result<dafs_client::File, Failure> {
    let cuts_later = options.truncate && !options.create && !options.create_new;
    if keeps || cuts_later {
        let opened = session.open_async(path, options).await;
        return opened.map_err(|error| Failure::of(error, path));
    }
    match session.chain().open(path, options).run_async().await {
        Ok(outcomes) => match outcomes.first() {
            Some(Outcome::Opened { file, state }) => Ok(session.opened(*file, *state, path)),
            _ => Err(Failure::Client(ClientError::Protocol {
                address: session.address().to_string(),
                what: "unexpected reply to OPEN".into(),
            })),
        },
        Err(failure) if needs_client_resolution(&failure.error) => {
            let opened = session.open_async(path, options).await;
            opened.map_err(|error| Failure::of(error, path))
        }
        Err(failure) => Err(Failure::of(failure.error, path)),
    }
}

/// True if the path must be resolved by the client, which follows links, understands `..` and has
/// no limit on the number of names.
pub(crate) fn needs_client_resolution(error: &ClientError) -> bool {
    matches!(
        error.status(),
        Some(Status::Symlink | Status::NotDir | Status::Inval | Status::NameTooLong)
    ) || matches!(error.status(), Some(Status::TooSmall | Status::ChainForm))
}
