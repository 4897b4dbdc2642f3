//! Channels that are bound to a session in addition to its operation channel. They carry the
//! server's requests to a client, or RDMA reads (draft 3.1.2.1, 6.6).
//!
//! Invariant: a back-control channel never has more outstanding requests than the client has
//! credits for. Further requests are queued, and are dropped when the channel ends.

mod asking;

use std::collections::VecDeque;
use std::sync::Arc;

use dafs_dat::EndpointId;
use dafs_filer::WaiterId;
use dafs_sessions::ChannelKind;
use dafs_types::{ClientId, FileHandle, SequenceNumber, StateId, StreamId, limits};
use dafs_wire::ResponseHeader;
use dafs_wire::messages::{AuthResult, Completion, ConnectBind, ConnectBindResult};

/// The negotiated message sizes and credits of a bound channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackSizes {
    request_bytes_max: u32,
    response_bytes_max: u32,
    requests_max: u16,
}

impl BackSizes {
    /// Returns the message sizes and credits that the server grants to a bound channel, given the
    /// values that the client requests in CONNECT_BIND. `slots` is the number of inbox slots.
    pub(crate) fn grant(wanted: &ConnectBind<'_>, slots: u16) -> Self {
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
            // Each reply needs a slot in the inbox.
            requests_max: requests_max.min(slots),
        }
    }

    /// Returns the results of CONNECT_BIND.
    pub(crate) fn result(
        self,
        authentication: AuthResult<'_>,
        trusted: bool,
    ) -> ConnectBindResult<'_> {
        ConnectBindResult {
            request_bytes_max: self.request_bytes_max,
            response_bytes_max: self.response_bytes_max,
            requests_max: u32::from(self.requests_max),
            authentication,
            trusted,
        }
    }
}

/// A request of the server to a client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BackRequest {
    /// BC_NULL, which checks whether the client replies to requests.
    Null,
    /// BC_LOCK_READY, which reports that a lock that the client waits for can be granted now.
    LockReady { file: FileHandle, state: StateId, offset: u64, length: u64 },
    /// BC_RECALL, which asks the client to return a delegation.
    Recall { client: ClientId, file: FileHandle, state: StateId, truncate: bool },
    /// BC_GETATTR, which asks the holder of a delegation for the file's attributes. The request
    /// identified by `waiter` waits for the reply.
    GetAttributes { file: FileHandle, waiter: WaiterId },
    /// BC_BATCH_COMPLETION, which reports completed requests of asynchronous batches.
    BatchCompletion { completions: Arc<[Completion]> },
}

/// The state of a bound channel.
#[derive(Debug)]
pub(crate) struct BackChannel {
    /// The operation channel of the session that the channel is bound to.
    operation: EndpointId,
    kind: ChannelKind,
    sizes: BackSizes,
    /// The number of requests that may be outstanding.
    credits: u16,
    /// The outstanding requests, each at the index of its stream.
    asked: [Option<BackRequest>; BACK_CREDITS_MAX as usize],
    sequences: [SequenceNumber; BACK_CREDITS_MAX as usize],
    waiting: VecDeque<BackRequest>,
    /// True if the client has replied at least once, which shows that it serves the channel.
    is_proven: bool,
    /// True unless the client has replied that it does not support BC_LOCK_READY.
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

    /// Returns the size of the largest request that the client accepts, in bytes.
    pub(crate) fn request_bytes_max(&self) -> u32 {
        self.sizes.request_bytes_max
    }

    /// Returns true if one more request can be sent without waiting for a credit.
    pub(crate) fn has_credit(&self) -> bool {
        let outstanding = self.asked.iter().flatten().count();
        self.waiting.is_empty() && outstanding < usize::from(self.credits)
    }

    /// Removes and returns the next queued request, if there is a credit for it.
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

    /// Removes and returns the request that a reply belongs to, and updates the credits (draft
    /// 3.2.6). `None` if the reply is invalid.
    fn answered(&mut self, header: &ResponseHeader) -> Option<BackRequest> {
        let stream = usize::from(header.stream.0);
        let is_newest = *self.sequences.get(stream)? == header.sequence;
        let request = self.asked.get_mut(stream)?.take_if(|_| is_newest)?;
        let target = header.target_credits.clamp(1, self.sizes.requests_max);
        self.credits = target.max(self.credits - 1);
        Some(request)
    }
}

/// The maximum number of outstanding requests on a back-control channel.
const BACK_CREDITS_MAX: u16 = 16;
const BACK_CREDITS_DEFAULT: u16 = 4;
/// The maximum number of requests that wait for a credit. While the queue is full, further requests
/// are refused.
const BACK_WAITING_MAX: usize = 4096;
/// The maximum size in bytes of a message on a bound channel, which is the size of an inbox slot.
const BACK_BYTES_MAX: u32 = 4096 + 512;
