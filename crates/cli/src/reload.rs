//! Reloading the configuration of a running server, on SIGHUP.
//!
//! What is reloaded: rules about clients, users' passwords and TLS certificates. They hold for new
//! connections; sessions that are open keep what they were granted. A file that cannot be used
//! changes nothing, and the log says why.

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
    /// What the command line said.
    flags: Arguments,
    /// What the server was started with, the file included.
    started: Arguments,
    /// True if users of this host are named who may connect.
    names_users: bool,
    addresses: Vec<Address>,
    server: Reloader,
    tls: Option<TlsServer>,
}

impl Reload {
    /// For a server that was started with `flags`, which `started` merges with its file.
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

    /// Reads the configuration again and applies it; says in the log what happened.
    pub(crate) fn run(&mut self) {
        use sd_notify::NotifyState;
        // Without systemd nothing listens.
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

    /// Applies the configuration. Returns the options that changed and need a restart.
    fn apply(&mut self) -> Result<Vec<String>> {
        let new = merge(self.flags.clone())?;
        // Everything is read and checked before the first change.
        exports::check(&new)?;
        let rules = access::rules(&new)?;
        let tls = tls(&new)?;
        let version = self.server.read(rules, new.password_file.as_deref())?;
        // The socket is closed to users before the rules that kept them out are gone, and opened
        // to users after the rules for them are in force.
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

/// Options that differ between two configurations and that a reload does not apply.
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

/// The parts of export tables that a reload does not apply.
fn paths_of(exports: &Value) -> Vec<[Option<&Value>; 3]> {
    let tables = exports.as_array().into_iter().flatten();
    tables.map(|table| ["name", "path", "cross-mounts"].map(|key| table.get(key))).collect()
}

/// The clock that systemd compares a reload's beginning with.
fn monotonic_now() -> sd_notify::NotifyState<'static> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    sd_notify::NotifyState::MonotonicUsec(
        i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000,
    )
}

/// Options that a reload applies. Of `export` it applies who sees an export and on which terms.
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
