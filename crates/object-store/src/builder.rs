//! The builder of a store, and the options that it sets.

use std::path::PathBuf;
use std::sync::Arc;

use dafs_client::{Location, SessionOptions, TransportChoice};

use crate::driver::Driver;
use crate::error::{STORE, generic};
use crate::store::DafsStore;

/// The durability of a change when the operation that made it returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Data and name are on stable storage, so they survive a loss of power at the server. For
    /// names this requires that `fsync` of a file also makes its new name durable (ext4, xfs,
    /// btrfs), or that the server is configured with `durable_names`.
    #[default]
    Disk,
    /// Data and name are in the file system of the server's host. They survive a crash of the
    /// server process, but may be lost if the host fails. Multipart uploads are on stable storage
    /// anyway.
    Server,
}

/// The settings of a store that driver threads need.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub location: Location,
    pub session: SessionOptions,
    pub durability: Durability,
    pub creates_root: bool,
    pub removes_directories: bool,
    pub names_temporaries: bool,
    pub file_mode: u32,
    pub directory_mode: u32,
}

/// Builds a [`DafsStore`].
///
/// ```
/// use dafs_object_store::{DafsStoreBuilder, Durability};
///
/// # fn main() -> object_store::Result<()> {
/// let store = DafsStoreBuilder::from_url("dafs://storage:2050/warehouse")?
///     .with_connections(4)
///     .with_durability(Durability::Server)
///     .with_created_root(true)
///     .build()?;
/// # let _ = store; Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct DafsStoreBuilder {
    settings: Settings,
    connections: usize,
}

impl DafsStoreBuilder {
    /// Creates a builder from the URL of a directory, which is the root of the store:
    /// `dafs://[user[:password]@]host[:port]/path`, `dafs+tls://…`, `dafs+verbs://…` or
    /// `dafs+shm:///socket!/path`. A server on this host is reached over shared memory
    /// automatically.
    ///
    /// # Errors
    /// [`object_store::Error::Generic`] with a [`UrlError`](dafs_client::UrlError) that describes
    /// the mistake in the URL.
    pub fn from_url(url: &str) -> object_store::Result<Self> {
        Ok(Self::new(Location::parse(url).map_err(generic)?))
    }

    /// Creates a builder from a server and a directory on it, which is the root of the store.
    /// Symbolic links in the path of the root are followed; symbolic links below the root are not.
    #[must_use]
    pub fn new(location: Location) -> Self {
        let settings = Settings {
            location,
            session: SessionOptions::default(),
            durability: Durability::default(),
            creates_root: false,
            removes_directories: false,
            names_temporaries: false,
            file_mode: 0o644,
            directory_mode: 0o755,
        };
        Self { settings, connections: 1 }
    }

    /// Sets the options of sessions: login, TLS, transport, recovery and timeouts.
    #[must_use]
    pub fn with_session_options(mut self, options: SessionOptions) -> Self {
        self.settings.session = options;
        self
    }

    /// Sets the number of connections, from 1 to [`CONNECTIONS_MAX`]. Each connection has a thread
    /// of its own, and operations are spread over the connections. One connection suffices for most
    /// programs; several connections increase the throughput if one core limits it.
    #[must_use]
    pub fn with_connections(mut self, count: usize) -> Self {
        self.connections = count.clamp(1, CONNECTIONS_MAX);
        self
    }

