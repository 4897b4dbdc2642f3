//! The threads that check tokens, and those that check and encrypt long messages.
//!
//! Invariants:
//! - The queues are bounded: tokens by number, messages by number and bytes.
//! - A job has one result, even if it panics.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use dafs_dat::Waker;
use dafs_dat::records::LinkId;
use dafs_gss::{Acceptor, Context, GssError, Step};
use dafs_nfs_state::limits::GSS_SEQUENCE_WINDOW;
use dafs_nfs_wire::rpc::decode_call;
use dafs_nfs_wire::xdr::Reader;
use dafs_types::Credentials;

use super::Made;
use super::protect::{Opened, Refusal, open, seal_reply, verifier};
use super::route::Seal;
use crate::access::gss::Kerberos;

/// Work for a thread. `link` is the connection of the call.
pub(in crate::nfs) enum Job {
    /// Checks a token, which creates a context.
    Accept {
        link: LinkId,
        xid: u32,
        address: IpAddr,
        kerberos: Arc<Kerberos>,
        acceptor: Box<Acceptor>,
        token: Box<[u8]>,
    },
    /// Opens a protected call.
    Open { link: LinkId, record: Vec<u8>, seal: Seal, made: Made },
    /// Protects a reply.
    Seal { link: LinkId, reply: Vec<u8>, seal: Seal, made: Made },
}

/// The result of a job.
pub(in crate::nfs) enum Done {
    Accepted {
        link: LinkId,
        xid: u32,
        address: IpAddr,
        outcome: Accepted,
    },
    Opened {
        link: LinkId,
        record: Vec<u8>,
        seal: Seal,
        made: Made,
        opened: Result<Opened, Refusal>,
    },
    /// A reply. `None` if it cannot be protected.
    Sealed {
        link: LinkId,
        reply: Option<Vec<u8>>,
    },
}

/// The result of checking a token.
pub(in crate::nfs) enum Accepted {
    /// The mechanism needs another token.
    Continue { acceptor: Box<Acceptor>, token: Vec<u8> },
    /// The context is complete. `proof` is the checksum of the sequence window.
    Complete {
        context: Box<Context>,
        token: Vec<u8>,
        proof: Vec<u8>,
        credentials: Credentials,
        is_stranger: bool,
    },
    /// The token is refused. `None` if the check panicked.
    Failed(Option<GssError>),
}

/// The threads and their queues.
pub(in crate::nfs) struct Workers {
    waker: Waker,
    /// The threads for tokens. `None` before the first token.
    tokens: Option<Threads>,
    /// The threads for messages. `None` before the first long message.
    messages: Option<Threads>,
    /// The bytes of the messages that wait or are processed.
    bytes: usize,
}

struct Threads {
    jobs: SyncSender<Job>,
    results: Receiver<(usize, Done)>,
}

impl Workers {
    pub(super) fn new(waker: Waker) -> Self {
        Self { waker, tokens: None, messages: None, bytes: 0 }
    }

    /// Checks a token on a thread. Returns the job if too many tokens wait.
    pub(super) fn check(&mut self, job: Job) -> Result<(), Job> {
        if self.tokens.is_none() {
            self.tokens = start("dafs-nfs-login", TOKEN_THREADS, TOKENS_MAX, &self.waker);
        }
        put(self.tokens.as_ref(), job)
    }

