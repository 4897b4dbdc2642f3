//! Processes that make calls as other users.
//!
//! Invariant: each actor of a case has one process, which is a new run of this program. It changes
//! to the actor's user permanently before its first call, and ends with the case.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::names;
use crate::perform::{Failure, Performer};
use crate::raw;

/// The first argument of a worker process.
pub const ARGUMENT: &str = "--worker";

/// The user of an actor: UID[:GID[+GROUP...]][/PROCESS], or root.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Identity {
    fn of(actor: &str) -> Result<Option<Self>> {
        let user = actor.split('/').next().unwrap_or_default();
        if user == "root" {
            return Ok(None);
        }
        let (uid, groups) = user.split_once(':').unwrap_or((user, user));
        let groups: Vec<u32> = groups.split('+').map(str::parse).collect::<Result<_, _>>()?;
        let gid = *groups.first().context("no group")?;
        Ok(Some(Self { uid: uid.parse()?, gid, groups }))
    }
}

/// The worker processes of one case.
#[derive(Debug)]
pub struct Workers<'c> {
    program: &'c Path,
    directory: &'c Path,
    running: BTreeMap<String, Worker>,
}

#[derive(Debug)]
struct Worker {
    child: Child,
    calls: ChildStdin,
    answers: mpsc::Receiver<String>,
}

impl<'c> Workers<'c> {
    /// Makes workers that run this program in a directory.
    pub fn new(program: &'c Path, directory: &'c Path) -> Self {
        Self { program, directory, running: BTreeMap::new() }
    }

    /// Starts a call of an actor.
    pub fn start(&mut self, actor: &str, words: &[String]) -> Result<()> {
        if !self.running.contains_key(actor) {
            let worker = Worker::new(self.program, self.directory, actor)?;
            self.running.insert(actor.into(), worker);
        }
        let worker = self.running.get_mut(actor).context("just started")?;
        writeln!(worker.calls, "{}", words.join(" ")).context("to a worker")
    }

    /// Returns the result of a call: `ok VALUE` or `error NAME`.
    pub fn finish(&mut self, actor: &str) -> Result<String> {
        let worker = self.running.get_mut(actor).context("nothing was begun")?;
        match worker.answers.recv_timeout(PATIENCE) {
            Ok(answer) => Ok(answer),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                bail!("no answer for {} seconds", PATIENCE.as_secs())
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                let status = worker.child.wait()?;
                bail!("the process ended: {status}")
            }
        }
    }
}

impl Worker {
    fn new(program: &Path, directory: &Path, actor: &str) -> Result<Self> {
        Identity::of(actor).with_context(|| format!("{actor}: no actor"))?;
        let mut child = Command::new(program)
            .args([ARGUMENT, actor])
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a worker")?;
        let calls = child.stdin.take().context("no pipe")?;
        let output = BufReader::new(child.stdout.take().context("no pipe")?);
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, calls, answers })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a worker: reads one call per line and writes its result.
pub fn serve(actor: &str) -> Result<()> {
    raw::umask(0);
    if let Some(identity) = Identity::of(actor)? {
        let Identity { uid, gid, groups } = &identity;
        let become_user = raw::become_user(*uid, *gid, groups);
        ensure!(become_user.is_ok(), "{actor}: only root may become another user");
    }
    let mut performer = Performer::default();
    let mut output = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        match performer.perform(&words) {
            Ok(value) => writeln!(output, "ok {value}")?,
            Err(Failure::Errno(errno)) => writeln!(output, "error {}", names::of_error(errno))?,
            Err(Failure::Misuse(text)) => writeln!(output, "misuse {text}")?,
        }
        output.flush()?;
    }
    Ok(())
}

/// The time after which a call is assumed never to end.
const PATIENCE: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actors_are_users_with_groups() {
        assert_eq!(Identity::of("root/2").unwrap(), None);
        let plain = Identity { uid: 5, gid: 5, groups: vec![5] };
        assert_eq!(Identity::of("5/1").unwrap(), Some(plain));
        let grouped = Identity { uid: 5, gid: 6, groups: vec![6, 7, 8] };
        assert_eq!(Identity::of("5:6+7+8").unwrap(), Some(grouped));
        assert!(Identity::of("nobody").is_err());
    }
}
