//! A simulated client's memory, a driver of the server's end, and RPC messages.

use std::collections::BTreeMap;

use dafs_nfs_wire::rpc::{self, Auth, encode_call, encode_reply, success};
use dafs_nfs_wire::xdr::{Piece, Writer};
use dafs_rpcrdma::client::{Client, Event};
use dafs_rpcrdma::header::{Handle, Segment, Xid};
use dafs_rpcrdma::limits::{ClientConfig, ServerConfig};
use dafs_rpcrdma::server::{
    Action, CallId, CallbackFault, Connection, EndReason, IncomingCall, Item, Reply, ReplyFault,
    Source,
};
use dafs_types::Moment;

/// Returns the bytes of hexadecimal digits. The rest of a line after `;` is a comment.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: String = text
        .lines()
        .filter_map(|line| line.split(';').next())
        .flat_map(str::chars)
        .filter(|character| !character.is_whitespace())
        .collect();
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// The registered memory of a client, by handle.
#[derive(Default)]
pub(crate) struct Memory {
    regions: BTreeMap<Handle, (u64, Vec<u8>)>,
    /// Memory whose registration has ended.
    before: BTreeMap<Handle, Vec<u8>>,
    next: u32,
}

impl Memory {
    pub(crate) fn register(&mut self, bytes: &[u8]) -> Segment {
        self.next += 1;
        let handle = Handle(self.next * 257);
        let offset = u64::from(self.next) << 32;
        self.regions.insert(handle, (offset, bytes.to_vec()));
        Segment { handle, length: bytes.len() as u32, offset }
    }

    /// Registers bytes as several segments. The last one takes what is left.
    pub(crate) fn register_split(&mut self, bytes: &[u8], lengths: &[usize]) -> Vec<Segment> {
        let mut rest = bytes;
        let mut segments = Vec::new();
        for length in lengths {
            let (first, after) = rest.split_at((*length).min(rest.len()));
            segments.push(self.register(first));
            rest = after;
        }
        segments.push(self.register(rest));
        segments
    }

    fn range(&self, segment: &Segment) -> Option<std::ops::Range<usize>> {
        let (base, bytes) = self.regions.get(&segment.handle)?;
        let start = usize::try_from(segment.offset.checked_sub(*base)?).ok()?;
        let end = start.checked_add(segment.length as usize)?;
        (end <= bytes.len()).then_some(start..end)
    }

    pub(crate) fn read(&self, segment: &Segment) -> Option<Vec<u8>> {
        let range = self.range(segment)?;
        Some(self.regions[&segment.handle].1[range].to_vec())
    }

    pub(crate) fn write(&mut self, segment: &Segment, bytes: &[u8]) -> Option<()> {
        assert_eq!(segment.length as usize, bytes.len(), "the segment is as long as the data");
        let range = self.range(segment)?;
        self.regions.get_mut(&segment.handle)?.1[range].copy_from_slice(bytes);
        Some(())
    }

    /// Returns the first bytes of consecutive segments.
    pub(crate) fn gather(&self, segments: &[Segment], length: u64) -> Vec<u8> {
        let bytes = segments.iter().flat_map(|segment| match self.regions.get(&segment.handle) {
            Some((_, bytes)) => bytes.clone(),
            None => self.before[&segment.handle].clone(),
        });
        bytes.take(length as usize).collect()
    }

    fn invalidate(&mut self, handle: Handle) {
        let (_, bytes) = self.regions.remove(&handle).expect("registered memory");
        self.before.insert(handle, bytes);
    }

    pub(crate) fn is_registered(&self, handle: Handle) -> bool {
        self.regions.contains_key(&handle)
    }
}

/// A reply with the memory of its data.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) items: Vec<Item>,
    pub(crate) data: Vec<Vec<u8>>,
}

