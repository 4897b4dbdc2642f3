//! Channels beside the operation channel: what the server asks of a client, and where it
//! reads (draft 3.1.2.1, 6.6).
//!
//! Invariant: never more requests are outstanding on a back-control channel than the client
//! has credits for; what nobody has a credit for waits, and goes with the channel.

mod asking;

use std::collections::VecDeque;
use std::sync::Arc;

use dafs_dat::EndpointId;
use dafs_filer::WaiterId;
use dafs_sessions::ChannelKind;
use dafs_types::{ClientId, FileHandle, SequenceNumber, StateId, StreamId, limits};
use dafs_wire::ResponseHeader;
use dafs_wire::messages::{AuthResult, Completion, ConnectBind, ConnectBindResult};

/// Sizes and credits of a bound channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackSizes {
    request_bytes_max: u32,
    response_bytes_max: u32,
    requests_max: u16,
}

impl BackSizes {
    /// What of a client's wishes is granted.
    pub fn grant(wanted: &ConnectBind<'_>, slots: u16) -> Self {
        let size = |wanted: u32| match wanted {
            0 => limits::CONNECT_MESSAGE_BYTES as u32,
            wanted => wanted.clamp(limits::REQUEST_BYTES_MIN as u32, BACK_BYTES_MAX) & !7,
        };
        let requests_max = match wanted.requests_max {
            0 => BACK_CREDITS_DEFAULT,
            wanted => u16::try_from(wanted).unwrap_or(BACK_CREDITS_MAX).min(BACK_CREDITS_MAX),
        };
        Self {
            request_bytes_max: size(wanted.request_bytes_max),
            response_bytes_max: size(wanted.response_bytes_max),
            // Each answer needs an inbox slot.
            requests_max: requests_max.min(slots),
        }
    }

    /// The results of CONNECT_BIND.
    pub fn result(self, authentication: AuthResult<'_>, trusted: bool) -> ConnectBindResult<'_> {
        ConnectBindResult {
            request_bytes_max: self.request_bytes_max,
            response_bytes_max: self.response_bytes_max,
            requests_max: u32::from(self.requests_max),
            authentication,
            trusted,
        }
    }
}

/// What the server asks of a client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BackRequest {
    /// BC_NULL: whether the client answers.
    Null,
    /// BC_LOCK_READY: the turn of a lock request has come.
    LockReady { file: FileHandle, state: StateId, offset: u64, length: u64 },
    /// BC_RECALL: a delegation is to come back.
    Recall { client: ClientId, file: FileHandle, state: StateId, truncate: bool },
    /// BC_GETATTR: what a delegated file is like at its holder's. A request waits for that.
    GetAttributes { file: FileHandle, waiter: WaiterId },
    /// BC_BATCH_COMPLETION.
    BatchCompletion { completions: Arc<[Completion]> },
}

/// A bound channel.
#[derive(Debug)]
pub struct BackChannel {
    /// The connection it stands beside.
    operation: EndpointId,
    kind: ChannelKind,
    sizes: BackSizes,
    /// Requests that may be outstanding.
    credits: u16,
    /// What is outstanding, by stream.
    asked: [Option<BackRequest>; BACK_CREDITS_MAX as usize],
    sequences: [SequenceNumber; BACK_CREDITS_MAX as usize],
    waiting: VecDeque<BackRequest>,
    /// The client has answered: it listens.
    is_proven: bool,
    /// It has not said that it does not know BC_LOCK_READY.
    knows_locks: bool,
}

impl BackChannel {
    fn new(operation: EndpointId, kind: ChannelKind, sizes: BackSizes) -> Self {
        Self {
            operation,
            kind,
            sizes,
            credits: sizes.requests_max,
            asked: [const { None }; BACK_CREDITS_MAX as usize],
            sequences: [SequenceNumber(0); BACK_CREDITS_MAX as usize],
            waiting: VecDeque::new(),
            is_proven: false,
            knows_locks: true,
        }
    }

    /// Longest request the client takes, in bytes.
    pub fn request_bytes_max(&self) -> u32 {
        self.sizes.request_bytes_max
    }

    /// Whether one more request would go out at once.
    pub fn has_credit(&self) -> bool {
        let outstanding = self.asked.iter().flatten().count();
        self.waiting.is_empty() && outstanding < usize::from(self.credits)
    }

    /// The next request there is a credit for.
    fn next(&mut self) -> Option<(StreamId, SequenceNumber, BackRequest)> {
        if self.kind != ChannelKind::BackControl || self.waiting.is_empty() {
            return None;
        }
        let outstanding = self.asked.iter().flatten().count();
        if outstanding >= usize::from(self.credits) {
            return None;
        }
        let free = self.asked[..usize::from(self.credits)].iter().position(Option::is_none)?;
        let request = self.waiting.pop_front()?;
        self.sequences[free] = self.sequences[free].next();
        self.asked[free] = Some(request.clone());
        Some((StreamId(free as u16), self.sequences[free], request))
    }

    /// What an answer answers. It moves the credits as the draft has it (3.2.6).
    fn answered(&mut self, header: &ResponseHeader) -> Option<BackRequest> {
        let stream = usize::from(header.stream.0);
        let is_newest = *self.sequences.get(stream)? == header.sequence;
        let request = self.asked.get_mut(stream)?.take_if(|_| is_newest)?;
        let target = header.target_credits.clamp(1, self.sizes.requests_max);
        self.credits = target.max(self.credits - 1);
        Some(request)
    }
}

/// Most requests outstanding on one back-control channel.
const BACK_CREDITS_MAX: u16 = 16;
const BACK_CREDITS_DEFAULT: u16 = 4;
/// Most requests that wait for a credit; hints beyond them are not given.
const BACK_WAITING_MAX: usize = 4096;
/// Largest message on a bound channel, in bytes: what an inbox slot holds.
const BACK_BYTES_MAX: u32 = 4096 + 512;
