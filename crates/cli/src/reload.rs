//! Reloading the configuration of a running server, on SIGHUP.
//!
//! A reload applies rules about clients, users' passwords and TLS certificates. They hold for new
//! connections; open sessions keep what they were granted. If a file cannot be used, nothing
//! changes, and the log says why.

use anyhow::{Context, Result};
use dafs_dat::{Address, TlsServer};
use dafs_server::Reloader;
use serde_json::Value;

use crate::access;
use crate::exports;
use crate::serve::{Arguments, merge, tls};
use crate::socket_users;

/// Reloads the configuration of one server.
pub(crate) struct Reload {
    /// The options from the command line.
    flags: Arguments,
    /// The options that the server was started with, from the command line and the file.
    started: Arguments,
    /// True if the configuration names the users of this host that may connect.
    names_users: bool,
    addresses: Vec<Address>,
    server: Reloader,
    tls: Option<TlsServer>,
}

impl Reload {
    /// Creates the reload of a server that was started with the command line `flags`. `started` is
    /// `flags` merged with the configuration file.
    pub(crate) fn new(
        flags: Arguments,
        started: Arguments,
        addresses: &[Address],
        server: Reloader,
        tls: Option<TlsServer>,
    ) -> Self {
        let (names_users, addresses) = (!started.allow_user.is_empty(), addresses.to_vec());
        Self { flags, started, names_users, addresses, server, tls }
    }

    /// Reads the configuration again, applies it, and logs the result.
    pub(crate) fn run(&mut self) {
        use sd_notify::NotifyState;
        // Without systemd, nothing receives this notification.
        let reloading = [NotifyState::Reloading, monotonic_now()];
        let _ = sd_notify::notify(false, &reloading);
        match self.apply() {
            Ok(ignored) if ignored.is_empty() => tracing::info!("configuration reloaded"),
            Ok(ignored) => tracing::warn!(
                options = ignored.join(", "),
                "configuration reloaded, but for options that need a restart"
            ),
            Err(error) => tracing::error!(
                error = format!("{error:#}"),
                "configuration not reloaded; the server goes on with the old one"
            ),
        }
        let _ = sd_notify::notify(false, &[NotifyState::Ready]);
    }

    /// Applies the configuration. Returns the names of changed options that need a restart.
    fn apply(&mut self) -> Result<Vec<String>> {
        let new = merge(self.flags.clone())?;
        // Read and check everything before the first change.
        exports::check(&new)?;
        let rules = access::rules(&new)?;
        let tls = tls(&new)?;
        let version = self.server.read(rules, new.password_file.as_deref())?;
        // Close the socket to other users before the rules that keep them out are removed, and open
        // it to users after the rules for them are in force.
        let names_users = !new.allow_user.is_empty();
        if self.names_users && !names_users {
            socket_users::close_sockets(&new, &self.addresses)?;
        }
        self.server.apply(version);
        if names_users {
            socket_users::open_sockets(&new, &self.addresses);
        }
        self.names_users = names_users;
        let mut ignored = changed(&self.started, &new)?;
        match (&self.tls, &tls) {
            (Some(current), Some(tls)) => current.reload(tls),
            (None, None) => {}
            _ => ignored.push("tls-cert".to_owned()),
        }
        Ok(ignored)
    }
}

/// Returns the options that differ between two configurations and that a reload does not apply.
fn changed(old: &Arguments, new: &Arguments) -> Result<Vec<String>> {
    let [old, new] = [old, new].map(serde_json::to_value);
    let (old, new) = (old.context("comparing options")?, new.context("comparing options")?);
    let options = new.as_object().into_iter().flatten();
    let differs = options.filter(|(name, value)| {
        let old = old.get(name.as_str());
        match name.as_str() {
            "export" => old.map(paths_of) != Some(paths_of(value)),
            name => !RELOADED.contains(&name) && old != Some(value),
        }
    });
    Ok(differs.map(|(name, _)| name.clone()).collect())
}

/// Returns the values of each export table that a reload does not apply.
fn paths_of(exports: &Value) -> Vec<[Option<&Value>; 3]> {
    let tables = exports.as_array().into_iter().flatten();
    tables.map(|table| ["name", "path", "cross-mounts"].map(|key| table.get(key))).collect()
}

/// Returns the time by the clock with which systemd orders reloads, as a notification.
fn monotonic_now() -> sd_notify::NotifyState<'static> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    sd_notify::NotifyState::MonotonicUsec(
        i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000,
    )
}

/// The options that a reload applies. Of `export`, it applies the rules about clients and their
/// settings.
const RELOADED: &[&str] = &[
    "password-file",
    "allow-user",
    "allow-from",
    "trust",
    "squash",
    "squash-to",
    "connect",
    "trusted",
    "tls-cert",
    "tls-key",
    "tls-client-ca",
    "tls-client-optional",
    "tls-only",
];
