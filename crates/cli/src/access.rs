//! Translates the access-control part of the `dafs serve` configuration (tables and flags) into the
//! server's rules.
//!
//! Invariant: a rule that the server cannot enforce is refused before the server starts. The error
//! names the file, the key and the values that the key accepts.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};
use dafs_gss::{ServiceName, ServiceOptions};
use dafs_server::{
    AccessRules, ConnectRule, ExportRules, KerberosConfig, PartialTerms, Peers,
    authentication_named,
};
use dafs_store::local::Squash;
use dafs_types::Credentials;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::serve::Arguments;
use crate::socket_users;

/// A rule of the configuration: the clients that the rule applies to, and the settings for them.
/// Every list that is present must match the client, so a rule without lists applies to all
/// clients. The first rule that matches a client decides. The keys that a rule may contain depend
/// on the table that contains the rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct Rule {
    /// `"allow"` or `"deny"`. Only in `[[connect]]`.
    action: Option<String>,
    /// Where the client connects from: `"local"` (shared memory), an address, or a network such as
    /// `"192.0.2.0/24"`.
    from: Vec<String>,
    /// The client's transport: `"shm"`, `"tcp"` (with or without TLS), `"tls"` or `"verbs"`. To
    /// require a TLS client certificate, use `principals`.
    transport: Vec<String>,
    /// How the client authenticated: `"none"`, `"password"`, `"kerberos"`. Over shared memory,
    /// `"none"` means that the kernel vouches for the user.
    authentication: Vec<String>,
    /// The client's identity: `"uid:1000"` (reported by the kernel), `"user:ann"` (by password),
    /// `"kerberos:ann@REALM"`, `"certificate:NAME"`, `"anonymous"`. `*` is a wildcard.
    principals: Vec<String>,
    /// True to refuse changes by these clients. Only in the rules of an export.
    read_only: Option<bool>,
    /// Which users are mapped to `anonymous`: `"root"`, `"all"` or `"none"`. Only in the rules of
    /// an export.
    squash: Option<String>,
    /// The user and group for squashed clients, as `"UID:GID"`. Only in the rules of an export.
    anonymous: Option<String>,
}

/// An export and the clients that can see it.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ExportTable {
    /// The name of the export.
    pub name: String,
    /// The directory to export. Without it, `name` must be the name of one of `directories`.
    pub path: Option<PathBuf>,
    /// True to refuse changes in this export.
    read_only: Option<bool>,
    /// True to let clients enter file systems that are mounted beneath this export, if they are on
    /// a disk or in memory of this host. Otherwise clients see the name of a mount point but get
    /// XDEV when they enter it. Network file systems, FUSE and kernel file systems such as /proc
    /// are never entered.
    pub cross_mounts: Option<bool>,
    /// Which users are squashed in this export: `"root"` (user 0, and group 0), `"all"` or
    /// `"none"`. Default: the value of the key outside of this table.
    squash: Option<String>,
    /// The user and group for squashed clients, as `"UID:GID"`.
    anonymous: Option<String>,
    /// Rules that decide which clients see the export, and with which settings. Without rules, all
    /// clients see the export. With rules, a client that matches no rule can find the export
    /// neither in the root directory nor by a file handle.
    #[serde(default)]
    clients: Vec<Rule>,
}

impl ExportTable {
    /// Returns the first restriction that this export has and `other` lacks. `other` is an export
    /// whose directory contains this one.
    pub(crate) fn asks_more_than(
        &self,
        other: Option<&Self>,
        all_read_only: bool,
    ) -> Option<&'static str> {
        let clients = other.map_or(&[][..], |other| &other.clients);
        let squash = other.and_then(|other| other.squash.as_deref());
        let is_open = self.squash.as_deref().is_none_or(|squash| squash == "none");
        if !self.clients.is_empty() && self.clients != clients {
            Some("rules about clients")
        } else if self.read_only == Some(true)
            && !all_read_only
            && other.is_none_or(|other| other.read_only != Some(true))
        {
            Some("read-only")
        } else if !is_open && self.squash.as_deref() != squash {
            Some("squash")
        } else {
            None
        }
    }

    /// Returns the settings that apply to all clients of the export, and its rules.
    pub(crate) fn terms_of_all(&self) -> (Option<bool>, Option<&str>, Option<&str>, &[Rule]) {
        (self.read_only, self.squash.as_deref(), self.anonymous.as_deref(), &self.clients)
    }
}

