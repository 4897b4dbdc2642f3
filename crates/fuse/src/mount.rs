//! Mounts, serves and unmounts.
//!
//! Invariant: every mount that was made is unmounted when its service ends for any reason. The
//! serving thread never waits for an unmount, because the kernel may be waiting for its replies.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use dafs_client::{Session, SessionOptions};
use dafs_types::FileHandle;
use fuser::{Config, InitFlags, KernelConfig, MountOption, SessionACL, SessionUnmounter};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::engine::{Ended, Engine, WRITE_BYTES_MAX};
use crate::options::MountOptions;
use crate::reply::Device;

/// The reason why mounting or serving failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel has no FUSE support.
    #[error("/dev/fuse is not there; load the kernel's module with `modprobe fuse`")]
    NoDevice,
    /// A user other than root needs a helper program.
    #[error(
        "only root can mount without a helper; install fusermount3 (package fuse3), which mounts \
         for others"
    )]
    NoHelper,
    /// The directory cannot be mounted on.
    #[error("{}: cannot be mounted on", path.display())]
    Directory {
        /// The directory to mount on.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The kernel or the helper refuses to mount.
    #[error("mounting on {}", path.display())]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// The error of the kernel or the helper.
        source: io::Error,
    },
    /// The option `nosymfollow` cannot be set.
    #[error(
        "{}: nosymfollow cannot be set; mount as root, on Linux 5.10 or later, or leave it out",
        path.display()
    )]
    NoLinks {
        /// The mount point.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The service failed.
    #[error("serving {}", path.display())]
    Service {
        /// The mount point.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
}

/// A mounted directory that is not served yet.
pub struct Mount {
    fuse: fuser::Session<Negotiator>,
    path: PathBuf,
}

/// A handle that unmounts a mount from any thread.
pub struct Unmounter {
    fuse: SessionUnmounter,
    path: PathBuf,
}

/// The result of unmounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// The file system is unmounted.
    Gone,
    /// Programs still use the file system. The file system has no mount point any more, and is
    /// served until the programs stop using it.
    Detached,
}

/// Negotiates the properties of the mount with the kernel. It does not handle any later requests.
struct Negotiator {
    options: MountOptions,
}

impl fuser::Filesystem for Negotiator {
    fn init(&mut self, _request: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wishes = vec![
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_POSIX_LOCKS,
            InitFlags::FUSE_FLOCK_LOCKS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_AUTO_INVAL_DATA,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            InitFlags::FUSE_ABORT_ERROR,
        ];
        if self.options.writeback {
            wishes.push(InitFlags::FUSE_WRITEBACK_CACHE);
        }
        for wish in wishes {
            if let Err(missing) = config.add_capabilities(wish) {
                tracing::info!(?missing, "this kernel does not support some capabilities");
            }
        }
        let bytes = u32::try_from(WRITE_BYTES_MAX).unwrap_or(u32::MAX);
        // Ignore an error: if the kernel does not support the value, it uses the nearest one.
        let _ = config.set_max_write(bytes);
        if let Err(most) = config.set_max_readahead(bytes) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }
}

impl Mount {
    /// Mounts on a directory. Programs that use the mount wait until [`Mount::serve`] is called.
    ///
    /// # Errors
    /// A [`MountError`] that says what is missing, or what refused to mount.
    pub fn new(directory: &Path, options: &MountOptions) -> Result<Self, MountError> {
        let at = |source| MountError::Directory { path: directory.to_path_buf(), source };
        let path = directory.canonicalize().map_err(at)?;
        if !path.is_dir() {
            return Err(at(io::ErrorKind::NotADirectory.into()));
        }
        if !Path::new("/dev/fuse").exists() {
            return Err(MountError::NoDevice);
        }
        let is_root = rustix::process::geteuid().is_root();
        if !is_root && helper().is_none() {
            return Err(MountError::NoHelper);
        }
        let config = configuration(options, is_root);
        let greeter = Negotiator { options: options.clone() };
        let fuse = fuser::Session::new(greeter, &path, &config)
            .map_err(|source| MountError::Refused { path: path.clone(), source })?;
        let mount = Self { fuse, path };
        if options.no_links {
            let refused = |source| MountError::NoLinks { path: mount.path.clone(), source };
            follow_no_links(&mount.path, options).map_err(refused)?;
        }
        Ok(mount)
    }

    /// Returns a value that unmounts from another thread than the serving one.
    pub fn unmounter(&mut self) -> Unmounter {
        Unmounter { fuse: self.fuse.unmount_callable(), path: self.path.clone() }
    }

    /// Serves a directory of the session's server until it is unmounted. If the session ends, a new
    /// session is made with `session_options`.
    ///
    /// # Errors
    /// [`MountError::Service`] if communication with the kernel fails.
    pub fn serve(
        self,
        session: Session,
        root: FileHandle,
        session_options: SessionOptions,
        options: MountOptions,
    ) -> Result<(), MountError> {
        let failed = |source| MountError::Service { path: self.path.clone(), source };
        let device = self.fuse.as_fd().try_clone_to_owned().and_then(Device::new);
        let device = device.map_err(failed)?;
        if let Err(error) = read_ahead(&self.path, options.read_ahead_kib) {
            tracing::info!(%error, "cannot set the read-ahead; the kernel's default applies");
        }
        let engine = Engine::new(device, session, root, session_options, options);
        let ended = engine.serve().map_err(failed)?;
        // Forget the value: `fuser` does not know that the mount has ended, and would unmount
        // whatever is mounted there now.
        std::mem::forget(self.fuse);
        if ended == Ended::Aborted && is_dead(&self.path) {
            tracing::warn!(path = %self.path.display(), "the kernel has aborted the mount");
            detach(&self.path).map_err(failed)?;
        }
        Ok(())
    }
}

