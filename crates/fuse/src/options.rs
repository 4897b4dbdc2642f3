//! Mount options, as given with `-o`.
//!
//! Invariant: an unknown option is an error that names the option. Options that mount(8) supports
//! for every file system are accepted even if they have no effect here.

use std::time::Duration;

/// The settings of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The time for which the kernel caches attributes: `attr_timeout`.
    pub attribute_timeout: Duration,
    /// The time for which the kernel caches names: `entry_timeout`.
    pub entry_timeout: Duration,
    /// The time for which the kernel caches that a name does not exist: `negative_timeout`.
    pub negative_timeout: Duration,
    /// True to bypass the page cache: `direct_io`.
    pub direct_io: bool,
    /// True to keep writes in the page cache for a while: `writeback`.
    pub writeback: bool,
    /// True if appends go to the end of the file as this host's kernel sees it: `local_append`.
    pub local_append: bool,
    /// True if users other than the mounting one may use the mount: `allow_other`. Always true for
    /// root.
    pub allow_other: bool,
    /// True if the mount is read-only: `ro`.
    pub read_only: bool,
    /// True if device nodes can be opened: `dev`.
    pub devices: bool,
    /// True if set-user-id bits take effect: `suid`.
    pub set_id: bool,
    /// True if programs cannot be executed: `noexec`.
    pub no_execution: bool,
    /// True if access times are not updated: `noatime`.
    pub no_access_times: bool,
    /// True if each write is on stable storage before it returns: `sync`.
    pub syncs_writes: bool,
    /// True if each change of a name is on stable storage before it returns: `dirsync`.
    pub syncs_names: bool,
    /// True if symbolic links are not followed: `nosymfollow`. Only root can set this.
    pub no_links: bool,
    /// True if new objects belong to the calling user. This works only if the server treats the
    /// client as the superuser.
    pub names_owners: bool,
    /// The longest time to poll for replies before sleeping: `spin`, in microseconds.
    pub spin: Duration,
    /// The number of KiB that the kernel reads ahead: `readahead`. Only root can set this.
    pub read_ahead_kib: u32,
    /// The largest read request, in KiB: `maxread`.
    pub read_kib_max: u32,
    /// The time to wait for a lost server before programs get EIO: `giveup`, in seconds. `None` is
    /// the client's default.
    pub give_up: Option<Duration>,
    /// The source that `df` and `mount` show.
    pub source: String,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            attribute_timeout: Duration::from_secs(1),
            entry_timeout: Duration::from_secs(1),
            negative_timeout: Duration::ZERO,
            direct_io: false,
            writeback: false,
            local_append: false,
            allow_other: false,
            read_only: false,
            devices: false,
            set_id: false,
            no_execution: false,
            no_access_times: false,
            syncs_writes: false,
            syncs_names: false,
            no_links: false,
            names_owners: false,
            spin: Duration::from_micros(20),
            read_ahead_kib: 1024,
            read_kib_max: 256,
            give_up: None,
            source: "dafs".into(),
        }
    }
}

/// The reason why an option is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// The option is unknown.
    #[error("{0:?} is not a mount option; `dafs mount --help` lists them")]
    Unknown(String),
    /// The value is not a number.
    #[error("{option}={value}: give a number, such as {option}=2")]
    Value {
        /// The name of the option.
        option: String,
        /// The given value.
        value: String,
    },
}

impl MountOptions {
    /// Applies options as given with `-o`, separated by commas.
    ///
    /// # Errors
    /// [`OptionError`] names the first invalid option.
    pub fn apply(&mut self, text: &str) -> Result<(), OptionError> {
        for option in text.split(',').filter(|option| !option.is_empty()) {
            self.apply_one(option)?;
        }
        Ok(())
    }

    fn apply_one(&mut self, option: &str) -> Result<(), OptionError> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let seconds = || {
            let number = value.parse().ok();
            let duration = number.and_then(|number| Duration::try_from_secs_f64(number).ok());
            duration.ok_or_else(|| OptionError::Value {
                option: name.to_owned(),
                value: value.to_owned(),
            })
        };
        let number = || {
            let number = value.parse();
            number.map_err(|_| OptionError::Value { option: name.into(), value: value.into() })
        };
        match name {
            "attr_timeout" => self.attribute_timeout = seconds()?,
            "entry_timeout" => self.entry_timeout = seconds()?,
            "negative_timeout" => self.negative_timeout = seconds()?,
            "readahead" => self.read_ahead_kib = number()?,
            "maxread" => self.read_kib_max = number()?.clamp(4, 1024),
            "giveup" => self.give_up = Some(seconds()?),
            "spin" => self.spin = seconds()? / 1_000_000,
            "direct_io" => self.direct_io = true,
            "writeback" => self.writeback = true,
            "local_append" => self.local_append = true,
            "allow_other" => self.allow_other = true,
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "dev" => self.devices = true,
            "nodev" => self.devices = false,
            "suid" => self.set_id = true,
            "nosuid" => self.set_id = false,
            "noexec" => self.no_execution = true,
            "exec" => self.no_execution = false,
            "noatime" => self.no_access_times = true,
            "atime" => self.no_access_times = false,
            "sync" => self.syncs_writes = true,
            "async" => self.syncs_writes = false,
            "dirsync" => self.syncs_names = true,
            "nosymfollow" => self.no_links = true,
            "symfollow" => self.no_links = false,
            _ if IGNORED.contains(&name) => {}
            _ if name.starts_with("x-") || name.starts_with("X-") => {}
            _ => return Err(OptionError::Unknown(option.to_owned())),
        }
        Ok(())
    }
}

/// Options of mount(8) and fstab for every file system that have no effect here: which users may
/// mount and when, access times, which the server handles, and defaults.
const IGNORED: &[&str] = &[
    "_netdev",
    "_rnetdev",
    "auto",
    "comment",
    "default_permissions",
    "defaults",
    "diratime",
    "group",
    "iversion",
    "lazytime",
    "loud",
    "mand",
    "noauto",
    "nodiratime",
    "nofail",
    "nogroup",
    "noiversion",
    "nolazytime",
    "nomand",
    "noowner",
    "norelatime",
    "nostrictatime",
    "nouser",
    "nousers",
    "owner",
    "relatime",
    "silent",
    "strictatime",
    "user",
    "users",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_fstab_and_our_own() {
        let mut options = MountOptions::default();
        options.apply("rw,attr_timeout=0,entry_timeout=2.5,_netdev,x-systemd.automount").unwrap();
        assert_eq!(options.attribute_timeout, Duration::ZERO);
        assert_eq!(options.entry_timeout, Duration::from_millis(2500));
        options.apply("spin=50,writeback,,direct_io").unwrap();
        assert_eq!(options.spin, Duration::from_micros(50));
        assert!(options.writeback && options.direct_io);
        options.apply("readahead=0,maxread=4096").unwrap();
        assert_eq!((options.read_ahead_kib, options.read_kib_max), (0, 1024));
        assert!(options.apply("maxread=much").is_err());
    }

    #[test]
    fn what_is_no_option_is_refused_by_name() {
        let mut options = MountOptions::default();
        assert_eq!(options.apply("ro,big"), Err(OptionError::Unknown("big".into())));
        assert!(options.apply("giveup=soon").unwrap_err().to_string().contains("giveup=soon"));
        assert!(options.apply("giveup=-1").is_err());
    }
}
