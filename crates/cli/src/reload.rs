//! Reloads the configuration of a running server, on SIGHUP.
//!
//! A reload applies rules about clients, users' passwords and TLS certificates. They hold for new
//! connections; open sessions keep what they were granted.
//!
//! Invariant: a reload applies all changes or none. If a file cannot be used, or another option has
//! changed, nothing changes, and the log says why. Rules that arrive without the export paths or
//! the anonymous user that they belong to could admit clients that both configurations keep out.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use dafs_dat::TlsServer;
use dafs_server::Reloader;
use serde_json::Value;

use crate::access;
use crate::exports;
use crate::nfs;
use crate::serve::{Arguments, merge, tls};

/// Reloads the configuration of one server.
pub(crate) struct Reload {
    /// The options from the command line.
    flags: Arguments,
    /// The options that the server was started with, from the command line and the file.
    started: Arguments,
    server: Reloader,
    tls: Option<TlsServer>,
    /// Held by the reload in progress.
    turn: Mutex<()>,
}

impl Reload {
    /// Creates the reload of a server that was started with the command line `flags`. `started` is
    /// `flags` merged with the configuration file.
    pub(crate) fn new(
        flags: Arguments,
        started: Arguments,
        server: Reloader,
        tls: Option<TlsServer>,
    ) -> Self {
        Self { flags, started, server, tls, turn: Mutex::new(()) }
    }

    /// Reads the configuration again, applies it, and logs the result.
    ///
    /// # Errors
    /// If nothing was applied; see [`Self::apply`].
    pub(crate) fn run(&self) -> Result<()> {
        use sd_notify::NotifyState;
        // Without systemd, nothing receives this notification.
        let reloading = [NotifyState::Reloading, monotonic_now()];
        let _ = sd_notify::notify(false, &reloading);
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let applied = self.apply();
        drop(turn);
        match &applied {
            Ok(()) => tracing::info!("configuration reloaded"),
            Err(error) => tracing::error!(
                error = format!("{error:#}"),
                "configuration not reloaded; the server goes on with the old one"
            ),
        }
        let _ = sd_notify::notify(false, &[NotifyState::Ready]);
        applied
    }

    /// Describes the rules in force for NFS clients, or for the client at an address.
    pub(crate) fn describe_nfs(&self, client: Option<IpAddr>) -> Vec<String> {
        self.server.describe_nfs(client)
    }

    /// Applies the configuration.
    ///
    /// # Errors
    /// If a file cannot be used, or an option has changed that needs a restart. Nothing has changed
    /// then.
    fn apply(&self) -> Result<()> {
        let new = merge(self.flags.clone())?;
        let changed = changed(&self.started, &new)?;
        if !changed.is_empty() {
            bail!("a change of {} needs a restart; nothing was applied", changed.join(", "));
        }
        exports::check(&new)?;
        let mut rules = access::rules(&new)?;
        rules.nfs = nfs::rules_at_reload(&new)?;
        let tls = tls(&new)?;
        nfs::check_tls(&new, &rules.nfs, tls.as_ref())?;
        let version = self.server.read(rules, new.password_file.as_deref())?;
        self.server.apply(version);
        if let (Some(current), Some(tls)) = (&self.tls, &tls) {
            current.reload(tls);
        }
        Ok(())
    }
}

/// Returns the options that differ between two configurations and that a reload cannot apply.
fn changed(old: &Arguments, new: &Arguments) -> Result<Vec<String>> {
    let [old_values, new_values] = [old, new].map(|options| {
        // The file has only text, so paths that are not UTF-8 are from the command line, and equal.
        let options = Arguments { directories: Vec::new(), ..options.clone() };
        serde_json::to_value(options).context("comparing the options with those of the start")
    });
    let (old_values, new_values) = (old_values?, new_values?);
    let options = new_values.as_object().into_iter().flatten();
    let differs = options.filter(|(name, value)| {
        let old = old_values.get(name.as_str());
        match name.as_str() {
            "export" => old.map(paths_of) != Some(paths_of(value)),
            "nfs" => old.map(|old| &old["listen"]) != Some(&value["listen"]),
            name => !RELOADED.contains(&name) && old != Some(value),
        }
    });
    let mut changed: Vec<String> = differs.map(|(name, _)| name.clone()).collect();
    let switches = [
        ("directories", old.directories != new.directories),
        (
            "the directories, or of crossmnt, in the exports file",
            directories_listed(old) != directories_listed(new),
        ),
        // Whether other users can open the socket was decided at the start.
        (
            "allow-user (from no users, or to none)",
            old.allow_user.is_empty() != new.allow_user.is_empty(),
        ),
        ("tls-cert (from no TLS, or to none)", old.tls_cert.is_some() != new.tls_cert.is_some()),
    ];
    changed.extend(switches.iter().filter(|switch| switch.1).map(|switch| switch.0.to_owned()));
    Ok(changed)
}

/// Returns what a reload does not apply of an exports file.
fn directories_listed(options: &Arguments) -> BTreeSet<(&Path, bool)> {
    let listed = options.nfs.listed().iter();
    listed.map(|export| (&*export.path, export.cross_mounts())).collect()
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
