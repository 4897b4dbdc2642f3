//! Calls of the server to its clients: GRANTED, the results of asynchronous calls, and the notices
//! after a restart.
//!
//! A client has its own lock manager, whose port its rpcbind knows. Both are asked by threads of
//! this module, because such calls can block.
//!
//! Invariant: the server calls only clients that have called it and that it believes.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use dafs_nfs_wire::rpc::{self, Auth, Call, Outcome, ReplyBody};
use dafs_nfs_wire::rpcbind::v2::{Mapping, PROTOCOL_TCP, PROTOCOL_UDP, Procedure, RPCBIND2};
use dafs_nfs_wire::xdr::{Reader, Writer, Xdr};

/// A call to a client.
#[derive(Debug)]
pub(super) struct Callback {
    /// The number by which the sender knows the call. 0 if the sender needs no results.
    pub number: u64,
    pub address: IpAddr,
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
    /// The arguments of the call, as they are encoded.
    pub arguments: Vec<u8>,
}

/// The end of a call to a client: its number, and the encoded results if the client has replied.
pub(super) type Ended = (u64, Option<Vec<u8>>);

/// The calls to clients, and the threads that send them.
#[derive(Debug)]
pub(super) struct Callbacks {
    /// The port of rpcbind on the clients.
    rpcbind: u16,
    shared: Arc<Shared>,
    threads: usize,
}

#[derive(Debug, Default)]
struct Shared {
    queues: Mutex<Queues>,
    fresh: Condvar,
}

#[derive(Debug, Default)]
struct Queues {
    waiting: VecDeque<Callback>,
    /// The number of threads that wait for a call.
    resting: usize,
    ended: Vec<Ended>,
    is_over: bool,
}

