//! Describes the rules for NFS clients as text, for `dafs exports`.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;

use dafs_store::ExportTerms;
use dafs_types::names::shown;

use super::compile::{SystemLookup, confirmed_name};
use super::rules::{NfsClients, NfsPeer, option_of};
use crate::access::authorize::AccessRules;

/// Describes the entries that apply to the client at an address, or all entries if there is no
/// address. May block, because it looks up the name of the client if the rules need it. The exports
/// are given by their names and by the paths by which clients mount them.
pub(crate) fn describe(
    rules: &AccessRules,
    exports: (&[OsString], &[OsString]),
    client: Option<IpAddr>,
) -> Vec<String> {
    match client {
        Some(address) => of_client(rules, exports, address.to_canonical()),
        None => {
            let exports = exports.0.iter().zip(exports.1);
            exports.flat_map(|(name, path)| of_export(rules, name, path)).collect()
        }
    }
}

fn of_client(
    rules: &AccessRules,
    (names, paths): (&[OsString], &[OsString]),
    address: IpAddr,
) -> Vec<String> {
    let host = match rules.nfs.needs_names() {
        true => confirmed_name(address, &SystemLookup),
        false => None,
    };
    let peer = NfsPeer::of(SocketAddr::new(address, 0), host).at_best();
    let terms = match rules.judge_nfs(&peer, names) {
        Ok(terms) => terms,
        Err(refusal) => return vec![format!("{address} is not served: {refusal}")],
    };
    let exports = names.iter().zip(paths).zip(&terms);
    let visible = exports.filter(|(_, terms)| terms.is_visible);
    let line = |((name, path), terms): ((&OsString, &OsString), &ExportTerms)| {
        let entry = rules.nfs.entry(name.to_str()?, &peer)?;
        Some(format!("{} {} [{}]", shown(path.as_bytes()), options(terms, entry), entry.place()))
    };
    visible.filter_map(line).collect()
}

fn options(terms: &ExportTerms, entry: &NfsClients) -> String {
    let access = if terms.read_only { "ro" } else { "rw" };
    let squash = option_of(terms.squash);
    let port = if entry.any_port { "insecure" } else { "secure" };
    let (uid, gid) = (terms.anonymous.uid(), terms.anonymous.gid());
    let transport = entry.transport.option();
    let flavors: Vec<&str> = entry.flavors.iter().map(|own| own.flavor.name()).collect();
    let security = match flavors.is_empty() {
        true => String::new(),
        false => format!("sec={},", flavors.join(":")),
    };
    format!("{security}{access},{squash},{port}{transport},anonuid={uid},anongid={gid}")
}

fn of_export(rules: &AccessRules, name: &OsString, path: &OsString) -> Vec<String> {
    let Some(text) = name.to_str() else { return Vec::new() };
    let own = rules.nfs.exports.iter().find(|own| own.name == text);
    let clients = own.map_or(&rules.nfs.others, |own| &own.clients);
    let path = shown(path.as_bytes());
    match clients.is_empty() {
        true => vec![format!("{path} no NFS client")],
        false => clients.iter().map(|entry| format!("{path} {entry}")).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::exports::rules::{NfsRules, TransportSecurity};

    #[test]
    fn the_protection_that_a_client_needs_is_shown() {
        for (least, shown) in [
            (TransportSecurity::None, "secure,anonuid"),
            (TransportSecurity::Mtls, "secure,xprtsec=mtls,anonuid"),
        ] {
            let nfs = NfsRules::default().over(least);
            let rules = AccessRules { nfs, ..AccessRules::default() };
            let client = Some("127.0.0.1".parse().unwrap());
            let lines = describe(&rules, (&["pub".into()], &["/pub".into()]), client);
            assert!(lines.len() == 1 && lines[0].contains(shown), "{lines:?}");
        }
    }
}