impl KerberosTable {
    /// Returns the path of the keytab file with the server's keys.
    pub(crate) fn keytab(&self) -> Option<&Path> {
        self.keytab.as_deref()
    }
}

/// The settings of Kerberos authentication.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct KerberosTable {
    /// Keytab file with the server's keys. The server reads the file again for each client.
    keytab: Option<PathBuf>,
    /// Accept only tickets for this service, as `"dafs@host"`, instead of for every key in the
    /// keytab.
    service: Option<String>,
    /// File that records recently used tickets, so that no ticket can be replayed. Default: the
    /// system's replay cache.
    replay_cache: Option<PathBuf>,
    /// Map of principals to local users. This map takes precedence over all other mapping rules.
    users: BTreeMap<String, String>,
    /// True to map principals that `users` does not list by the `auth_to_local` rules of krb5.conf.
    host_rules: bool,
    /// True to allow a principal to become user 0.
    allow_root: bool,
    /// True to refuse tokens without a channel binding to the session. DAFS clients always send a
    /// binding.
    require_binding: bool,
    /// The largest token accepted over TCP, in bytes, at most 61440. Default: 15360.
    max_token: Option<u32>,
}

impl Default for KerberosTable {
    fn default() -> Self {
        Self {
            keytab: None,
            service: None,
            replay_cache: None,
            users: BTreeMap::new(),
            host_rules: true,
            allow_root: false,
            require_binding: false,
            max_token: None,
        }
    }
}

/// Translates the access rules of a configuration. The error of an invalid rule names the file.
pub(crate) fn rules(arguments: &Arguments) -> Result<AccessRules> {
    all_rules(arguments).with_context(|| place_of(arguments))
}

/// Returns the source of the configuration for error messages: the file or the command line.
fn place_of(arguments: &Arguments) -> String {
    arguments.config.as_deref().map_or_else(
        || "the flags of dafs serve".to_owned(),
        |file: &Path| format!("configuration {}", file.display()),
    )
}

fn all_rules(arguments: &Arguments) -> Result<AccessRules> {
    let mut rules =
        AccessRules { connect: socket_users::rules(arguments)?, ..AccessRules::default() };
    if !arguments.allow_from.is_empty() {
        let from = parsed(&arguments.allow_from, "allow-from")?;
        let peers = Peers { from, ..Peers::default() };
        rules.connect.push(ConnectRule { allow: true, peers });
    }
    for (index, rule) in arguments.connect.iter().enumerate() {
        let key = format!("[[connect]] number {}", index + 1);
        rules.connect.push(connect_rule(rule, &key)?);
    }
    if !arguments.trust.is_empty() {
        let principals = parsed(&arguments.trust, "trust")?;
        rules.trusted.push(Peers { principals, ..Peers::default() });
    }
    for (index, rule) in arguments.trusted.iter().enumerate() {
        let key = format!("[[trusted]] number {}", index + 1);
        demand_nothing(rule.action.as_ref(), &key, "action")?;
        rule.demand_no_terms(&key)?;
        let peers = rule.peers(&key)?;
        if peers == Peers::default() {
            bail!(
                "{key}: a rule without lists trusts every client; name the trusted ones, as in \
            principals = [\"uid:0\"]"
            );
        }
        rules.trusted.push(peers);
    }
    for export in &arguments.export {
        rules.exports.push(export_rules(export)?);
    }
    rules.squash = arguments.squash.as_deref().map(|text| squash(text, "squash")).transpose()?;
    if let Some(ids) = &arguments.squash_to {
        rules.anonymous = identity(ids, "squash-to")?;
    }
    Ok(rules)
}

fn connect_rule(rule: &Rule, key: &str) -> Result<ConnectRule> {
    rule.demand_no_terms(key)?;
    let allow = match rule.action.as_deref() {
        Some("allow") => true,
        Some("deny") => false,
        Some(other) => bail!("{key}, action: {other:?} is no action; write \"allow\" or \"deny\""),
        None => bail!("{key}: action is missing; write action = \"allow\" or \"deny\""),
    };
    Ok(ConnectRule { allow, peers: rule.peers(key)? })
}

fn export_rules(export: &ExportTable) -> Result<ExportRules> {
    let key = format!("[[export]] {:?}", export.name);
    let terms =
        terms(export.read_only, export.squash.as_deref(), export.anonymous.as_deref(), &key)?;
    let mut clients = Vec::new();
    for (index, rule) in export.clients.iter().enumerate() {
        let key = format!("{key}, clients number {}", index + 1);
        demand_nothing(rule.action.as_ref(), &key, "action")?;
        clients.push((rule.peers(&key)?, rule.terms(&key)?));
    }
    Ok(ExportRules { name: export.name.clone(), terms, clients })
}

