//! The options of a client in an exports file.
//!
//! Invariant: an option that would restrict clients is obeyed or refused, never ignored.

use dafs_store::local::Squash;
use dafs_types::Credentials;

use super::flavors::Flavor;
use super::rules::TransportSecurity;

/// The terms on which a client of an exports file uses an export. The defaults are those of
/// exports(5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// True if the server refuses changes.
    pub read_only: bool,
    /// The identities that are replaced by the anonymous identity.
    pub squash: Squash,
    /// The user id of the anonymous identity. `None` for that of the user `nobody`.
    pub anonymous_uid: Option<u32>,
    /// The group id of the anonymous identity. `None` for that of the user `nobody`.
    pub anonymous_gid: Option<u32>,
    /// True if the client may use ports of 1024 and above, which any user of its machine can open.
    pub any_port: bool,
    /// The least protection of the client's connections.
    pub transport: TransportSecurity,
    /// True if clients may enter file systems that are mounted beneath the export.
    pub cross_mounts: bool,
    /// The options that are known but have no effect on this server.
    pub ignored: Vec<String>,
    /// The options of the flavors in `sec=`, in the order of the file. If `sec=` is not given, the
    /// list is empty.
    flavors: Vec<FlavorOptions>,
    /// The number of the `sec=` whose flavors the next options are for; 0 before the first.
    list: usize,
    squashes_root: bool,
    squashes_all: bool,
}

/// The options that can differ by flavor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FlavorOptions {
    flavor: Flavor,
    /// The number of the last `sec=` that contains the flavor.
    list: usize,
    read_only: bool,
    any_port: bool,
    squashes_root: bool,
    squashes_all: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            read_only: true,
            squash: Squash::Root,
            anonymous_uid: None,
            anonymous_gid: None,
            any_port: false,
            transport: TransportSecurity::None,
            cross_mounts: false,
            ignored: Vec::new(),
            flavors: Vec::new(),
            list: 0,
            squashes_root: true,
            squashes_all: false,
        }
    }
}

impl ClientOptions {
    /// Applies a list of options, which commas separate.
    pub(crate) fn add(&mut self, list: &str) -> Result<(), String> {
        for option in list.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            self.add_one(option)?;
        }
        self.squash = squash_of(self.squashes_all, self.squashes_root);
        Ok(())
    }

    /// Returns the flavors in `sec=`, each with its options.
    pub(crate) fn flavors(&self) -> impl Iterator<Item = (Flavor, Self)> + '_ {
        self.flavors.iter().map(|own| {
            let FlavorOptions { flavor, read_only, any_port, squashes_all, squashes_root, .. } =
                *own;
            let squash = squash_of(squashes_all, squashes_root);
            (flavor, Self { read_only, any_port, squash, ..self.clone() })
        })
    }

    /// Returns the flavor in `sec=` that the server prefers. `None` if `sec=` is not given.
    #[must_use]
    pub fn preferred(&self) -> Option<Flavor> {
        self.flavors.first().map(|own| own.flavor)
    }

    /// Checks the options of a client after all were added.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.list > 0 && self.flavors.is_empty() {
            true => Err("sec= must contain sys, krb5, krb5i or krb5p".to_owned()),
            false => Ok(()),
        }
    }

    fn add_one(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        match (name, value) {
            ("sec", Some(flavors)) => return self.set_flavors(flavors),
            // Options after a list of flavors hold for these flavors.
            ("ro" | "rw", None) => self.set(|own| own.read_only = name == "ro"),
            ("root_squash" | "no_root_squash", None) => {
                self.set(|own| own.squashes_root = name == "root_squash");
            }
            ("all_squash" | "no_all_squash", None) => {
                self.set(|own| own.squashes_all = name == "all_squash");
            }
            ("secure" | "insecure", None) => self.set(|own| own.any_port = name == "insecure"),
            ("anonuid", Some(value)) => self.anonymous_uid = Some(id(option, value)?),
            ("anongid", Some(value)) => self.anonymous_gid = Some(id(option, value)?),
            ("crossmnt", None) => self.cross_mounts = true,
            ("xprtsec", Some(value)) => {
                let least = TransportSecurity::parse(value);
                self.transport = least.map_err(|what| format!("{option}: {what}"))?;
            }
            ("mp" | "mountpoint", _) => {
                return Err(format!(
                    "{option}: an export does not wait for a mount; remove the option, and start \
                    the server after the mount"
                ));
            }
            ("refer" | "replicas", _) => {
                return Err(format!("{option}: clients are not sent to other servers; remove it"));
            }
            ("fsid", Some(_)) => self.ignored.push("fsid".to_owned()),
            (name, None) if IGNORED.contains(&name) => self.ignored.push(name.to_owned()),
            _ => return Err(format!("{option:?} is no option of exports(5)")),
        }
        Ok(())
    }

    fn set_flavors(&mut self, flavors: &str) -> Result<(), String> {
        for flavor in flavors.split(':') {
            if !FLAVORS.contains(&flavor) {
                return Err(format!("sec={flavors}: {flavor:?} is no security flavor"));
            }
        }
        self.list += 1;
        for flavor in flavors.split(':').filter_map(Flavor::from_name) {
            match self.flavors.iter_mut().find(|own| own.flavor == flavor) {
                Some(own) => own.list = self.list,
                None => {
                    self.flavors.push(FlavorOptions { flavor, list: self.list, ..self.common() })
                }
            }
        }
        Ok(())
    }

    /// Returns the options that were given before the first `sec=`.
    fn common(&self) -> FlavorOptions {
        let Self { list, read_only, any_port, squashes_root, squashes_all, .. } = *self;
        let flavor = Flavor::Sys;
        FlavorOptions { flavor, list, read_only, any_port, squashes_root, squashes_all }
    }

    /// Sets an option for the flavors of the last `sec=`, or for all flavors before the first.
    fn set(&mut self, change: impl Fn(&mut FlavorOptions)) {
        if self.list > 0 {
            let list = self.list;
            return self.flavors.iter_mut().filter(|own| own.list == list).for_each(change);
        }
        let mut common = self.common();
        change(&mut common);
        let FlavorOptions { read_only, any_port, squashes_root, squashes_all, .. } = common;
        (self.read_only, self.any_port) = (read_only, any_port);
        (self.squashes_root, self.squashes_all) = (squashes_root, squashes_all);
    }
}

