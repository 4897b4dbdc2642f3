//! Checks the exports against each other and against the server's own files.
//!
//! Invariant: no file that decides who gets access is in a place where clients can read or replace
//! it. The rules of an export cannot be bypassed through another export that contains it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{Mode, OFlags};

use crate::access::ExportTable;
use crate::serve::{Arguments, state_directory};

/// A directory and the name that clients use for it.
#[derive(Clone, Debug)]
pub(crate) struct Exported {
    pub name: OsString,
    pub path: PathBuf,
    /// True if clients find the export by this name even if it is the only one.
    pub keeps_name: bool,
}

/// Returns all exports in the order given.
pub(crate) fn all(arguments: &Arguments) -> Vec<Exported> {
    let plain = arguments.directories.iter().map(|given| plain(given));
    let named = arguments.export.iter().filter_map(|export| {
        let (name, path) = (export.name.clone().into(), export.path.clone()?);
        Some(Exported { name, path, keeps_name: false })
    });
    let mut all: Vec<Exported> = plain.chain(named).collect();
    let known: Vec<PathBuf> = all.iter().map(|export| full(&export.path)).collect();
    // A directory of the exports file that is exported already keeps its name.
    let others = arguments.nfs.listed().iter().filter(|one| !known.contains(&full(&one.path)));
    all.extend(others.map(|one| listed(&one.path)));
    all
}

/// Returns an export of the exports file. Its name is its path, so that NFS clients mount it by the
/// path.
fn listed(path: &Path) -> Exported {
    let name = path.strip_prefix("/").map(Path::as_os_str).ok();
    let name = name.filter(|name| !name.is_empty());
    Exported {
        name: name.map_or_else(|| name_of(path), OsStr::to_owned),
        path: path.to_owned(),
        keeps_name: name.is_some(),
    }
}

/// Returns whether the exports file lets clients enter file systems beneath a directory. `None` if
/// the file does not export it.
pub(crate) fn listed_cross_mounts(arguments: &Arguments, path: &Path) -> Option<bool> {
    let path = full(path);
    let listed = arguments.nfs.listed().iter().find(|one| full(&one.path) == path)?;
    Some(listed.cross_mounts() || arguments.cross_mounts)
}

/// Parses a path or NAME=PATH.
fn plain(given: &Path) -> Exported {
    let bytes = given.as_os_str().as_bytes();
    let sign = bytes.iter().position(|byte| matches!(byte, b'=' | b'/'));
    match sign.filter(|sign| bytes[*sign] == b'=') {
        Some(sign) => {
            let [name, path] = [&bytes[..sign], &bytes[sign + 1..]].map(OsStr::from_bytes);
            Exported { name: name.to_owned(), path: path.into(), keeps_name: false }
        }
        // A name contains no slash, so an equals sign after a slash is part of the path.
        None => Exported { name: name_of(given), path: given.to_owned(), keeps_name: false },
    }
}

/// Refuses exports that would expose the server's secrets, or an export's files to clients that its
/// rules exclude.
pub(crate) fn check(arguments: &Arguments) -> Result<()> {
    let exports = all(arguments);
    let state = full(&state_directory(arguments));
    for export in &exports {
        if full(&export.path).starts_with(&state) {
            bail!(
                "the export {:?} ({}) is inside the state directory {}; choose another --state DIR",
                export.name,
                export.path.display(),
                state.display()
            );
        }
    }
    for (key, path) in secrets(arguments) {
        let place = full(path);
        // Clients cannot enter the state directory, even if it is inside an export.
        let holder = exports.iter().find(|export| place.starts_with(full(&export.path)));
        if let Some(export) = holder.filter(|_| !place.starts_with(&state)) {
            bail!(
                "{key} {} is inside the export {:?} ({}), where clients can read or replace it; \
                 move it elsewhere, or into the state directory {}, which clients cannot enter",
                path.display(),
                export.name,
                export.path.display(),
                state.display()
            );
        }
    }
    for (outer, inner) in nested(&exports) {
        if let Some(what) = stricter(arguments, outer, inner) {
            bail!(
                "the export {:?} ({}) has {what}, but the export {:?} ({}), which contains it, \
                has not: clients could bypass them there. Give both exports the same, or serve \
                directories that do not overlap",
                inner.name,
                inner.path.display(),
                outer.name,
                outer.path.display()
            );
        }
    }
    Ok(())
}

/// Fails if an export is not a directory, or is one that this user cannot enter.
pub(crate) fn check_directories(exports: &[Exported]) -> Result<()> {
    for export in exports {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(&export.path, flags, Mode::empty()).with_context(|| {
            format!("opening the export {:?}, {}", export.name, export.path.display())
        })?;
    }
    Ok(())
}

/// Returns warnings about settings that are valid but may not be intended.
pub(crate) fn risks(arguments: &Arguments) -> Vec<String> {
    let exports = all(arguments);
    let differs = |(outer, inner): &(&Exported, &Exported)| {
        let (outer, inner) = (table(arguments, outer), table(arguments, inner));
        outer.map(ExportTable::terms_of_all) != inner.map(ExportTable::terms_of_all)
    };
    let tell = |(outer, inner): (&Exported, &Exported)| {
        format!(
            "the export {:?} is inside the export {:?}: a client that may see either of them sees \
            its files, on the terms of the export it uses",
            inner.name, outer.name
        )
    };
    nested(&exports).into_iter().filter(differs).map(tell).collect()
}

/// Returns pairs in which the second export is inside the first.
fn nested(exports: &[Exported]) -> Vec<(&Exported, &Exported)> {
    let full: Vec<PathBuf> = exports.iter().map(|export| full(&export.path)).collect();
    let mut pairs = Vec::new();
    for (inner, below) in full.iter().enumerate() {
        for (outer, above) in full.iter().enumerate() {
            if inner != outer && below.starts_with(above) {
                pairs.push((&exports[outer], &exports[inner]));
            }
        }
    }
    pairs
}

/// Returns a restriction that the inner export has and the outer one lacks, if there is one.
fn stricter(arguments: &Arguments, outer: &Exported, inner: &Exported) -> Option<&'static str> {
    let inner = table(arguments, inner)?;
    let outer = table(arguments, outer);
    inner.asks_more_than(outer, arguments.read_only)
}

fn table<'a>(arguments: &'a Arguments, export: &Exported) -> Option<&'a ExportTable> {
    arguments.export.iter().find(|table| export.name == *table.name)
}

/// The files that decide which clients get access, and as which user.
fn secrets(arguments: &Arguments) -> Vec<(&'static str, &Path)> {
    let kerberos = arguments.kerberos.as_ref();
    let found = [
        ("the password file", arguments.password_file.as_deref()),
        ("the key of --tls-key", arguments.tls_key.as_deref()),
        ("the authorities of --tls-client-ca", arguments.tls_client_ca.as_deref()),
        ("the exports file", arguments.nfs.exports.as_deref()),
        ("the keytab", arguments.keytab.as_deref()),
        ("the keytab of [kerberos]", kerberos.and_then(|kerberos| kerberos.keytab())),
    ];
    found.into_iter().filter_map(|(key, path)| Some((key, path?))).collect()
}

/// Resolves symbolic links in the part of a path that exists.
pub(crate) fn full(path: &Path) -> PathBuf {
    if let Ok(full) = path.canonicalize() {
        return full;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !parent.as_os_str().is_empty() => full(parent).join(name),
        _ => std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()),
    }
}

fn name_of(path: &Path) -> OsString {
    let full = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    full.file_name().unwrap_or(OsStr::new("root")).to_owned()
}
