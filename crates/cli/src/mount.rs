//! `dafs mount` and `dafs unmount`: mounts a directory of a server as a local one.
//!
//! Invariant: the command ends when the mount can be used, or reports why mounting failed. A
//! separate process serves the mount, unless --foreground is given.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_client::{
    Client, ClientConfig, Location, ObjectType, Recovery, RecoveryOptions, SessionOptions, Umask,
    shown_path, without_passwords,
};
use dafs_fuse::{Mount, MountOptions, Unmounted, Unmounter};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::place::{Access, options as session_options};
use crate::secrets;
use crate::terminal_text::message;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The directory of a server to mount.
    url: OsString,
    /// The mount point, preferably an empty directory.
    directory: PathBuf,
    /// Options, separated by commas: attr_timeout, entry_timeout and negative_timeout (seconds that
    /// the kernel caches attributes, names and missing names; 1, 1 and 0), direct_io (no page
    /// cache), writeback (writes stay in the page cache for a while), local_append (appends go to
    /// the end of the file as this host sees it, without a sync each), giveup (seconds after which
    /// a lost server is EIO; 120), readahead (KiB that the kernel reads ahead, if mounted by root;
    /// 1024), maxread (KiB per read request; 256), spin (microseconds to poll for replies before
    /// sleeping), allow_other (allow other users besides root), password_from (the file of
    /// --password-from), ro, dev, suid, noexec, noatime.
    #[arg(short = 'o', long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// Stay in the foreground. The mount ends with this process.
    #[arg(short, long)]
    foreground: bool,
    #[command(flatten)]
    access: Access,
}

#[derive(Debug, Args)]
pub(crate) struct UnmountArguments {
    /// The mount point of the mount to remove.
    directory: PathBuf,
    /// Detach the mount immediately even if programs use it; it ends when they stop using it.
    #[arg(short, long)]
    lazy: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.foreground { serve(arguments) } else { start() }
}

pub(crate) fn unmount(arguments: &UnmountArguments) -> Result<()> {
    let directory = &arguments.directory;
    dafs_fuse::unmount(directory, arguments.lazy).with_context(|| {
        format!("unmounting {}; --lazy unmounts it even if programs use it", directory.display())
    })
}

/// Runs the same command again in the background, and waits until it reports that it is ready.
fn start() -> Result<()> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut child = Command::new(program)
        .args(&secrets::arguments()[1..])
        .arg("--foreground")
        .env(BACKGROUND, "1")
        .stdout(Stdio::piped())
        .spawn()
        .context("starting the process that serves the mount")?;
    let output = child.stdout.take().context("the pipe from the process that serves the mount")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).context("waiting for the mount")?;
    if line.is_empty() {
        // The background process has printed the error.
        child.wait().context("waiting for the mount")?;
        bail!("mounting failed");
    }
    print!("{line}");
    Ok(())
}

fn serve(arguments: &Arguments) -> Result<()> {
    let location = Location::parse(&arguments.url)?;
    let mut options = MountOptions { source: shown(arguments), ..MountOptions::default() };
    if let Some(spin) = arguments.access.spin {
        options.spin = spin;
    }
    let mut access = arguments.access.clone();
    for text in &arguments.options {
        options.apply(&password_option(text, &mut access))?;
    }
    let wanted = asked_for(&location, &access, &options)?;
    let client = Client::new(ClientConfig::default())?;
    let session = client.connect(&arguments.access.tls.applied(&location), &wanted)?;
    let root = session.metadata(&location.path)?;
    if root.kind != ObjectType::Directory {
        bail!("{}: not a directory", shown(arguments));
    }
    options.names_owners = names_owners(&session, &location);
    let mut mount = Mount::new(&arguments.directory, &options)?;
    let unmounter = mount.unmounter();
    end_by_signal(unmounter, &arguments.directory)?;
    ready(arguments)?;
    mount.serve(session, root.handle, wanted, options)?;
    Ok(())
}

/// Returns the source of the mount without passwords, because every user can read it.
fn shown(arguments: &Arguments) -> String {
    without_passwords(&shown_path(&arguments.url))
}

/// Removes the password_from option from the mount options and applies it to the login. Lines of
/// /etc/fstab have no other way to name a password file.
fn password_option(text: &str, access: &mut Access) -> String {
    let others = text.split(',').filter(|option| match option.strip_prefix("password_from=") {
        Some(path) => {
            access.password_from = Some(path.into());
            false
        }
        None => true,
    });
    others.collect::<Vec<_>>().join(",")
}

fn asked_for(
    location: &Location,
    access: &Access,
    options: &MountOptions,
) -> Result<SessionOptions> {
    let mut wanted = session_options(location, access)?;
    // The kernel applies the umask of the calling process. This process's own umask must not be
    // applied too.
    wanted.umask = Umask::Nothing;
    if let Some(give_up_after) = options.give_up {
        let recovery = RecoveryOptions::default();
        let attempt_timeout = recovery.attempt_timeout.min(give_up_after);
        wanted.recovery =
            Recovery::On(recovery.give_up_after(give_up_after).attempt_timeout(attempt_timeout));
    }
    Ok(wanted)
}

/// True if the server treats this client as the superuser, so that the client can set owners.
fn names_owners(session: &dafs_client::Session, location: &Location) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    // Files made by root belong to root, unless the export squashes it.
    let made = || -> dafs_client::Result<bool> {
        let options = dafs_client::OpenOptions::write();
        let file = session.create_unlinked(&location.path, &options)?;
        let owner = file.metadata()?.owner;
        file.close()?;
        Ok(owner == "0" || owner == "root")
    };
    is_root && made().unwrap_or(true)
}

/// Unmounts at the first signal, and ends the process at the second.
fn end_by_signal(mut unmounter: Unmounter, directory: &Path) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("listening for signals")?;
    let directory = directory.to_path_buf();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let mut signals = signals.forever();
            if signals.next().is_none() {
                return;
            }
            match unmounter.unmount() {
                Ok(Unmounted::Gone) => return,
                Ok(Unmounted::Detached) => eprintln!(
                    "dafs: {} is in use: it is detached and served until the last program stops \
                    using it; another signal ends it at once",
                    directory.display()
                ),
                Err(error) => eprintln!("dafs: unmounting {}: {error}", directory.display()),
            }
            signals.next();
            std::process::exit(1);
        })
        .context("starting a thread for signals")?;
    Ok(())
}

/// Reports to the foreground process that the mount can be used, and detaches from it.
fn ready(arguments: &Arguments) -> Result<()> {
    let directory = shown_path(arguments.directory.as_os_str());
    println!("{} is mounted on {}", message(&shown(arguments)), message(&directory));
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Ready]);
    if std::env::var_os(BACKGROUND).is_none() {
        return Ok(());
    }
    // Nothing reads the output from now on, and signals of the terminal must not reach this
    // process.
    let nowhere = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    // This cannot fail, because the process is not a group leader.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    Ok(())
}

/// The environment variable that marks the background process.
const BACKGROUND: &str = "DAFS_MOUNT_IN_BACKGROUND";