impl Unmounter {
    /// Unmounts. If programs use the mount, it loses its mount point immediately, and ends when the
    /// programs stop using it.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn unmount(&mut self) -> io::Result<Unmounted> {
        match self.fuse.unmount() {
            Ok(()) => Ok(Unmounted::Gone),
            Err(error) if error.raw_os_error() == Some(EBUSY) => {
                detach(&self.path)?;
                Ok(Unmounted::Detached)
            }
            Err(error) => Err(error),
        }
    }
}

/// Unmounts a FUSE file system from a directory, directly or through the helper.
///
/// # Errors
/// The error of the kernel or the helper.
pub fn unmount(path: &Path, lazily: bool) -> io::Result<()> {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(path, flags | UnmountFlags::NOFOLLOW) {
        Err(rustix::io::Errno::PERM) => {}
        other => return other.map_err(io::Error::from),
    }
    let Some(helper) = helper() else {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "only root can unmount without a helper; install fusermount3 (package fuse3)",
        ));
    };
    let mut command = Command::new(helper);
    command.arg(if lazily { "-uz" } else { "-u" }).arg("--").arg(path);
    let output = command.output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

/// Sets the number of KiB that the kernel reads ahead. The default for FUSE is 128 KiB, which only
/// root can change.
fn read_ahead(path: &Path, kib: u32) -> io::Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    // The fields are: number, parent, device, root, mount point. The last entry for a mount point
    // is the visible one.
    let device = mounts.lines().rev().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        let (device, place) = (fields.next()?, fields.nth(1)?);
        (place == escaped(path)).then(|| device.to_owned())
    });
    let device = device.ok_or(io::ErrorKind::NotFound)?;
    std::fs::write(format!("/sys/class/bdi/{device}/read_ahead_kb"), kib.to_string())
}

/// Sets the mount flag that keeps symbolic links from being followed. The kernel replaces all
/// flags, so the other flags are set again.
fn follow_no_links(path: &Path, options: &MountOptions) -> io::Result<()> {
    let mut flags = MountFlags::BIND | MountFlags::NOSYMFOLLOW;
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NODEV, !options.devices);
    flags.set(MountFlags::NOSUID, !options.set_id);
    flags.set(MountFlags::NOEXEC, options.no_execution);
    flags.set(MountFlags::NOATIME, options.no_access_times);
    Ok(rustix::mount::mount_remount(path, flags, "")?)
}

/// Escapes a path as in `/proc`.
fn escaped(path: &Path) -> String {
    let text = path.to_string_lossy().replace('\\', "\\134");
    text.replace(' ', "\\040").replace('\t', "\\011").replace('\n', "\\012")
}

/// True if a mount exists whose connection was aborted.
fn is_dead(path: &Path) -> bool {
    // Read the directory instead of querying attributes, which the kernel may have cached.
    let error = std::fs::read_dir(path).err();
    error.and_then(|error| error.raw_os_error()) == Some(ENOTCONN)
}

fn detach(path: &Path) -> io::Result<()> {
    unmount(path, true)
}

/// Returns the program that mounts for users other than root.
fn helper() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/bin".into(), "/usr/bin".into()]);
    let mut named =
        places.flat_map(|place| ["fusermount3", "fusermount"].map(|name| place.join(name)));
    named.find(|file| file.exists())
}

fn configuration(options: &MountOptions, is_root: bool) -> Config {
    let choose = |is_on, yes, no| if is_on { yes } else { no };
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.source.clone()),
        // Both the kernel and the helper take the subtype as an option.
        MountOption::CUSTOM("subtype=dafs".into()),
        // Split longer reads into several requests, so that the server prepares a request while the
        // reply to another is being sent.
        MountOption::CUSTOM(format!("max_read={}", u64::from(options.read_kib_max) << 10)),
        MountOption::DefaultPermissions,
        choose(options.read_only, MountOption::RO, MountOption::RW),
        choose(options.devices, MountOption::Dev, MountOption::NoDev),
        choose(options.set_id, MountOption::Suid, MountOption::NoSuid),
        choose(options.no_execution, MountOption::NoExec, MountOption::Exec),
    ];
    let wanted = [
        (options.no_access_times, MountOption::NoAtime),
        (options.syncs_writes, MountOption::Sync),
        (options.syncs_names, MountOption::DirSync),
    ];
    let wanted = wanted.into_iter().filter(|(is_wanted, _)| *is_wanted);
    config.mount_options.extend(wanted.map(|(_, option)| option));
    config.acl = if is_root || options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config
}

/// The maximum number of kernel requests that no process waits for, such as read-ahead.
const BACKGROUND_MAX: u16 = 64;
const EBUSY: i32 = 16;
const ENOTCONN: i32 = 107;
