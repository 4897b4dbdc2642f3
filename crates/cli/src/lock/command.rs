//! Runs the command under a lock and forwards signals to it.
//!
//! Invariants:
//! - A signal to this process is forwarded to the command. The signal ends this process only after
//!   the command has ended and the command's output was processed.
//! - If this process ends abruptly for any reason, the command ends too.
//! - A process id is used only while its process has not been waited for.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use nix::sys::signal::{SigSet, Signal as Caught};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgid, getpgrp, getppid, kill_process,
    set_parent_process_death_signal, waitid,
};

use crate::ignored::is_ignored;

/// The blocked signals that are forwarded to the command.
pub(crate) struct Signals(SignalFd);

/// A command that this process has started.
pub(crate) struct RunningCommand {
    child: Child,
    running: Arc<Running>,
    ended: Receiver<()>,
}

struct Running {
    /// The process id of the command; `None` once the process has been waited for.
    pid: Mutex<Option<Pid>>,
    /// True if work remains after the command, so the first signal must not end this process.
    has_work: AtomicBool,
}

impl Signals {
    /// Blocks the signals in this and all later threads. A signal that was ignored before stays
    /// ignored, for the command too.
    pub(crate) fn catch() -> Result<Self> {
        let is_wanted = |signal: &Caught| !is_ignored(*signal as i32);
        let set = CAUGHT.into_iter().filter(is_wanted).collect::<SigSet>();
        set.thread_block().context("blocking signals")?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
        Ok(Self(signals.context("listening for signals")?))
    }

    /// Returns a pending signal that must end this process, if there is one. Used before the
    /// command is started.
    pub(crate) fn end(&self) -> Option<i32> {
        while let Ok(Some(info)) = self.0.read_signal() {
            let number = info.ssi_signo.cast_signed();
            if ENDING.iter().any(|signal| *signal as i32 == number) {
                return Some(number);
            }
        }
        None
    }

    /// Forwards signals to the command until this process ends.
    fn forward(self, running: Arc<Running>) {
        loop {
            let mut fds = [rustix::event::PollFd::new(&self.0, rustix::event::PollFlags::IN)];
            let _ = rustix::event::poll(&mut fds, None);
            while let Ok(Some(info)) = self.0.read_signal() {
                let number = info.ssi_signo.cast_signed();
                let is_ending = ENDING.iter().any(|signal| *signal as i32 == number);
                if running.forward(number, info.ssi_code > 0, is_ending) || !is_ending {
                    continue;
                }
                if running.has_work.swap(false, Ordering::Relaxed) {
                    eprintln!(
                        "dafs: the command has ended and the file is being replaced; another \
                        signal stops this at once and leaves parts of both contents"
                    );
                    continue;
                }
                // The command has ended. When this process ends, the server releases the lock
                // without rolling back.
                std::process::exit(128 + number);
            }
        }
    }
}

impl Running {
    fn pid(&self) -> MutexGuard<'_, Option<Pid>> {
        self.pid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forwards a signal to the command. Returns false if the command has ended.
    fn forward(&self, number: i32, is_of_terminal: bool, is_ending: bool) -> bool {
        let pid = self.pid();
        let Some(pid) = *pid else { return false };
        // The terminal sends its signals to the whole process group, which includes the command.
        let has_got_it = is_of_terminal && getpgid(Some(pid)).is_ok_and(|group| group == getpgrp());
        if let Some(signal) = Signal::from_named_raw(number)
            && !has_got_it
        {
            let _ = kill_process(pid, signal);
        }
        if is_ending {
            // A stopped process would not handle the signal.
            let _ = kill_process(pid, Signal::CONT);
        }
        true
    }

    fn kill(&self, signal: Signal) {
        if let Some(pid) = *self.pid() {
            let _ = kill_process(pid, signal);
            let _ = kill_process(pid, Signal::CONT);
        }
    }
}