    /// Sets the durability of changes when the operations that make them return.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.settings.durability = durability;
        self
    }

    /// If `creates` is true, the root directory is created if it does not exist.
    #[must_use]
    pub fn with_created_root(mut self, creates: bool) -> Self {
        self.settings.creates_root = creates;
        self
    }

    /// If `removes` is true, a delete also removes the directories that it leaves empty. By default
    /// these directories stay, and are listed as common prefixes. Do not use this option if the
    /// same name is a directory at one time and an object at another: the protocol has a single
    /// request to remove either, so a delete could remove the wrong one.
    #[must_use]
    pub fn with_directory_removal(mut self, removes: bool) -> Self {
        self.settings.removes_directories = removes;
        self
    }

    /// If `names` is true, puts write into temporary files with names. By default puts write into
    /// files without names, which disappear if this process dies. The store uses names
    /// automatically if the server's file system cannot create files without names.
    #[must_use]
    pub fn with_named_temporaries(mut self, names: bool) -> Self {
        self.settings.names_temporaries = names;
        self
    }

    /// Sets the POSIX modes of new files and directories. The defaults are 0644 and 0755. A user
    /// needs write permission on an object to replace or delete it.
    #[must_use]
    pub fn with_modes(mut self, file: u32, directory: u32) -> Self {
        (self.settings.file_mode, self.settings.directory_mode) = (file, directory);
        self
    }

    /// Sets an option by its name, for programs that pass options of stores as text. The options
    /// are `connections` (a number), `durability` (`disk` or `server`), `create_root` and
    /// `remove_empty_directories` (`true` or `false`), and `transport` (`automatic`, `shm` or
    /// `tcp`).
    ///
    /// # Errors
    /// [`object_store::Error::UnknownConfigurationKey`] for any other name;
    /// [`object_store::Error::Generic`] for an invalid value.
    pub fn with_option(self, key: &str, value: &str) -> object_store::Result<Self> {
        let wrong = |wanted: &str| generic(format!("option {key}: {value:?} is not {wanted}"));
        let flag = || value.parse().map_err(|_| wrong("true or false"));
        match key {
            "connections" => {
                let count = value.parse().map_err(|_| wrong("a number"))?;
                Ok(self.with_connections(count))
            }
            "durability" => match value {
                "disk" => Ok(self.with_durability(Durability::Disk)),
                "server" => Ok(self.with_durability(Durability::Server)),
                _ => Err(wrong("disk or server")),
            },
            "create_root" => Ok(self.with_created_root(flag()?)),
            "remove_empty_directories" => Ok(self.with_directory_removal(flag()?)),
            "transport" => {
                let transport = match value {
                    "automatic" => TransportChoice::Automatic,
                    "shm" => TransportChoice::SharedMemory,
                    "tcp" => TransportChoice::Tcp,
                    _ => return Err(wrong("automatic, shm or tcp")),
                };
                let session = self.settings.session.clone().transport(transport);
                Ok(self.with_session_options(session))
            }
            _ => {
                let key = key.to_owned();
                Err(object_store::Error::UnknownConfigurationKey { store: STORE, key })
            }
        }
    }

    /// Builds the store. This does not wait for the network: the store connects with the first
    /// operation, or with [`DafsStore::connect`].
    ///
    /// # Errors
    /// If the system has no more threads or descriptors.
    pub fn build(self) -> object_store::Result<DafsStore> {
        let mut settings = self.settings;
        if settings.location.path.is_empty() {
            settings.location.path = PathBuf::from("/").into();
        }
        let shown = settings.location.to_string();
        let settings = Arc::new(settings);
        let drivers: Result<Vec<_>, _> =
            (0..self.connections).map(|_| Driver::start(settings.clone())).collect();
        Ok(DafsStore::over(drivers.map_err(generic)?, shown))
    }
}

/// The maximum number of connections of one store.
pub const CONNECTIONS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_names_and_wrong_ones_are_refused() {
        let builder = DafsStoreBuilder::from_url("dafs://ann:secret@box/data").unwrap();
        let builder = builder.with_option("connections", "3").unwrap();
        let builder = builder.with_option("durability", "server").unwrap();
        let builder = builder.with_option("transport", "tcp").unwrap();
        assert_eq!(builder.connections, 3);
        assert_eq!(builder.settings.durability, Durability::Server);
        assert_eq!(builder.settings.session.transport, TransportChoice::Tcp);
        assert!(!format!("{builder:?}").contains("secret"));
        let error = builder.clone().with_option("region", "x").unwrap_err();
        assert!(matches!(error, object_store::Error::UnknownConfigurationKey { .. }), "{error}");
        let error = builder.with_option("create_root", "maybe").unwrap_err().to_string();
        assert!(error.contains("create_root") && error.contains("true or false"), "{error}");
        let error = DafsStoreBuilder::from_url("s3://bucket/").unwrap_err().to_string();
        assert!(error.contains("scheme"), "{error}");
    }
}
