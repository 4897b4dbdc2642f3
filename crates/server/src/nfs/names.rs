//! The names of client machines, for rules that decide by names.
//!
//! A name is looked up by address, and holds only if it leads back to the address. Lookups may
//! block for long, so threads of their own make them, and the reactor never waits. While the name
//! of a new client is looked up, the server does not read from the client's connection.
//!
//! Invariant: the tables are bounded. A client whose name cannot be looked up has no name, so it
//! matches no pattern.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dafs_dat::Waker;

use crate::access::exports::compile::{SystemLookup, confirmed_name};

/// A name of a client machine. `None` if the machine has no confirmed name.
type Name = Option<Arc<str>>;

/// The names of client machines that were looked up.
#[derive(Debug)]
pub(super) struct Names {
    waker: Waker,
    found: HashMap<IpAddr, (Name, Duration)>,
    asked: HashSet<IpAddr>,
    /// The threads that look names up. `None` until the first lookup.
    threads: Option<Threads>,
}

#[derive(Debug)]
struct Threads {
    questions: SyncSender<IpAddr>,
    answers: Receiver<(IpAddr, Name)>,
}

impl Names {
    /// Creates an empty table. `waker` wakes the reactor when a name was found.
    pub(super) fn new(waker: Waker) -> Self {
        Self { waker, found: HashMap::new(), asked: HashSet::new(), threads: None }
    }

    /// Returns the name of a machine, or `None` while it is being looked up for the first time.
    pub(super) fn find(&mut self, address: IpAddr, now: Duration) -> Option<Name> {
        let known = self.found.get(&address).cloned();
        if known.as_ref().is_none_or(|(_, since)| now.saturating_sub(*since) >= LIFETIME)
            && !self.ask(address)
        {
            // Too many lookups are in progress, so the machine has no name for now.
            return Some(known.and_then(|(name, _)| name));
        }
        known.map(|(name, _)| name)
    }

    /// Stores the names that were found. Returns true if a name is new or has changed.
    pub(super) fn take_answers(&mut self, now: Duration) -> bool {
        let mut has_changed = false;
        let Some(threads) = &self.threads else { return false };
        while let Ok((address, name)) = threads.answers.try_recv() {
            self.asked.remove(&address);
            if self.found.len() >= NAMES_MAX {
                self.found.clear();
            }
            let before = self.found.insert(address, (name.clone(), now));
            has_changed |= before.is_none_or(|(before, _)| before != name);
        }
        has_changed
    }

    /// Starts a lookup if none is in progress. Returns false if too many are in progress.
    fn ask(&mut self, address: IpAddr) -> bool {
        if self.asked.contains(&address) {
            return true;
        }
        if self.threads.is_none() {
            self.threads = start(&self.waker);
        }
        let is_sent = self
            .threads
            .as_ref()
            .is_some_and(|threads| threads.questions.try_send(address).is_ok());
        if is_sent {
            self.asked.insert(address);
        }
        is_sent
    }
}

/// Starts the threads. They end when the table is dropped.
fn start(waker: &Waker) -> Option<Threads> {
    let (questions, asked) = sync_channel::<IpAddr>(LOOKUPS_MAX);
    let (found, answers) = channel();
    let asked = Arc::new(Mutex::new(asked));
    for _ in 0..THREADS {
        let (asked, found, waker) = (asked.clone(), found.clone(), waker.clone());
        let thread = std::thread::Builder::new().name("dafs-names".into());
        if let Err(error) = thread.spawn(move || look_up(&asked, &found, &waker)) {
            tracing::error!(%error, "no thread for the names of NFS clients");
            return None;
        }
    }
    Some(Threads { questions, answers })
}

fn look_up(asked: &Mutex<Receiver<IpAddr>>, found: &Sender<(IpAddr, Name)>, waker: &Waker) {
    loop {
        let next = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(address) = next else { return };
        let name = confirmed_name(address, &SystemLookup);
        tracing::debug!(%address, ?name, "the name of an NFS client was looked up");
        if found.send((address, name)).is_err() {
            return;
        }
        waker.wake();
    }
}

/// The time after which a name is looked up again.
const LIFETIME: Duration = Duration::from_secs(600);
/// The maximum number of names that are kept.
const NAMES_MAX: usize = 16_384;
/// The maximum number of machines whose names wait to be looked up.
const LOOKUPS_MAX: usize = 256;
/// The number of threads that look names up.
const THREADS: usize = 4;
