//! The destination of the result.
//!
//! Invariant: an incomplete file has a temporary name. The file is removed if the work fails or is
//! interrupted.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use dafs_client::{
    File, ObjectType, OpenOptions, Session, SetAttributes, SetTime, Status, block_on, shown_path,
    split_last,
};
use tempfile::NamedTempFile;

use super::Attributes;
use super::write_behind::WriteBehind;

/// An output that is being written and does not have its final name yet.
pub(super) enum Output {
    /// Counts the bytes and discards them.
    Nowhere,
    Standard,
    Local(NamedTempFile, PathBuf),
    Remote(Box<Temporary>),
}

/// A temporary file on a server. It is removed unless it gets its final name.
pub(super) struct Temporary {
    session: Session,
    file: Option<File>,
    path: OsString,
    temporary: OsString,
}

impl Output {
    /// Creates a temporary file for a local output. An existing output is an error unless `force`
    /// is set.
    pub(super) fn local(path: PathBuf, attributes: Attributes, force: bool) -> Result<Self> {
        match std::fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => check(&path.display(), found?.is_file(), force)?,
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        // Keep the file private until it is complete. If the input has no mode to copy, use the
        // mode of any new file.
        let mode = if attributes.mode.is_some() { 0o600 } else { 0o666 };
        let file = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(std::fs::Permissions::from_mode(mode))
            .tempfile_in(directory)
            .with_context(|| format!("making a file in {}", directory.display()))?;
        Ok(Self::Local(file, path))
    }

    /// Creates a temporary file for an output on a server. An existing output is an error unless
    /// `force` is set.
    pub(super) fn remote(
        session: &Session,
        path: &OsStr,
        attributes: Attributes,
        force: bool,
    ) -> Result<Self> {
        match session.symlink_metadata(path) {
            Err(error) if error.status() == Some(Status::NoEnt) => {}
            found => check(&shown_path(path), found?.kind == ObjectType::Regular, force)?,
        }
        let (directory, _) = split_last(path);
        let mode = if attributes.mode.is_some() { 0o600 } else { 0o666 };
        let options = OpenOptions::write().create_new(true).mode(mode);
        let (temporary, file) = loop {
            let mut temporary = directory.to_owned();
            temporary.push(format!("/{PREFIX}{:016x}", random()));
            match session.open(&temporary, &options) {
                Err(error) if error.status() == Some(Status::Exist) => {}
                opened => break (temporary, opened?),
            }
        };
        let (session, path) = (session.clone(), path.to_owned());
        Ok(Self::Remote(Box::new(Temporary { session, file: Some(file), path, temporary })))
    }

    /// Runs `body`, which writes the output.
    pub(super) fn write<T>(&self, body: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<T> {
        match self {
            Self::Nowhere => body(&mut io::sink()),
            Self::Standard => {
                let mut out = io::stdout().lock();
                let done = body(&mut out)?;
                out.flush()?;
                Ok(done)
            }
            Self::Local(file, _) => body(&mut file.as_file()),
            Self::Remote(temporary) => {
                let file = temporary.file.as_ref().context("the output is closed")?;
                let mut stream = WriteBehind::new(file);
                let done = body(&mut stream)?;
                stream.finish()?;
                Ok(done)
            }
        }
    }

    /// Sets the input's attributes on the output and gives it its final name.
    pub(super) fn finish(self, attributes: Attributes, force: bool, syncs: bool) -> Result<()> {
        match self {
            Self::Nowhere | Self::Standard => Ok(()),
            Self::Local(file, path) => {
                finish_local(file.as_file(), attributes, syncs)?;
                let persisted =
                    if force { file.persist(&path) } else { file.persist_noclobber(&path) };
                persisted
                    .map_err(|error| error.error)
                    .with_context(|| format!("naming {}", path.display()))?;
                Ok(())
            }
            Self::Remote(mut temporary) => temporary.finish(attributes, force, syncs),
        }
    }
}

fn finish_local(file: &std::fs::File, attributes: Attributes, syncs: bool) -> Result<()> {
    if let Some(mode) = attributes.mode {
        // The setuid and setgid bits are not copied.
        file.set_permissions(std::fs::Permissions::from_mode(mode & 0o777))?;
    }
    if let Some(modified) = attributes.modified {
        let tv_nsec = modified.nanoseconds.into();
        let modified = rustix::fs::Timespec { tv_sec: modified.seconds, tv_nsec };
        let omitted = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
        let times = rustix::fs::Timestamps { last_access: omitted, last_modification: modified };
        rustix::fs::futimens(file, &times)?;
    }
    if syncs {
        file.sync_all()?;
    }
    Ok(())
}

impl Temporary {
    fn finish(&mut self, attributes: Attributes, force: bool, syncs: bool) -> Result<()> {
        let Some(file) = self.file.take() else { return Ok(()) };
        if syncs {
            file.commit()?;
        }
        let handle = file.handle();
        // Close first: data that the server writes later would change the time again.
        file.close()?;
        let wanted = SetAttributes {
            mode: attributes.mode.map(|mode| mode & 0o777),
            time_modify: attributes.modified.map(SetTime::Client),
            ..SetAttributes::default()
        };
        let (session, path, temporary) = (&self.session, &self.path, &self.temporary);
        if wanted != SetAttributes::default() {
            session.set_attributes_by_handle(handle, &wanted, temporary)?;
        }
        if force {
            session.rename(temporary, path)?;
            return Ok(());
        }
        let client = session.client();
        let named = block_on(&client, async {
            let from = session.resolve_parent_async(temporary).await?;
            let to = session.resolve_parent_async(path).await?;
            let names = ((from.directory, &*from.name), (to.directory, &*to.name));
            session.rename_new_in_async(names.0, names.1, path).await
        });
        if named.is_err() {
            // Another file took the name meanwhile. Keep that file and remove the temporary file.
            self.remove();
        }
        Ok(named?)
    }

    fn remove(&self) {
        // If the server cannot be reached, the temporary file remains on the server.
        let _ = self.session.remove(&self.temporary);
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            drop(file);
            self.remove();
        }
    }
}

fn check(name: &dyn std::fmt::Display, is_file: bool, force: bool) -> Result<()> {
    if !is_file {
        bail!("{name} exists and is not a regular file; it is left as it is");
    }
    if !force {
        bail!("{name} exists already; give --force to replace it");
    }
    Ok(())
}

/// Returns a random number for a unique file name.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

const PREFIX: &str = ".dafs-gzip-";
