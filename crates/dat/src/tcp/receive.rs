//! Receiving: small things through a staging buffer, large payload straight into place.
//!
//! Invariants: octets are judged in stream order; payload is placed only where the
//! machine and the region table allow; what is left in the staging buffer after a turn
//! is part of one frame's header or trailer, and is kept with the connection, so that
//! all connections of a thread share one staging buffer.

use std::cell::RefCell;
use std::os::fd::AsRawFd;

use dafs_iwarp::{Event as Happening, PlacementError, ReadRequest, Step, Target};
use dafs_memory::Memory;

use super::establish::{Phase, io_reason};
use super::{Connection, system};
use crate::connection::Context;
use crate::region::AccessError;
use crate::{BreakReason, Completion, CompletionStatus, LocalSegment, Operation, Stag};

/// A posted receive.
#[derive(Debug)]
pub(crate) struct Receive {
    pub cookie: u64,
    scatter: Vec<LocalSegment>,
}

impl Receive {
    pub fn new(cookie: u64, scatter: &[LocalSegment]) -> Self {
        Self { cookie, scatter: scatter.to_vec() }
    }

    fn room(&self) -> u64 {
        self.scatter.iter().map(|segment| u64::from(segment.length)).sum()
    }
}

/// What a connection keeps between two readings.
#[derive(Default)]
pub(crate) struct Inbound {
    /// The beginning of a header or trailer.
    kept: Vec<u8>,
    /// Where the payload of the present frame goes.
    place: Option<Place>,
}

/// The place of one frame's payload.
struct Place {
    runs: Vec<(Memory, usize, usize)>,
    /// What the peer named, to be looked up again when the frame goes on later: the
    /// region may be gone by then.
    named: Option<(Stag, u64, u32)>,
    /// Octets already placed.
    done: usize,
    is_control: bool,
}

impl Place {
    /// Copies octets to their place.
    fn put(&mut self, mut octets: &[u8]) {
        let mut skip = self.done;
        self.done += octets.len();
        for (memory, offset, length) in &self.runs {
            if skip >= *length {
                skip -= length;
                continue;
            }
            let count = octets.len().min(length - skip);
            memory.write(offset + skip, &octets[..count]);
            octets = &octets[count..];
            skip = 0;
            if octets.is_empty() {
                break;
            }
        }
    }

    /// The contiguous run that the next octets go to.
    fn next_run(&self) -> Option<(*mut u8, usize)> {
        let mut skip = self.done;
        for (memory, offset, length) in &self.runs {
            if skip < *length {
                let left = length - skip;
                return Some((memory.pointer(offset + skip, left), left));
            }
            skip -= length;
        }
        None
    }
}

thread_local! {
    static STAGING: RefCell<Vec<u8>> = RefCell::new(vec![0; STAGING_BYTES]);
}

impl Connection {
    /// Takes in what the socket has.
    pub(super) fn read_in(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        STAGING.with(|staging| {
            let mut staging = staging.borrow_mut();
            for _ in 0..READS_PER_TURN {
                if self.socket.is_none() {
                    return Ok(());
                }
                if !self.read_once(context, &mut staging)? {
                    break;
                }
            }
            if self.is_open() {
                self.frame_work(context)?;
                self.write_out(context)?;
            }
            Ok(())
        })
    }

    /// One system call and what follows from it. True if there may be more at once.
    fn read_once(
        &mut self,
        context: &mut Context<'_>,
        staging: &mut [u8],
    ) -> Result<bool, BreakReason> {
        self.look_again(context)?;
        let kept = self.inbound.kept.len();
        staging[..kept].copy_from_slice(&self.inbound.kept);
        let direct = if kept == 0 { self.direct_run() } else { None };
        let (received, wanted) = self.receive(direct, &mut staging[kept..])?;
        if received == NOTHING {
            return Ok(false);
        }
        if received == 0 {
            return self.on_end().map(|()| false);
        }
        let placed = direct.map_or(0, |(_, length)| length.min(received));
        if placed > 0 {
            self.on_placed(placed)?;
        }
        self.inbound.kept.clear();
        let octets = &staging[..kept + received - placed];
        let used = self.take(context, octets)?;
        self.inbound.kept.extend_from_slice(&octets[used..]);
        Ok(received == wanted)
    }