impl Rule {
    fn peers(&self, key: &str) -> Result<Peers> {
        let named = |text: &String| {
            authentication_named(text).with_context(|| format!("{key}, authentication"))
        };
        Ok(Peers {
            from: parsed(&self.from, &format!("{key}, from"))?,
            transports: parsed(&self.transport, &format!("{key}, transport"))?,
            authentication: self.authentication.iter().map(named).collect::<Result<_>>()?,
            principals: parsed(&self.principals, &format!("{key}, principals"))?,
        })
    }

    fn terms(&self, key: &str) -> Result<PartialTerms> {
        terms(self.read_only, self.squash.as_deref(), self.anonymous.as_deref(), key)
    }

    fn demand_no_terms(&self, key: &str) -> Result<()> {
        demand_nothing(self.read_only.as_ref(), key, "read-only")?;
        demand_nothing(self.squash.as_ref(), key, "squash")?;
        demand_nothing(self.anonymous.as_ref(), key, "anonymous")
    }
}

fn demand_nothing<T>(found: Option<&T>, key: &str, what: &str) -> Result<()> {
    match found {
        None => Ok(()),
        Some(_) => bail!("{key}: {what} is not allowed in these rules; remove it"),
    }
}

fn terms(
    read_only: Option<bool>,
    wanted: Option<&str>,
    anonymous: Option<&str>,
    key: &str,
) -> Result<PartialTerms> {
    Ok(PartialTerms {
        read_only,
        squash: wanted.map(|text| squash(text, &format!("{key}, squash"))).transpose()?,
        anonymous: anonymous.map(|ids| identity(ids, &format!("{key}, anonymous"))).transpose()?,
    })
}

/// Parses whose identities an export replaces.
pub(crate) fn squash(text: &str, key: &str) -> Result<Squash> {
    match text {
        "none" => Ok(Squash::Nobody),
        "root" => Ok(Squash::Root),
        "all" => Ok(Squash::All),
        other => bail!("{key}: {other:?} is not valid; write \"none\", \"root\" or \"all\""),
    }
}

/// Parses a user and group given as `UID:GID`.
pub(crate) fn identity(text: &str, key: &str) -> Result<Credentials> {
    let error = || {
        anyhow!(
            "{key}: {text:?} is no user and group; write UID:GID, as in \
    65534:65534"
        )
    };
    let (uid, gid) = text.split_once(':').ok_or_else(error)?;
    let (uid, gid) = (uid.parse().map_err(|_| error())?, gid.parse().map_err(|_| error())?);
    Credentials::plain(uid, gid).with_context(|| format!("{key}: {text:?}"))
}

fn parsed<T>(texts: &[String], key: &str) -> Result<Vec<T>>
where
    T: FromStr,
    T::Err: Display,
{
    let parse = |text: &String| text.parse().map_err(|error| anyhow!("{key}: {error}"));
    texts.iter().map(parse).collect()
}

/// Returns the Kerberos configuration, or `None` if Kerberos is not requested.
pub(crate) fn kerberos(arguments: &Arguments) -> Result<Option<KerberosConfig>> {
    let table = match (&arguments.kerberos, &arguments.keytab) {
        (None, None) => return Ok(None),
        (table, _) => table.clone().unwrap_or_default(),
    };
    let keytab = arguments.keytab.clone().or(table.keytab);
    let name = match &table.service {
        Some(text) => {
            let parsed: Result<ServiceName, _> = text.parse();
            Some(parsed.with_context(|| format!("{}: [kerberos], service", place_of(arguments)))?)
        }
        None => None,
    };
    let by_default = KerberosConfig::default();
    Ok(Some(KerberosConfig {
        service: ServiceOptions { name, keytab, replay_cache: table.replay_cache },
        users: table.users,
        host_rules: table.host_rules,
        superuser: table.allow_root,
        token_bytes_max: table.max_token.unwrap_or(by_default.token_bytes_max),
        binding_required: table.require_binding,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_that_no_user_has_is_nobodys_to_give() {
        assert_eq!(identity("7:8", "squash-to").unwrap(), Credentials::plain(7, 8).unwrap());
        for text in ["4294967295:8", "7:4294967295", "-1:8"] {
            let error = format!("{:#}", identity(text, "squash-to").unwrap_err());
            assert!(error.contains("squash-to") && error.contains(text), "{error}");
        }
    }
}
