//! How a store is described before it is made.

use std::path::PathBuf;
use std::sync::Arc;

use dafs_client::{Location, SessionOptions, TransportChoice};

use crate::driver::Driver;
use crate::error::{STORE, generic};
use crate::store::DafsStore;

/// What an operation that changes something promises when it returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Data and name are on stable storage: they survive a loss of power at the server. Names do
    /// where `fsync` of a file also keeps its new name (ext4, xfs, btrfs), or with the server's
    /// `durable_names`.
    #[default]
    Disk,
    /// Data and name are with the operating system of the server: they survive a crash of the
    /// server process, and may be lost with the machine. Uploads in parts are on stable storage all
    /// the same.
    Server,
}

/// What driver threads know of their store.
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

/// Makes a [`DafsStore`].
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
    /// Begins with a URL of a directory, which is the root of the store:
    /// `dafs://[user[:password]@]host[:port]/path`, `dafs+tls://…`, `dafs+verbs://…` or
    /// `dafs+shm:///socket!/path`. A server on this host is reached over shared memory by itself.
    ///
    /// # Errors
    /// [`object_store::Error::Generic`] with a [`UrlError`](dafs_client::UrlError) that says what
    /// is wrong.
    pub fn from_url(url: &str) -> object_store::Result<Self> {
        Ok(Self::new(Location::parse(url).map_err(generic)?))
    }

    /// Begins with a server and a directory on it, which is the root of the store. Symbolic links
    /// on the way to the root are followed; below it none is.
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

    /// Sets how sessions are made: login, TLS, transport, recovery, time-outs.
    #[must_use]
    pub fn with_session_options(mut self, options: SessionOptions) -> Self {
        self.settings.session = options;
        self
    }

    /// Sets the number of connections, from 1 to [`CONNECTIONS_MAX`]. Each has a thread of its own;
    /// operations are spread over them. One is enough for most programs; several move more bytes
    /// where one core is too slow to.
    #[must_use]
    pub fn with_connections(mut self, count: usize) -> Self {
        self.connections = count.clamp(1, CONNECTIONS_MAX);
        self
    }

    /// Sets what operations promise when they return.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.settings.durability = durability;
        self
    }

    /// Sets whether the root directory is made if it does not exist.
    #[must_use]
    pub fn with_created_root(mut self, creates: bool) -> Self {
        self.settings.creates_root = creates;
        self
    }

    /// Sets whether a delete also removes the directories that it leaves empty; by default they
    /// stay, and are listed as common prefixes. Do not use this where one name is a directory at
    /// one time and an object at another: the protocol has one request to remove either.
    #[must_use]
    pub fn with_directory_removal(mut self, removes: bool) -> Self {
        self.settings.removes_directories = removes;
        self
    }

    /// Sets whether puts write into temporary files with names. By default they write into files
    /// without names, of which nothing is left if this process dies. The store changes to names by
    /// itself where the file system of the server makes no files without names.
    #[must_use]
    pub fn with_named_temporaries(mut self, names: bool) -> Self {
        self.settings.names_temporaries = names;
        self
    }

    /// Sets the POSIX modes of new files and directories; 0644 and 0755 by default. A user needs
    /// the right to write an object in order to replace or delete it.
    #[must_use]
    pub fn with_modes(mut self, file: u32, directory: u32) -> Self {
        (self.settings.file_mode, self.settings.directory_mode) = (file, directory);
        self
    }

    /// Sets an option by its name, for programs that pass options of stores on as text:
    /// `connections` (a number), `durability` (`disk` or `server`), `create_root`,
    /// `remove_empty_directories` (`true` or `false`) and `transport` (`automatic`, `shm` or
    /// `tcp`).
    ///
    /// # Errors
    /// [`object_store::Error::UnknownConfigurationKey`] for any other name;
    /// [`object_store::Error::Generic`] for a value that the option does not have.
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

    /// Makes the store. It does not wait for the network: the first operation connects, or
    /// [`DafsStore::connect`].
    ///
    /// # Errors
    /// If the system has no thread or descriptor left.
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

/// The most connections of one store.
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