    /// Processes a message on a thread. Returns the job if too many messages wait.
    pub(in crate::nfs) fn process(&mut self, job: Job) -> Result<(), Job> {
        let bytes = job.bytes();
        if self.bytes + bytes > BYTES_MAX {
            return Err(job);
        }
        if self.messages.is_none() {
            self.messages = start("dafs-nfs-cipher", MESSAGE_THREADS, MESSAGES_MAX, &self.waker);
        }
        put(self.messages.as_ref(), job)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Returns the next result. `None` if there is none yet.
    pub(in crate::nfs) fn next(&mut self) -> Option<Done> {
        let of = |threads: &Option<Threads>| threads.as_ref()?.results.try_recv().ok();
        if let Some((bytes, done)) = of(&self.messages) {
            self.bytes -= bytes;
            return Some(done);
        }
        of(&self.tokens).map(|(_, done)| done)
    }
}

fn put(threads: Option<&Threads>, job: Job) -> Result<(), Job> {
    let Some(threads) = threads else { return Err(job) };
    threads.jobs.try_send(job).map_err(|error| match error {
        TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
    })
}

/// Starts threads. They end when the table is dropped.
fn start(name: &str, count: usize, jobs_max: usize, waker: &Waker) -> Option<Threads> {
    let (jobs, taken) = sync_channel::<Job>(jobs_max);
    let (done, results) = channel();
    let taken = Arc::new(Mutex::new(taken));
    for _ in 0..count {
        let (taken, done, waker) = (taken.clone(), done.clone(), waker.clone());
        let thread = std::thread::Builder::new().name(name.into());
        if let Err(error) = thread.spawn(move || work(&taken, &done, &waker)) {
            tracing::error!(%error, "no thread for NFS clients with Kerberos");
            return None;
        }
    }
    Some(Threads { jobs, results })
}

fn work(taken: &Mutex<Receiver<Job>>, done: &Sender<(usize, Done)>, waker: &Waker) {
    loop {
        let next = taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        let (bytes, lost) = (job.bytes(), job.lost());
        let result = catch_unwind(AssertUnwindSafe(|| job.run())).unwrap_or(lost);
        if done.send((bytes, result)).is_err() {
            return;
        }
        waker.wake();
    }
}

impl Job {
    fn bytes(&self) -> usize {
        match self {
            Self::Accept { token, .. } => token.len(),
            Self::Open { record: bytes, .. } | Self::Seal { reply: bytes, .. } => bytes.len(),
        }
    }

    /// Returns the result for the case that the job panics.
    fn lost(&self) -> Done {
        match self {
            Self::Accept { link, xid, address, .. } => {
                let outcome = Accepted::Failed(None);
                Done::Accepted { link: *link, xid: *xid, address: *address, outcome }
            }
            Self::Open { link, .. } | Self::Seal { link, .. } => {
                Done::Sealed { link: *link, reply: None }
            }
        }
    }

    /// Executes the job. This takes long, and blocks for tokens.
    pub(in crate::nfs) fn run(self) -> Done {
        match self {
            Self::Accept { link, xid, address, kerberos, acceptor, token } => {
                let outcome = accept(&kerberos, *acceptor, &token);
                let outcome = outcome.unwrap_or_else(|error| Accepted::Failed(Some(error)));
                Done::Accepted { link, xid, address, outcome }
            }
            Self::Open { link, record, seal, made } => {
                let mut reader = Reader::new(&record);
                let opened = match decode_call(&mut reader) {
                    Ok(call) => {
                        let mut context =
                            made.context.lock().unwrap_or_else(PoisonError::into_inner);
                        open(&mut context, &seal, &call, reader.rest())
                    }
                    Err(_) => Err(Refusal::Garbage),
                };
                Done::Opened { link, record, seal, made, opened }
            }
            Self::Seal { link, reply, seal, made } => {
                let mut context = made.context.lock().unwrap_or_else(PoisonError::into_inner);
                let sealed = seal_reply(&mut context, &seal, &reply);
                let reply = sealed.inspect_err(|error| {
                    tracing::warn!(%error, "the reply to an NFS client cannot be protected");
                });
                Done::Sealed { link, reply: reply.ok() }
            }
        }
    }
}

fn accept(kerberos: &Kerberos, acceptor: Acceptor, token: &[u8]) -> Result<Accepted, GssError> {
    match acceptor.step(token)? {
        Step::Continue { party, token } => {
            Ok(Accepted::Continue { acceptor: Box::new(party), token })
        }
        Step::Done { context, token } => {
            let mut context = context.without_order();
            let proof = verifier(&mut context, GSS_SEQUENCE_WINDOW)?;
            let (credentials, is_stranger) = kerberos.nfs_user(context.peer());
            let (context, token) = (Box::new(context), token.unwrap_or_default());
            Ok(Accepted::Complete { context, token, proof, credentials, is_stranger })
        }
    }
}

/// The number of threads that check tokens.
const TOKEN_THREADS: usize = 4;
/// The maximum number of tokens that wait. A token has at most 64 KiB.
const TOKENS_MAX: usize = 256;
/// The number of threads that check and encrypt messages.
const MESSAGE_THREADS: usize = 4;
/// The maximum number of messages that wait.
const MESSAGES_MAX: usize = 1024;
/// The maximum number of bytes of the messages that wait or are processed.
const BYTES_MAX: usize = 64 << 20;
