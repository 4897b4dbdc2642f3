//! `dafs serve --exactly-once`: selects the failures that a request in flight survives.
//!
//! Invariant: two servers never share a journal. The second one reports an error and does not
//! start.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dafs_journal::{DirectoryStorage, LogConfig, StorageError, UndoConfig};
use dafs_server::JournalConfig;

use crate::exiting::is_ending;
use crate::exports;
use crate::serve::Arguments;

/// The place where the server keeps the replies for exactly-once requests.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    clap::ValueEnum,
    serde::Deserialize,
    serde::Serialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Durability {
    /// In the journal on disk.
    Stable,
    /// In the server's memory.
    Memory,
}

/// Opens the journal for the exports of a configuration. Each set of exports has a journal of its
/// own, so servers that share a state directory conflict only if they serve the same exports.
pub(crate) fn journal(arguments: &Arguments, state: &Path) -> Result<Option<JournalConfig>> {
    let is_stable = match arguments.exactly_once {
        Some(durability) => durability == Durability::Stable,
        None => arguments.memory.is_none(),
    };
    if !is_stable {
        return Ok(None);
    }
    if arguments.memory.is_some() {
        bail!("--exactly-once stable makes no sense with --memory: the files go with the server");
    }
    let exported = exports::all(arguments);
    let journals = state.join("journals");
    std::fs::create_dir_all(&journals)
        .with_context(|| format!("making {}; choose another --state DIR", journals.display()))?;
    let path = journals.join(name_of(exported.iter().map(|export| export.path.as_path())));
    let former = journals.join(name_of(plain_directories(arguments).iter().map(PathBuf::as_path)));
    take_over(&journals, &former, &path);
    let storage = open_storage(&path).context(
        "opening the journal: does another server export these directories? Give it another \
        --state DIR, \
         or --exactly-once memory",
    )?;
    for export in &exported {
        log_undo_method(&storage, &export.path);
    }
    Ok(Some(JournalConfig {
        storage: Arc::new(storage),
        log: LogConfig::default(),
        undo: UndoConfig::default(),
    }))
}

/// Opens a journal. If a server that is ending still holds the lock, waits until that server has
/// ended.
fn open_storage(path: &Path) -> std::result::Result<DirectoryStorage, StorageError> {
    let begun = Instant::now();
    let mut is_told = false;
    loop {
        let opened = DirectoryStorage::open(path);
        let Err(StorageError::InUse { process: Some(process), .. }) = &opened else {
            return opened;
        };
        // Threads of a killed server may still be exiting in the kernel.
        if begun.elapsed() > PATIENCE || !is_ending(*process) {
            return opened;
        }
        if !std::mem::replace(&mut is_told, true) {
            eprintln!(
                "dafs: {} is still locked by process {process}, which is ending; waiting up to \
                 {} s for that",
                path.display(),
                PATIENCE.as_secs()
            );
        }
        std::thread::sleep(PAUSE);
    }
}

/// Logs how undo data for auto-recovery locks will be saved.
fn log_undo_method(storage: &DirectoryStorage, directory: &Path) {
    let tried = storage.try_reflink_from(directory);
    let (directory, state) = (directory.display(), storage.path().display());
    match tried {
        Ok(()) => tracing::info!(%directory, %state, "undo data: shares blocks with the files"),
        Err(error) => tracing::info!(
            %directory, %state, %error,
            "undo data: copied; with --state on the same file system as the files, and reflinks \
            (XFS, Btrfs), it would share their blocks"
        ),
    }
}

/// Returns the name of the journal for these directories: a readable part, and a hash over the
/// bytes of all paths.
fn name_of<'p>(directories: impl Iterator<Item = &'p Path>) -> String {
    let mut names: Vec<Vec<u8>> = directories.map(full_path).collect();
    names.sort_unstable();
    let line = names.first().and_then(|name| name.split(|byte| *byte == b'\n').next());
    let stem = line.and_then(|name| name.rsplit(|byte| *byte == b'/').next());
    let stem = stem.unwrap_or_default().iter().filter(|byte| byte.is_ascii_alphanumeric());
    let stem: String = stem.take(32).map(|byte| char::from(*byte)).collect();
    format!("{stem}-{:08x}", crc32c::crc32c(&names.join(&b'\n')))
}

/// Returns the exports that older versions used to name the journal: `directories` without
/// `[[export]]`.
fn plain_directories(arguments: &Arguments) -> Vec<PathBuf> {
    let plain = Arguments { directories: arguments.directories.clone(), ..Arguments::default() };
    exports::all(&plain).into_iter().map(|export| export.path).collect()
}

/// Renames a journal that has the name of an older version for these exports, so that an upgrade
/// does not lose the replies in the journal. Does so only if it is the only journal, because it
/// might belong to other exports otherwise.
fn take_over(journals: &Path, former: &Path, path: &Path) {
    if former == path || path.exists() || !former.exists() {
        return;
    }
    let count = std::fs::read_dir(journals).map_or(0, Iterator::count);
    let (from, to) = (former.display(), path.display());
    if count != 1 {
        tracing::warn!(
            %from, %to,
            "a journal with an old name was not renamed, because it may belong to other exports; \
            if it belongs to these, stop the server and rename it"
        );
        return;
    }
    match std::fs::rename(former, path) {
        Ok(()) => tracing::info!(%from, %to, "the journal was renamed after all exports"),
        Err(error) => tracing::warn!(%from, %to, %error, "the journal cannot be renamed"),
    }
}

/// Returns the path as bytes, with symbolic links resolved. A conversion to UTF-8 could give two
/// paths the same journal.
fn full_path(path: &Path) -> Vec<u8> {
    let full = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    full.into_os_string().into_vec()
}

/// The maximum time to wait for the previous server to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