impl Answer {
    /// Takes a reply from a writer. `data` is what the writer has left out.
    pub(crate) fn of(writer: &Writer, items: Vec<Item>, data: &[&[u8]]) -> Self {
        let mut outside = data.iter();
        let data = items.iter().map(|item| match item.is_outside {
            true => outside.next().expect("data for each gap").to_vec(),
            false => Vec::new(),
        });
        Self { bytes: writer.bytes().to_vec(), data: data.collect(), items }
    }

    /// Returns the whole reply, as it would be sent over TCP.
    pub(crate) fn whole(&self) -> Vec<u8> {
        let mut whole = Vec::new();
        let mut taken = 0;
        for (item, data) in self.items.iter().zip(&self.data) {
            whole.extend_from_slice(&self.bytes[taken..item.at]);
            whole.extend_from_slice(data);
            taken = item.at;
        }
        whole.extend_from_slice(&self.bytes[taken..]);
        whole
    }

    fn source(&self, source: &Source) -> &[u8] {
        match *source {
            Source::Bytes { start, length } => &self.bytes[start..start + length],
            Source::Item { index, start, length } => &self.data[index][start..start + length],
        }
    }
}

/// Executes the actions of a server's end. What it is told to send is in `out`.
pub(crate) struct Server {
    pub(crate) connection: Connection,
    pub(crate) now: Moment,
    pub(crate) buffers: BTreeMap<CallId, Vec<u8>>,
    answers: BTreeMap<CallId, Answer>,
    pub(crate) calls: Vec<IncomingCall>,
    pub(crate) out: Vec<(Vec<u8>, Option<Handle>)>,
    pub(crate) callbacks: Vec<(Xid, Result<Vec<u8>, CallbackFault>)>,
    pub(crate) ended: Option<EndReason>,
    /// False if reads stay open.
    pub(crate) reads_end: bool,
    /// False if Sends stay open.
    pub(crate) sends_end: bool,
    pub(crate) reads_max: usize,
    pub(crate) most_reserved: usize,
}

impl Server {
    pub(crate) fn new(config: ServerConfig, client: &Client) -> Self {
        Self {
            connection: Connection::new(config, client.private_data()),
            now: Moment(0),
            buffers: BTreeMap::new(),
            answers: BTreeMap::new(),
            calls: Vec::new(),
            out: Vec::new(),
            callbacks: Vec::new(),
            ended: None,
            reads_end: true,
            sends_end: true,
            reads_max: 0,
            most_reserved: 0,
        }
    }

    pub(crate) fn receive(&mut self, message: &[u8], memory: &mut Memory) {
        self.connection.receive(message, self.now);
        self.run(memory);
    }

    pub(crate) fn run(&mut self, memory: &mut Memory) {
        let mut reads = 0;
        while let Some(action) = self.connection.poll_action() {
            assert_eq!(self.ended, None, "nothing follows the end");
            match action {
                Action::Reserve { call, bytes } => {
                    assert!(self.buffers.insert(call, vec![0xee; bytes]).is_none());
                }
                Action::Read(_) if !self.reads_end => {
                    reads += 1;
                    self.reads_max = self.reads_max.max(reads);
                }
                Action::Read(read) => match memory.read(&read.from) {
                    Some(bytes) => {
                        let buffer = self.buffers.get_mut(&read.call).unwrap();
                        buffer[read.at..read.at + bytes.len()].copy_from_slice(&bytes);
                        self.connection.read_done(read.id, &bytes, self.now);
                    }
                    None => self.connection.failed(),
                },
                Action::Call(call) => self.calls.push(call),
                Action::Write(write) => {
                    let bytes = self.answers[&write.call].source(&write.from).to_vec();
                    if memory.write(&write.to, &bytes).is_none() {
                        self.connection.failed();
                    }
                }
                Action::Send(send) => {
                    let mut message = send.head().to_vec();
                    for source in &send.body {
                        let answer = &self.answers[&send.call.unwrap()];
                        message.extend_from_slice(answer.source(source));
                    }
                    if let Some(handle) = send.invalidate {
                        memory.invalidate(handle);
                    }
                    self.out.push((message, send.invalidate));
                    if self.sends_end {
                        self.connection.sent(send.id, self.now);
                    }
                }
                Action::Release(call) => {
                    self.buffers.remove(&call);
                    self.answers.remove(&call);
                }
                Action::Callback { xid, outcome } => self.callbacks.push((xid, outcome)),
                Action::End(reason) => {
                    self.ended = Some(reason);
                    self.buffers.clear();
                }
            }
            self.most_reserved = self.most_reserved.max(self.connection.reserved_bytes());
        }
    }

