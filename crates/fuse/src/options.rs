//! Options of a mount, as `-o` has them.
//!
//! Invariant: an option that is not known is refused by name, unless it is one that mount(8) has
//! for every file system: those are taken, whether they mean something here or not.

use std::time::Duration;

/// How a mount behaves.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// How long the kernel believes attributes: `attr_timeout`.
    pub attribute_timeout: Duration,
    /// How long it believes names: `entry_timeout`.
    pub entry_timeout: Duration,
    /// How long it believes that a name is not there: `negative_timeout`.
    pub negative_timeout: Duration,
    /// No page cache: `direct_io`.
    pub direct_io: bool,
    /// Writes stay in the page cache for a while: `writeback`.
    pub writeback: bool,
    /// Appends go where this host's kernel sees the end: `local_append`.
    pub local_append: bool,
    /// Others than who mounts may use it: `allow_other`; what root does by itself.
    pub allow_other: bool,
    /// Nothing can be changed: `ro`.
    pub read_only: bool,
    /// Device nodes work: `dev`.
    pub devices: bool,
    /// Set-user-id bits work: `suid`.
    pub set_id: bool,
    /// Programs cannot be started: `noexec`.
    pub no_execution: bool,
    /// Times of access stay: `noatime`.
    pub no_access_times: bool,
    /// Each write is on stable storage when it is answered: `sync`.
    pub syncs_writes: bool,
    /// The same of names: `dirsync`.
    pub syncs_names: bool,
    /// Symbolic links of it lead nowhere: `nosymfollow`, which root alone can see to.
    pub no_links: bool,
    /// What is made belongs to whoever makes it, which only the superuser can see to.
    pub names_owners: bool,
    /// How long answers are waited for without sleeping: `spin`, in microseconds.
    pub spin: Duration,
    /// How far the kernel reads ahead, in KiB: `readahead`. Root alone may say so.
    pub read_ahead_kib: u32,
    /// Largest read, in KiB: `maxread`.
    pub read_kib_max: u32,
    /// How long a lost server is looked for before programs get EIO: `giveup`, in seconds.
    pub give_up: Option<Duration>,
    /// What `df` and `mount` show as its source.
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

/// Why an option is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// Nobody knows it.
    #[error("{0:?} is no option of a mount; `dafs mount --help` names them")]
    Unknown(String),
    /// Its value is no number.
    #[error("{option}={value}: give a number, such as {option}=2")]
    Value {
        /// Its name.
        option: String,
        /// What was given.
        value: String,
    },
}

impl MountOptions {
    /// Takes options in, as `-o` has them: separated by commas.
    ///
    /// # Errors
    /// [`OptionError`] names the first that is none.
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

/// Options of mount(8) and of fstab for every file system that mean nothing here: who may mount and
/// when, times of access, which are the server's care, and what is so anyway.
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