impl RunningCommand {
    /// Starts a command that receives the signals and ends with this process.
    pub(crate) fn start(command: &[OsString], pipes: bool, signals: Signals) -> Result<Self> {
        let mut held = Command::new("/proc/self/exe");
        held.args(["held", &std::process::id().to_string(), "--"]).args(command);
        if pipes {
            held.stdout(Stdio::piped());
        }
        let child = held.spawn().context("starting the command")?;
        let pid = Pid::from_child(&child);
        let has_work = AtomicBool::new(false);
        let running = Arc::new(Running { pid: Mutex::new(Some(pid)), has_work });
        let (sender, ended) = channel();
        std::thread::spawn(move || await_end(pid, &sender));
        let handed = Arc::clone(&running);
        std::thread::spawn(move || signals.forward(handed));
        Ok(Self { child, running, ended })
    }

    /// Returns the pipe with the command's output, if the command was started with one.
    pub(crate) fn take_output(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Declares that work remains after the command, so the first signal must not end this process.
    pub(crate) fn has_work_afterwards(&self) {
        self.running.has_work.store(true, Ordering::Relaxed);
    }

    /// Waits for the command and returns its exit status, or `None` if it still runs after
    /// `patience`.
    pub(crate) fn wait(&mut self, patience: Duration) -> Result<Option<ExitStatus>> {
        match self.ended.recv_timeout(patience) {
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                let mut pid = self.running.pid();
                let status = self.child.wait().context("waiting for the command")?;
                *pid = None;
                Ok(Some(status))
            }
        }
    }

    /// Ends the command with SIGTERM, and with SIGKILL if it does not end soon.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.running.kill(Signal::TERM);
        if self.wait(GRACE)?.is_some() {
            return Ok(());
        }
        self.running.kill(Signal::KILL);
        self.wait(Duration::MAX).map(drop)
    }
}

/// Waits for the end of a process without reaping it, and sends a message through `ended`.
fn await_end(pid: Pid, ended: &Sender<()>) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while waitid(WaitId::Pid(pid), options).is_err_and(|error| error == Errno::INTR) {}
    let _ = ended.send(());
}

/// Arguments of the hidden command through which `dafs lock` starts its command.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The id of the process that started this one.
    parent: u32,
    /// The command to run, and its arguments.
    #[arg(trailing_var_arg = true, required = true)]
    command: Vec<OsString>,
}

/// Replaces this process with the command. The command gets a signal when its parent ends.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let (program, rest) = arguments.command.split_first().context("no command")?;
    set_parent_process_death_signal(Some(Signal::KILL)).context("tying the command to its lock")?;
    let parent = getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
    if parent != Some(arguments.parent) {
        bail!("the process that holds the lock has ended");
    }
    // Signals that arrived meanwhile are delivered to the command.
    CAUGHT.into_iter().collect::<SigSet>().thread_unblock().context("unblocking signals")?;
    let error = Command::new(program).args(rest).exec();
    let is_missing = error.kind() == std::io::ErrorKind::NotFound;
    eprintln!("dafs: starting {}: {error}", program.to_string_lossy());
    // The exit statuses that shells use.
    std::process::exit(if is_missing { 127 } else { 126 })
}

const CAUGHT: [Caught; 8] = [
    Caught::SIGHUP,
    Caught::SIGINT,
    Caught::SIGQUIT,
    Caught::SIGTERM,
    Caught::SIGUSR1,
    Caught::SIGUSR2,
    // If this process were stopped, its lease would expire. So only the command stops and
    // continues.
    Caught::SIGTSTP,
    Caught::SIGCONT,
];
const ENDING: [Caught; 4] = [Caught::SIGHUP, Caught::SIGINT, Caught::SIGQUIT, Caught::SIGTERM];
/// The time between SIGTERM and SIGKILL when the command is ended.
const GRACE: Duration = Duration::from_secs(10);