impl Shared {
    fn with<T>(&self, act: impl FnOnce(&mut Queues) -> T) -> T {
        act(&mut self.queues.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Callbacks {
    pub(super) fn new(rpcbind: u16) -> Self {
        Self { rpcbind, shared: Arc::default(), threads: 0 }
    }

    /// Queues a call. If too many calls wait, drops it: the client will ask again.
    pub(super) fn send(&mut self, callback: Callback) {
        let number = callback.number;
        let (is_queued, is_busy) = self.shared.with(|queues| {
            let has_room = queues.waiting.len() < CALLBACKS_MAX;
            if has_room {
                queues.waiting.push_back(callback);
            } else {
                queues.ended.push((number, None));
            }
            (has_room, queues.waiting.len() > queues.resting)
        });
        if !is_queued {
            tracing::warn!("too many calls to NFS clients wait, so one is dropped");
        }
        self.shared.fresh.notify_one();
        if is_busy && self.threads < THREADS_MAX {
            self.add_thread();
        }
    }

    fn add_thread(&mut self) {
        let (shared, rpcbind) = (self.shared.clone(), self.rpcbind);
        let thread = std::thread::Builder::new().name("dafs-nlm-back".to_owned());
        match thread.spawn(move || run(&shared, rpcbind)) {
            Ok(_) => self.threads += 1,
            Err(error) => tracing::error!(%error, "the thread for calls to NFS clients is missing"),
        }
    }

    /// Removes and returns the calls that have ended.
    pub(super) fn take_ended(&mut self) -> Vec<Ended> {
        match self.threads {
            0 => Vec::new(),
            _ => self.shared.with(|queues| std::mem::take(&mut queues.ended)),
        }
    }
}

impl Drop for Callbacks {
    fn drop(&mut self) {
        self.shared.with(|queues| queues.is_over = true);
        self.shared.fresh.notify_all();
    }
}

/// Sends calls until the server ends.
fn run(shared: &Shared, rpcbind: u16) {
    loop {
        let mut queues = shared.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let callback = loop {
            if queues.is_over {
                return;
            }
            if let Some(callback) = queues.waiting.pop_front() {
                break callback;
            }
            queues.resting += 1;
            queues = shared.fresh.wait(queues).unwrap_or_else(PoisonError::into_inner);
            queues.resting -= 1;
        };
        drop(queues);
        let results = call(&callback, rpcbind);
        if let Err(error) = &results {
            let address = callback.address;
            tracing::debug!(%address, %error, "an NFS client cannot be called back");
        }
        if callback.number != 0 {
            shared.with(|queues| queues.ended.push((callback.number, results.ok())));
        }
    }
}

/// Calls a client. Returns the encoded results.
fn call(callback: &Callback, rpcbind: u16) -> std::io::Result<Vec<u8>> {
    let Callback { address, program, version, procedure, .. } = *callback;
    let target = (program, version, procedure);
    let at = |port| SocketAddr::new(address, port);
    let port = |protocol| -> std::io::Result<Option<u16>> {
        let asked = Mapping { program, version, protocol, port: 0 };
        let mut writer = Writer::new();
        asked.encode(&mut writer);
        let target = (RPCBIND2.number, RPCBIND2.version, Procedure::GetPort.number());
        let results = call_by_udp(at(rpcbind), target, writer.bytes())?;
        let port = u32::decode(&mut Reader::new(&results)).unwrap_or_default();
        Ok(u16::try_from(port).ok().filter(|port| *port != 0))
    };
    match port(PROTOCOL_TCP)? {
        Some(port) => call_by_tcp(at(port), target, &callback.arguments),
        None => match port(PROTOCOL_UDP)? {
            Some(port) => call_by_udp(at(port), target, &callback.arguments),
            None => Err(std::io::Error::other("its rpcbind does not know the program")),
        },
    }
}

/// The program, version and procedure of a call.
type Target = (u32, u32, u32);

fn message(xid: u32, (program, version, procedure): Target, arguments: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new();
    let (credential, verifier) = (Auth::NONE, Auth::NONE);
    let call = Call { xid, program, version, procedure, credential, verifier, header: &[] };
    rpc::encode_call(&call, &mut writer);
    writer.raw(arguments);
    writer.bytes().to_vec()
}

/// Returns the results in a reply. `None` if it is the reply to another call.
fn results_of(xid: u32, reply: &[u8]) -> Option<std::io::Result<Vec<u8>>> {
    let mut reader = Reader::new(reply);
    let found = rpc::Reply::decode(&mut reader).ok().filter(|found| found.xid == xid)?;
    Some(match found.body {
        ReplyBody::Accepted(accepted) if accepted.outcome == Outcome::Success => {
            Ok(reader.rest().to_vec())
        }
        body => Err(std::io::Error::other(format!("it refuses the call: {body:?}"))),
    })
}

fn call_by_udp(to: SocketAddr, target: Target, arguments: &[u8]) -> std::io::Result<Vec<u8>> {
    let any = match to {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let message = message(XID, target, arguments);
    let mut reply = [0; REPLY_BYTES_MAX];
    let mut last = std::io::Error::other("it does not reply");
    for _ in 0..TRIES {
        socket.send(&message)?;
        match socket.recv(&mut reply) {
            Ok(length) => {
                if let Some(results) = results_of(XID, &reply[..length]) {
                    return results;
                }
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn call_by_tcp(to: SocketAddr, target: Target, arguments: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let message = message(XID, target, arguments);
    let mark = LAST | u32::try_from(message.len()).unwrap_or_default();
    stream.write_all(&[&mark.to_be_bytes(), &message[..]].concat())?;
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let length = (u32::from_be_bytes(mark) & !LAST) as usize;
    if length > REPLY_BYTES_MAX {
        return Err(std::io::Error::other("its reply is too long"));
    }
    let mut reply = vec![0; length];
    stream.read_exact(&mut reply)?;
    results_of(XID, &reply)
        .unwrap_or_else(|| Err(std::io::Error::other("it replies to another call")))
}

/// The identifier of each call, which is the only one of its socket.
const XID: u32 = 1;
/// The bit in the mark of the last fragment of a record.
const LAST: u32 = 1 << 31;
/// The time after which a client that does not answer is asked again or given up.
const PATIENCE: Duration = Duration::from_secs(2);
/// The number of times that a call is sent by UDP.
const TRIES: usize = 3;
/// The maximum length of a reply in bytes.
const REPLY_BYTES_MAX: usize = 4096;
/// The maximum number of calls that wait to be sent.
const CALLBACKS_MAX: usize = 1024;
/// The maximum number of threads, so that a few clients without a reply do not delay the others.
const THREADS_MAX: usize = 8;
