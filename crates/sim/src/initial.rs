//! The initial contents of the store in every run: some directories, and the file of records.
//!
//! Invariant: the initial store contains nothing else, and a crash removes none of these objects.

use dafs_store::{AttributeChanges, NewNode, Store};
use dafs_types::{CreateMode, FileHandle, ShareAccess};

use crate::plan::root as who;
use crate::workload::DIRECTORIES;

/// The handles of the initial objects.
pub(crate) struct InitialObjects {
    pub root: FileHandle,
    pub directories: Vec<FileHandle>,
}

/// Creates the initial objects.
pub(crate) fn set(store: &dyn Store) -> Result<InitialObjects, String> {
    let failed = |error| format!("preparing the store: {error:?}");
    let root = store.root(&who()).map_err(failed)?.handle;
    let changes = AttributeChanges::default();
    let mut directories = Vec::new();
    for number in 0..DIRECTORIES {
        let name = format!("directory-{number}");
        let made = store
            .create_node(&who(), &root, name.as_bytes(), NewNode::Directory, &changes)
            .map_err(failed)?;
        directories.push(made.object.handle);
    }
    let (mode, access) = (CreateMode::Guarded, ShareAccess::Both);
    let (records, _) =
        store.create_file(&who(), &root, b"records", mode, &changes, access).map_err(failed)?;
    for handle in directories.iter().chain([&root, &records.object.handle]) {
        store.sync(handle).map_err(failed)?;
    }
    Ok(InitialObjects { root, directories })
}