    /// The peer has closed, or there was nothing after all.
    fn on_end(&mut self) -> Result<(), BreakReason> {
        if matches!(self.phase, Phase::Pending(_)) {
            // Nobody knows this endpoint before `accept`, which reports it.
            self.socket = None;
            self.phase = Phase::Vanished;
            return Ok(());
        }
        Err(BreakReason::Peer)
    }

    /// A frame that goes on: its region must still be there.
    fn look_again(&mut self, context: &Context<'_>) -> Result<(), BreakReason> {
        let Some(stream) = &self.stream else { return Ok(()) };
        if !matches!(stream.receiver.next_step(), Step::Payload { .. }) {
            return Ok(());
        }
        let named = self.inbound.place.as_ref().and_then(|place| place.named);
        let Some((stag, address, length)) = named else { return Ok(()) };
        match context.regions.remote(context.domain, stag, address, length, true) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.refuse_placement(access_error(error))),
        }
    }

    /// Where the next octets may go without a stop in between.
    fn direct_run(&self) -> Option<(*mut u8, usize)> {
        let stream = self.stream.as_ref()?;
        if stream.receiver.crc_in_use() {
            return None;
        }
        let place = self.inbound.place.as_ref().filter(|place| !place.is_control)?;
        let Step::Payload { octets } = stream.receiver.next_step() else { return None };
        let (pointer, length) = place.next_run()?;
        Some((pointer, length.min(octets as usize)))
    }

    /// Receives into the direct run, then into staging. Returns the octets received
    /// and the octets asked for.
    fn receive(
        &self,
        direct: Option<(*mut u8, usize)>,
        staging: &mut [u8],
    ) -> Result<(usize, usize), BreakReason> {
        let Some(socket) = &self.socket else { return Ok((0, 0)) };
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut vector = [empty; 2];
        let mut count = 0;
        if let Some((pointer, length)) = direct {
            vector[0] = libc::iovec { iov_base: pointer.cast(), iov_len: length };
            count = 1;
        }
        vector[count] =
            libc::iovec { iov_base: staging.as_mut_ptr().cast(), iov_len: staging.len() };
        let wanted = direct.map_or(0, |(_, length)| length) + staging.len();
        loop {
            // SAFETY: a message header of zeros is valid; the direct run lies in a
            // memory that the place keeps, the rest in `staging`, borrowed here.
            let received = unsafe {
                let mut message: libc::msghdr = std::mem::zeroed();
                message.msg_iov = vector.as_mut_ptr();
                message.msg_iovlen = count + 1;
                libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT)
            };
            if let Ok(received) = usize::try_from(received) {
                return Ok((received, wanted));
            }
            match rustix::io::Errno::from_io_error(&std::io::Error::last_os_error()) {
                Some(rustix::io::Errno::INTR) => {}
                Some(rustix::io::Errno::AGAIN) => return Ok((NOTHING, wanted)),
                Some(other) if matches!(self.phase, Phase::Pending(_)) => {
                    let _ = other;
                    return Ok((0, wanted));
                }
                Some(other) => return Err(io_reason(other)),
                None => return Err(system(std::io::Error::last_os_error())),
            }
        }
    }

    fn on_placed(&mut self, octets: usize) -> Result<(), BreakReason> {
        if let (Some(place), Some(stream)) = (&mut self.inbound.place, &mut self.stream) {
            place.done += octets;
            let count = u32::try_from(octets).unwrap_or(u32::MAX);
            stream
                .receiver
                .on_placed(count)
                .map_err(|refusal| BreakReason::System(format!("iWARP stream: {refusal}")))?;
        }
        Ok(())
    }

    /// Takes octets in, as far as they go. Returns how many were used.
    fn take(&mut self, context: &mut Context<'_>, octets: &[u8]) -> Result<usize, BreakReason> {
        let mut used = 0;
        while !self.is_open() && used < octets.len() {
            if self.socket.is_none() {
                return Ok(octets.len());
            }
            used += self.on_startup(context, &octets[used..])?;
        }
        loop {
            let rest = &octets[used..];
            let Some(stream) = &mut self.stream else { return Ok(used) };
            match stream.receiver.next_step() {
                Step::Header { .. } => {
                    let header = stream.receiver.on_header(rest).map_err(|v| violated(&v))?;
                    let Some(placement) = header else { return Ok(used) };
                    used += usize::from(placement.header_length);
                    let place = self.find_place(context, &placement)?;
                    self.inbound.place = Some(place);
                }
                Step::Payload { octets: left } => {
                    if rest.is_empty() {
                        return Ok(used);
                    }
                    let count = rest.len().min(left as usize);
                    let piece = &rest[..count];
                    let Some(place) = &mut self.inbound.place else { return Ok(used) };
                    place.put(piece);
                    let taken = if stream.receiver.crc_in_use() || place.is_control {
                        stream.receiver.on_payload(piece)
                    } else {
                        stream.receiver.on_placed(u32::try_from(count).unwrap_or(u32::MAX))
                    };
                    taken.map_err(|e| BreakReason::System(format!("iWARP stream: {e}")))?;
                    used += count;
                }
                Step::Trailer { octets: length } => {
                    if rest.len() < length {
                        return Ok(used);
                    }
                    let happening =
                        stream.receiver.on_trailer(&rest[..length]).map_err(|v| violated(&v))?;
                    used += length;
                    self.on_happening(context, happening)?;
                }
                Step::Closed => return Ok(octets.len()),
            }
        }
    }

    /// Finds and checks the place of a frame's payload.
    fn find_place(
        &mut self,
        context: &Context<'_>,
        placement: &dafs_iwarp::Placement,
    ) -> Result<Place, BreakReason> {
        let length = placement.payload_length;
        let found = match placement.target {
            Target::Write { .. } if length == 0 => Ok(Vec::new()),
            Target::Write { stag, offset } => context
                .regions
                .remote(context.domain, Stag(stag.0), offset.0, length, true)
                .map(|(memory, at)| vec![(memory.clone(), at, length as usize)])
                .map_err(access_error),
            Target::ReadResponse { message_offset, .. } => {
                let scatter = self.outgoing.reads.front().map_or(&[][..], |scatter| scatter);
                runs(context, scatter, message_offset, length)
            }
            Target::Send { message_offset, .. } => match self.receives.front() {
                None => Err(PlacementError::NoBuffer),
                Some(receive) if u64::from(message_offset) + u64::from(length) > receive.room() => {
                    Err(PlacementError::TooLong)
                }
                Some(receive) => runs(context, &receive.scatter, message_offset, length),
            },
            Target::ReadRequest { .. } | Target::Terminate => Ok(Vec::new()),
        };
        match found {
            Ok(runs) => {
                let named = match placement.target {
                    Target::Write { stag, offset } if length > 0 => {
                        Some((Stag(stag.0), offset.0, length))
                    }
                    _ => None,
                };
                let is_control = placement.target.is_control();
                Ok(Place { runs, named, done: 0, is_control })
            }
            Err(error) => Err(self.refuse_placement(error)),
        }
    }

    /// The peer asked for what it may not have: it will be told.
    fn refuse_placement(&mut self, error: PlacementError) -> BreakReason {
        if let Some(stream) = &mut self.stream {
            let _ = stream.receiver.refuse(error);
        }
        match error {
            PlacementError::NoBuffer | PlacementError::TooLong => BreakReason::ReceiverNotReady,
            other => BreakReason::PeerViolation(other.to_string()),
        }
    }

    fn on_happening(
        &mut self,
        context: &mut Context<'_>,
        happening: Happening,
    ) -> Result<(), BreakReason> {
        if let Some(stream) = &mut self.stream
            && stream.receiver.has_heard()
        {
            stream.transmitter.on_peer_spoke();
        }
        match happening {
            Happening::Continued | Happening::Written => Ok(()),
            Happening::Received { length, invalidate, .. } => {
                self.on_received(context, length, invalidate.map(|stag| Stag(stag.0)))
            }
            Happening::ReadRequested { sequence, request } => {
                self.on_read_requested(context, sequence, &request)
            }
            Happening::ReadCompleted { .. } => {
                self.outgoing.read_answered(context);
                Ok(())
            }
            Happening::Terminated => {
                let stream = self.stream.as_ref();
                let code = stream.and_then(|s| s.receiver.received_terminate()).map(|t| t.code);
                Err(BreakReason::Terminated(match code {
                    Some(code) => format!("Terminate {code} (layer/type/code)"),
                    None => "Terminate".into(),
                }))
            }
        }
    }

    fn on_received(
        &mut self,
        context: &mut Context<'_>,
        length: u32,
        invalidated: Option<Stag>,
    ) -> Result<(), BreakReason> {
        if self.receives.is_empty() {
            return Err(self.refuse_placement(PlacementError::NoBuffer));
        }
        if let Some(stag) = invalidated
            && context.regions.invalidate(stag, context.domain).is_err()
        {
            return Err(self.refuse_placement(PlacementError::CannotInvalidate));
        }
        if let Some(receive) = self.receives.pop_front() {
            context.events.push_completion(Completion {
                endpoint: context.endpoint,
                context: receive.cookie,
                operation: Operation::Receive,
                status: CompletionStatus::Success,
                length,
                invalidated,
            });
        }
        Ok(())
    }

    fn on_read_requested(
        &mut self,
        context: &Context<'_>,
        sequence: dafs_iwarp::MessageSequence,
        request: &ReadRequest,
    ) -> Result<(), BreakReason> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        if request.length == 0 {
            return self.outgoing.answer_read(stream, request, None);
        }
        let stag = Stag(request.source_stag.0);
        let address = request.source_offset.0;
        match context.regions.remote(context.domain, stag, address, request.length, false) {
            Ok((memory, at)) => self.outgoing.answer_read(stream, request, Some((memory, at))),
            Err(error) => {
                let error = access_error(error);
                let _ = stream.receiver.refuse_read(sequence, request, error);
                Err(BreakReason::PeerViolation(format!("RDMA read refused: {error}")))
            }
        }
    }
}