const fn squash_of(is_all: bool, is_root: bool) -> Squash {
    match (is_all, is_root) {
        (true, _) => Squash::All,
        (false, true) => Squash::Root,
        (false, false) => Squash::Nobody,
    }
}

fn id(option: &str, value: &str) -> Result<u32, String> {
    match value.parse::<u32>() {
        Ok(number) if number != u32::MAX => Ok(number),
        // exports(5) of some systems writes the id of `nobody` as -2.
        _ if value == "-2" => Ok(Credentials::nobody().uid()),
        _ => Err(format!("{option}: {value:?} is no id; write a number")),
    }
}

/// The security flavors of exports(5).
const FLAVORS: &[&str] = &["sys", "null", "none", "krb5", "krb5i", "krb5p"];
/// Options that change nothing here: the server makes data durable as the protocol asks, handles
/// contain the export, and every file system has its own fsid.
const IGNORED: &[&str] = &[
    "sync",
    "async",
    "wdelay",
    "no_wdelay",
    "hide",
    "nohide",
    "subtree_check",
    "no_subtree_check",
    "secure_locks",
    "insecure_locks",
    "auth_nlm",
    "no_auth_nlm",
    "acl",
    "no_acl",
    "pnfs",
    "no_pnfs",
    "nordirplus",
    "security_label",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn options(list: &str) -> Result<ClientOptions, String> {
        let mut options = ClientOptions::default();
        options.add(list)?;
        options.check()?;
        Ok(options)
    }

    #[test]
    fn the_defaults_are_those_of_exports() {
        let found = options("").unwrap();
        assert!(found.read_only && !found.any_port && !found.cross_mounts);
        assert_eq!(found.squash, Squash::Root);
    }

    #[test]
    fn the_last_of_two_contrary_options_holds() {
        assert!(!options("ro,rw").unwrap().read_only);
        assert_eq!(options("no_root_squash").unwrap().squash, Squash::Nobody);
        assert_eq!(options("no_root_squash,all_squash").unwrap().squash, Squash::All);
        assert_eq!(options("all_squash,no_all_squash").unwrap().squash, Squash::Root);
        assert!(options("insecure").unwrap().any_port);
        assert!(!options("insecure,secure").unwrap().any_port);
        let ids = options("all_squash,anonuid=150,anongid=100").unwrap();
        assert_eq!((ids.anonymous_uid, ids.anonymous_gid), (Some(150), Some(100)));
        assert_eq!(options("anonuid=-2").unwrap().anonymous_uid, Some(65_534));
        let ignored = options("async,no_subtree_check,fsid=0").unwrap().ignored;
        assert_eq!(ignored, ["async", "no_subtree_check", "fsid"]);
    }

    #[test]
    fn options_after_a_list_of_flavors_hold_for_these() {
        let shown = |list: &str| {
            let options = options(list).unwrap();
            let each = options
                .flavors()
                .map(|(flavor, own)| (flavor.name(), own.read_only, own.squash, own.any_port));
            each.collect::<Vec<_>>()
        };
        assert_eq!(shown("rw"), []);
        assert_eq!(
            shown("insecure,sec=sys,ro,sec=krb5p:krb5,rw,no_root_squash"),
            [
                ("sys", true, Squash::Root, true),
                ("krb5p", false, Squash::Nobody, true),
                ("krb5", false, Squash::Nobody, true),
            ]
        );
        // A flavor may be named again, and keeps its options and its place.
        assert_eq!(
            shown("sec=krb5i:sys,rw,sec=sys,ro,all_squash"),
            [("krb5i", false, Squash::Root, false), ("sys", true, Squash::All, false)]
        );
        assert_eq!(shown("sec=krb5p,rw"), [("krb5p", false, Squash::Root, false)]);
        assert!(options("sec=null").unwrap_err().contains("krb5p"));
        assert!(options("sec=sysx").unwrap_err().contains("flavor"));
    }

    #[test]
    fn the_weakest_protection_that_is_listed_is_enough() {
        assert_eq!(options("").unwrap().transport, TransportSecurity::None);
        assert_eq!(options("xprtsec=tls:mtls").unwrap().transport, TransportSecurity::Tls);
        assert_eq!(options("xprtsec=mtls,rw").unwrap().transport, TransportSecurity::Mtls);
    }

    #[test]
    fn what_would_restrict_clients_is_never_ignored() {
        for text in
            ["mp", "mountpoint=/x", "refer=/a@b", "xprtsec=ssl", "xprtsec", "rq", "fsid", "ro=1"]
        {
            assert!(options(text).is_err(), "{text}");
        }
        for text in ["anonuid=x", "anongid=4294967295", "anonuid=-1"] {
            assert!(options(text).unwrap_err().contains("id"), "{text}");
        }
    }
}
