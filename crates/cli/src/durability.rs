//! `dafs serve --exactly-once`: what a request in flight survives.
//!
//! Invariant: two servers never share a journal; the second says so and does not start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use dafs_journal::{DirectoryShelf, LogConfig, UndoConfig};
use dafs_server::JournalConfig;

use crate::serve::Arguments;

/// Where the response cache is kept.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// In the journal.
    Stable,
    /// In memory.
    Memory,
}

/// The journal of these exports: each set of them has its own, so that servers with one
/// state directory do not meet unless they serve the same.
pub fn journal(arguments: &Arguments, state: PathBuf) -> Result<Option<JournalConfig>> {
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
    let mut names: Vec<String> = arguments.directories.iter().map(|text| full_path(text)).collect();
    names.sort_unstable();
    let names = names.join("\n");
    let stem = names.lines().next().and_then(|name| name.rsplit('/').next()).unwrap_or_default();
    let stem: String = stem.chars().filter(char::is_ascii_alphanumeric).take(32).collect();
    let journals = state.join("journals");
    std::fs::create_dir_all(&journals)
        .with_context(|| format!("making {}; choose another --state DIR", journals.display()))?;
    let path = journals.join(format!("{stem}-{:08x}", crc32c::crc32c(names.as_bytes())));
    let shelf = DirectoryShelf::open(&path).context(
        "opening the journal: another server on these directories? Give it another --state DIR, \
         or --exactly-once memory",
    )?;
    for text in &arguments.directories {
        tell_undo(&shelf, directory_of(text));
    }
    Ok(Some(JournalConfig {
        shelf: Arc::new(shelf),
        log: LogConfig::default(),
        undo: UndoConfig::default(),
    }))
}

/// Says how what auto-recovery locks may have to take back will be saved.
fn tell_undo(shelf: &DirectoryShelf, directory: &Path) {
    let tried = shelf.try_reflink_from(directory);
    let (directory, state) = (directory.display(), shelf.path().display());
    match tried {
        Ok(()) => tracing::info!(%directory, %state, "undo data: shares blocks with the files"),
        Err(error) => tracing::info!(
            %directory, %state, %error,
            "undo data: copied; with --state on the file system of the files, and one that has \
             reflinks (XFS, Btrfs), it would share their blocks"
        ),
    }
}

/// The directory that an export's argument names, whatever the export is called.
fn directory_of(text: &str) -> &Path {
    match text.split_once('=') {
        Some((name, path)) if !name.contains('/') => Path::new(path),
        _ => Path::new(text),
    }
}

/// The path of an export's argument.
fn full_path(text: &str) -> String {
    let path = directory_of(text);
    let full = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    full.to_string_lossy().into_owned()
}