    /// Takes the next call, and its buffer.
    pub(crate) fn next_call(&mut self) -> (IncomingCall, Vec<u8>) {
        let call = self.calls.remove(0);
        let fetched = self.buffers.get(&call.id).cloned().unwrap_or_default();
        (call, fetched)
    }

    pub(crate) fn reply(
        &mut self,
        call: CallId,
        answer: Answer,
        memory: &mut Memory,
    ) -> Result<(), ReplyFault> {
        let reply = Reply { bytes: &answer.bytes, items: &answer.items };
        self.connection.reply(call, &reply, self.now)?;
        self.answers.insert(call, answer);
        self.run(memory);
        Ok(())
    }

    pub(crate) fn refuse(&mut self, call: CallId, memory: &mut Memory) {
        self.connection.refuse(call, self.now).unwrap();
        self.run(memory);
    }

    /// Gives the next message that was sent to the client.
    pub(crate) fn deliver(&mut self, client: &mut Client) -> Event {
        let (message, invalidated) = self.out.remove(0);
        client.receive(&message, invalidated)
    }
}

/// Two ends of a connection, which have exchanged their private data.
pub(crate) fn pair(server: ServerConfig, client: ClientConfig) -> (Server, Client, Memory) {
    let own = Connection::new(server, Default::default()).private_data();
    let client = Client::new(client, own);
    (Server::new(server, &client), client, Memory::default())
}

pub(crate) fn usual_pair() -> (Server, Client, Memory) {
    pair(ServerConfig::default(), ClientConfig::default())
}

/// Encodes a call. `arguments` appends its arguments.
pub(crate) fn call_of(
    xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    arguments: impl FnOnce(&mut Writer),
) -> Vec<u8> {
    let mut writer = Writer::new();
    let call = rpc::Call {
        xid,
        program,
        version,
        procedure,
        credential: Auth::NONE,
        verifier: Auth::NONE,
        header: &[],
    };
    encode_call(&call, &mut writer);
    arguments(&mut writer);
    whole(&writer, &[])
}

/// Begins the reply to a call that succeeded.
pub(crate) fn reply_to(xid: u32) -> Writer {
    let mut writer = Writer::new();
    encode_reply(xid, success(Auth::NONE), &mut writer);
    writer
}

/// Returns a message with its data, as it would be sent over TCP.
pub(crate) fn whole(writer: &Writer, data: &[&[u8]]) -> Vec<u8> {
    assert_eq!(writer.fault(), None);
    let mut data = data.iter();
    let mut bytes = Vec::new();
    for piece in writer.pieces() {
        match piece {
            Piece::Bytes(part) => bytes.extend_from_slice(part),
            Piece::Payload(length) => {
                let part = data.next().expect("data for each gap");
                assert_eq!(part.len(), length);
                bytes.extend_from_slice(part);
            }
        }
    }
    bytes
}

/// Removes data and its padding from a message.
pub(crate) fn without(message: &[u8], start: usize, length: usize) -> Vec<u8> {
    let end = start + length + (length.wrapping_neg() & 3);
    [&message[..start], &message[end..]].concat()
}

/// Inserts data and its padding into a message.
pub(crate) fn with(message: &[u8], start: usize, data: &[u8]) -> Vec<u8> {
    let pad = vec![0; data.len().wrapping_neg() & 3];
    [&message[..start], data, &pad, &message[start..]].concat()
}