/// The runs of memory that octets `offset..offset + length` of a list go to.
fn runs(
    context: &Context<'_>,
    scatter: &[LocalSegment],
    offset: u32,
    length: u32,
) -> Result<Vec<(Memory, usize, usize)>, PlacementError> {
    let (mut skip, mut left) = (offset as usize, length as usize);
    let mut found = Vec::new();
    for segment in scatter {
        let here = segment.length as usize;
        if skip >= here {
            skip -= here;
            continue;
        }
        if left == 0 {
            break;
        }
        let count = (here - skip).min(left);
        let (memory, at) = context
            .regions
            .local(context.domain, segment)
            .map_err(|_| PlacementError::InvalidStag)?;
        found.push((memory.clone(), at + skip, count));
        skip = 0;
        left -= count;
    }
    if left == 0 { Ok(found) } else { Err(PlacementError::TooLong) }
}

fn access_error(error: AccessError) -> PlacementError {
    match error {
        AccessError::InvalidStag => PlacementError::InvalidStag,
        AccessError::WrongDomain => PlacementError::StagNotOfStream,
        AccessError::Bounds => PlacementError::Bounds,
        AccessError::Rights => PlacementError::Access,
        AccessError::Wrap => PlacementError::ToWrap,
    }
}

fn violated(violation: &dafs_iwarp::Violation) -> BreakReason {
    BreakReason::PeerViolation(violation.to_string())
}

/// Octets of the staging buffer.
const STAGING_BYTES: usize = 128 << 10;
/// System calls in one turn, so that other connections are served too.
const READS_PER_TURN: usize = 8;
/// Stands for "nothing there now", which is not the end.
const NOTHING: usize = usize::MAX;
