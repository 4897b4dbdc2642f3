//! A server that serves a directory from a thread of this process.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use dafs_dat::Address;
use dafs_server::{LedgerError, Server, ServerConfig, ServerStats, Stopper};
use dafs_store::local::{LocalConfig, LocalStore, Squash};
use dafs_types::Credentials;

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A running server, which stops when this is dropped.
pub(crate) struct Served {
    pub address: Address,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<ServerStats, LedgerError>>>,
}

impl Served {
    /// Serves the directory `export` beneath `place`, which is created if necessary.
    pub(crate) fn start(place: &Path, config: &ServerConfig) -> Outcome<Self> {
        let exported = place.join("export");
        std::fs::create_dir_all(&exported)?;
        let store = LocalStore::new(&LocalConfig::new(exported, place.join("state")))?;
        let server = Server::new(config, Arc::new(store))?;
        let (address, stopper) = (server.addresses()[0].clone(), server.stopper());
        let thread = Some(std::thread::spawn(move || server.run()));
        Ok(Self { address, stopper, thread })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            // The measurement is complete; how the server ended does not matter.
            let _ = thread.join();
        }
    }
}

/// Returns the configuration of a server beneath `place` that listens over `tcp`, `shm` or `verbs`
/// and maps every client to this process's own user.
pub(crate) fn config(place: &Path, transport: &str) -> Outcome<ServerConfig> {
    let address = match transport {
        "tcp" => Address::Tcp("127.0.0.1:0".parse()?),
        "shm" => Address::Shm(place.join("socket")),
        "verbs" => {
            let address = std::env::var("DAFS_VERBS_ADDRESS")
                .map_err(|_| "DAFS_VERBS_ADDRESS names no RDMA device by its IP address")?;
            Address::Verbs((address.parse::<std::net::IpAddr>()?, 0).into())
        }
        other => return Err(format!("no transport is called {other}").into()),
    };
    let mut config = ServerConfig { listen: vec![address], ..ServerConfig::default() };
    config.access.squash = Some(Squash::Nobody);
    config.sessions.authentication.anonymous = Some(
        Credentials::plain(rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
            .unwrap(),
    );
    Ok(config)
}
