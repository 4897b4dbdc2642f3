//! The options of a client in an exports file.
//!
//! Invariant: an option that would restrict clients is obeyed or refused, never ignored.

use dafs_store::local::Squash;
use dafs_types::Credentials;

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
    /// True if options apply to AUTH_SYS. After a `sec=` without `sys` they do not.
    applies: bool,
    /// True if `sec=` was given.
    has_flavors: bool,
    /// True if a list of `sec=` contains `sys`.
    has_sys: bool,
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
            applies: true,
            has_flavors: false,
            has_sys: false,
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
        self.squash = match (self.squashes_all, self.squashes_root) {
            (true, _) => Squash::All,
            (false, true) => Squash::Root,
            (false, false) => Squash::Nobody,
        };
        Ok(())
    }

    /// Checks the options of a client after all were added.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.has_flavors && !self.has_sys {
            true => Err("only sec=sys is served; add sys to sec=, or remove the client".to_owned()),
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
            ("ro", None) if self.applies => self.read_only = true,
            ("rw", None) if self.applies => self.read_only = false,
            ("root_squash", None) if self.applies => self.squashes_root = true,
            ("no_root_squash", None) if self.applies => self.squashes_root = false,
            ("all_squash", None) if self.applies => self.squashes_all = true,
            ("no_all_squash", None) if self.applies => self.squashes_all = false,
            ("secure", None) if self.applies => self.any_port = false,
            ("insecure", None) if self.applies => self.any_port = true,
            (
                "ro" | "rw" | "root_squash" | "no_root_squash" | "all_squash" | "no_all_squash"
                | "secure" | "insecure",
                None,
            ) => {}
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
        self.applies = flavors.split(':').any(|flavor| flavor == "sys");
        self.has_flavors = true;
        self.has_sys |= self.applies;
        Ok(())
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
    fn options_of_other_flavors_do_not_hold_for_sys() {
        let found = options("sec=sys,ro,sec=krb5,rw,no_root_squash").unwrap();
        assert!(found.read_only);
        assert_eq!(found.squash, Squash::Root);
        assert!(!options("sec=krb5:sys,rw").unwrap().read_only);
        assert!(options("sec=krb5p,rw").unwrap_err().contains("only sec=sys"));
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
