//! The configuration from the environment: the path prefixes, and the servers they are mapped to.
//!
//! Invariant: the configuration is read once when the program starts, and all programs that this
//! program starts inherit it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::OnceLock;

use dafs_client::{Location, shown_path, without_passwords};

use crate::route::names_of;

/// A path prefix and the location that it is mapped to.
#[derive(Debug)]
pub(crate) struct Mount {
    /// An absolute path without duplicate or trailing slashes.
    pub prefix: OsString,
    /// The server and the path of the mapped directory.
    pub location: Location,
}

/// The configuration of this process, from its environment.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// The prefixes, longest first.
    pub mounts: Vec<Mount>,
    /// True if a write with O_APPEND goes to the end of the file as this process knows it, and need
    /// not be atomic with appends of other clients.
    pub appends_locally: bool,
    /// The file to which this process appends a report when it ends.
    pub report: Option<PathBuf>,
    /// The environment variables to pass to every started program, as `NAME=value`.
    pub environment: Vec<Vec<u8>>,
}

static CONFIG: OnceLock<Config> = OnceLock::new();

/// Returns the configuration, which is empty until [`read`] was called.
pub(crate) fn get() -> &'static Config {
    static NONE: Config = Config {
        mounts: Vec::new(),
        appends_locally: false,
        report: None,
        environment: Vec::new(),
    };
    CONFIG.get().unwrap_or(&NONE)
}

/// Reads the configuration from the environment.
pub(crate) fn read() {
    let _ = CONFIG.set(from_environment());
}

fn from_environment() -> Config {
    let mut config = Config::default();
    for name in INHERITED {
        if let Some(value) = std::env::var_os(name) {
            config.environment.push([name.as_bytes(), b"=", value.as_bytes()].concat());
        }
    }
    let Some(map) = std::env::var_os(MAP) else { return config };
    for entry in map.as_bytes().split(|byte| matches!(byte, b';' | b'\n')) {
        let entry = entry.trim_ascii();
        if entry.is_empty() {
            continue;
        }
        match mount(entry) {
            Ok(mount) => config.mounts.push(mount),
            Err(reason) => {
                let shown = without_passwords(&shown_path(OsStr::from_bytes(entry)));
                eprintln!("dafs: {MAP}: {shown:?}: {reason}");
            }
        }
    }
    config.mounts.sort_by_key(|mount| std::cmp::Reverse(mount.prefix.len()));
    config.appends_locally = is_set(LOCAL_APPEND);
    config.report = std::env::var_os(REPORT).filter(|path| !path.is_empty()).map(PathBuf::from);
    config
}

fn mount(entry: &[u8]) -> Result<Mount, String> {
    let equals = entry.iter().position(|byte| *byte == b'=');
    let equals = equals.ok_or("write /prefix=dafs://host/path")?;
    let (prefix, url) = (&entry[..equals], &entry[equals + 1..]);
    if !prefix.starts_with(b"/") {
        return Err("a prefix must begin with a slash".into());
    }
    let names: Vec<&[u8]> = names_of(prefix).collect();
    if names.is_empty() || names.contains(&&b".."[..]) {
        return Err("a prefix must be a directory below the root, without ..".into());
    }
    let prefix = OsString::from_vec([b"/", &*names.join(&b'/')].concat());
    let url = OsStr::from_bytes(url);
    let mut location = Location::parse(url).map_err(|error| error.to_string())?;
    let mut path = location.path.into_vec();
    while path.last() == Some(&b'/') {
        path.pop();
    }
    location.path = OsString::from_vec(path);
    Ok(Mount { prefix, location })
}

/// True if an environment variable is set to something other than an empty text or 0.
pub(crate) fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| value != OsStr::new("") && value != OsStr::new("0"))
}

/// The environment variable with the mappings: `/prefix=URL`, separated by `;`.
pub(crate) const MAP: &str = "DAFS_PRELOAD_MAP";
/// The environment variable that names the file to which reports are appended.
pub(crate) const REPORT: &str = "DAFS_PRELOAD_REPORT";
/// The environment variable with the working directory, set if that is beneath a prefix.
pub(crate) const DIRECTORY: &str = "DAFS_PRELOAD_DIRECTORY";
/// The environment variable in which the dynamic linker finds the libraries to preload.
pub(crate) const LIBRARIES: &str = "LD_PRELOAD";

/// The environment variable that names a password file. Its first line is the password for users
/// that URLs name without a password.
pub(crate) const PASSWORD_FROM: &str = "DAFS_PRELOAD_PASSWORD_FROM";

/// The environment variable that is set if appends need not be atomic with those of other clients.
pub(crate) const LOCAL_APPEND: &str = "DAFS_PRELOAD_LOCAL_APPEND";

const INHERITED: &[&str] = &[LIBRARIES, MAP, REPORT, LOCAL_APPEND, PASSWORD_FROM];
