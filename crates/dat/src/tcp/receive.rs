//! Receives: headers and short messages through a staging buffer, payload directly to its place.
//!
//! Invariants:
//!
//! - Bytes are checked in stream order, and none overwrites bytes that are not checked yet.
//! - Payload is delivered only where the protocol machine and the region table allow it.
//! - The bytes left in the staging buffer after a turn belong to the header or trailer of one frame
//!   (with CRC, to one frame). The connection keeps a copy of them, so that all connections of a
//!   thread can share one staging buffer.

use std::cell::RefCell;
use std::ops::Range;
use std::os::fd::AsRawFd;

use dafs_iwarp::{Event as Happening, PlacementError, ReadRequest, Step, Target, WriteHeader};

use super::establish::{Phase, io_reason};
use super::expect::{Expectations, Group};
use super::place::{Directory, Place, access_error, directory};
use super::plan::{Gap, Habits, Plan, PlanInput, STAGING_BYTES, overlap};
use super::transmit::Answer;
use super::{Connection, system};
use crate::connection::Context;
use crate::{BreakReason, Completion, CompletionStatus, Operation, Stag};

/// The state that a connection keeps between two reads.
pub(super) struct Inbound {
    /// The first bytes of an incomplete header or trailer (with CRC, of an incomplete frame).
    pub kept: Vec<u8>,
    /// The place of the current frame's payload.
    place: Option<Place>,
    pub expectations: Expectations,
    pub habits: Habits,
    /// The number of bytes of the oldest open read that have arrived, including the current frame.
    read_done: u32,
    /// The number of expected bytes whose destination has been prefetched.
    pub warm: u32,
    /// True if data has arrived since the latest gathering sleep.
    pub flows: bool,
}

/// Buffers that all connections of a thread share; each call has exclusive use of them.
struct Buffers {
    staging: Vec<u8>,
    plan: Plan,
    /// The misplaced bytes, in stream order.
    aside: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::new(Buffers {
        staging: vec![0; STAGING_BYTES],
        plan: Plan::default(),
        aside: Vec::new(),
    });
}

impl Default for Inbound {
    fn default() -> Self {
        Self {
            kept: Vec::new(),
            place: None,
            expectations: Expectations::default(),
            habits: Habits::new(dafs_iwarp::MULPDU_MAX),
            read_done: 0,
            warm: 0,
            flows: false,
        }
    }
}

impl Connection {
    /// Prefetches a part of the next destination (of an RDMA read response or an expected write)
    /// into the processor's cache while no data arrives. Writing to cached lines takes half the
    /// time.
    pub(super) fn warm_up(&mut self, context: &Context<'_>) {
        let warm = self.inbound.warm;
        if warm >= WARM_BYTES_MAX {
            return;
        }
        let directory = directory(context, &self.receives, &self.outgoing.reads);
        let run = if let Some(scatter) = self.outgoing.reads.front() {
            let from = self.inbound.read_done.saturating_add(warm);
            directory.local(scatter.as_slice(), from, WARM_BYTES)
        } else {
            let mut groups = self.inbound.expectations.likely();
            let Some(write) = groups.next().and_then(|group| group.rest().next()) else { return };
            let length = write.length.saturating_sub(warm).min(WARM_BYTES);
            if length == 0 {
                return;
            }
            directory.remote(write.stag, write.address.wrapping_add(warm.into()), length)
        };
        if let Ok(run) = run {
            run.memory.warm(run.offset, run.length);
            self.inbound.warm += run.length as u32;
        }
    }

    /// Reads data from the socket, and sends work that the data allows to be sent. Returns true if
    /// there was any data.
    pub(super) fn read_in(&mut self, context: &mut Context<'_>) -> Result<bool, BreakReason> {
        let has_read = self.read_turn(context)?;
        if has_read {
            self.push_out(context)?;
        }
        Ok(has_read)
    }

    /// Reads data from the socket, up to a limit. Returns true if there was any data.
    pub(super) fn read_turn(&mut self, context: &mut Context<'_>) -> Result<bool, BreakReason> {
        if !self.layer.is_plain() {
            return self.read_layer(context);
        }
        BUFFERS.with_borrow_mut(|buffers| {
            let mut total = 0;
            for _ in 0..READS_PER_TURN {
                if self.socket.is_none() {
                    break;
                }
                let received = self.read_once(context, buffers)?;
                total += received;
                // A call that returns less than requested has emptied the socket.
                if received < buffers.plan.wanted || total >= TURN_BYTES_MAX {
                    break;
                }
            }
            Ok(total > 0)
        })
    }

    /// Makes one receive call and processes its bytes. Returns their number.
    fn read_once(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut Buffers,
    ) -> Result<usize, BreakReason> {
        let kept = self.inbound.kept.len();
        buffers.staging[..kept].copy_from_slice(&self.inbound.kept);
        match self.receive(context, buffers, kept)? {
            None => Ok(0),
            Some(0) => self.on_end().map(|()| 0),
            Some(received) => {
                self.inbound.flows = true;
                let bytes = u32::try_from(received).unwrap_or(u32::MAX);
                self.inbound.warm = self.inbound.warm.saturating_sub(bytes);
                self.judge(context, buffers, kept, received)?;
                Ok(received)
            }
        }
    }

    /// Returns the number of bytes that the next `threshold` messages will bring, according to the
    /// forecasts. The result is slightly low, because headers are not counted.
    pub(super) fn bytes_due(&self, threshold: usize) -> usize {
        let Some(stream) = &self.stream else { return 0 };
        let present = match stream.receiver.next_step() {
            Step::Payload { bytes } => bytes as usize,
            _ => 0,
        };
        let read = self.outgoing.reads.front().filter(|_| self.inbound.read_done > 0);
        let read = read.map_or(0, |read| read.length() as usize - self.inbound.read_done as usize);
        let groups = self.inbound.expectations.likely().take(threshold);
        present + read + groups.map(Group::bytes_left).sum::<usize>()
    }

    /// Handles the end of the stream: the peer has closed.
    pub(super) fn on_end(&mut self) -> Result<(), BreakReason> {
        if matches!(self.phase, Phase::Pending(_)) {
            // The application does not know this endpoint before `accept`, which reports it.
            self.vanish();
            return Ok(());
        }
        Err(BreakReason::Peer)
    }

    /// Receives according to a plan, after the kept bytes. Returns `None` if no data has arrived.
    fn receive(
        &mut self,
        context: &Context<'_>,
        buffers: &mut Buffers,
        kept: usize,
    ) -> Result<Option<usize>, BreakReason> {
        let Some(socket) = &self.socket else { return Ok(None) };
        let input = self.stream.as_ref().map(|stream| PlanInput {
            directory: directory(context, &self.receives, &self.outgoing.reads),
            receiver: &stream.receiver,
            place: self.inbound.place.as_ref(),
            expectations: &self.inbound.expectations,
            read_done: self.inbound.read_done,
            habits: &self.inbound.habits,
        });
        let Buffers { staging, plan, .. } = buffers;
        plan.lay_out(input.as_ref(), staging, kept);
        loop {
            // SAFETY: an all-zero message header is valid. The vector was just made of disjoint
            // ranges of `staging`, which is borrowed here, and of ranges inside memories that the
            // region table keeps while `context` is borrowed. No references to the bytes of a
            // memory exist.
            let received = unsafe {
                let mut message: libc::msghdr = std::mem::zeroed();
                message.msg_iov = plan.vector.as_mut_ptr();
                message.msg_iovlen = plan.vector.len();
                libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT)
            };
            if let Ok(received) = usize::try_from(received) {
                return Ok(Some(received));
            }
            let error = std::io::Error::last_os_error();
            match rustix::io::Errno::from_io_error(&error) {
                Some(rustix::io::Errno::INTR) => {}
                Some(rustix::io::Errno::AGAIN) => return Ok(None),
                Some(_) if matches!(self.phase, Phase::Pending(_)) => return Ok(Some(0)),
                Some(other) => return Err(io_reason(other)),
                None => return Err(system(error)),
            }
        }
    }

    /// Checks the bytes that one call has received, in stream order. The plan was right for all
    /// bytes before the first gap for which the headers name another destination.
    fn judge(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut Buffers,
        kept: usize,
        received: usize,
    ) -> Result<(), BreakReason> {
        let Buffers { staging, plan, aside } = buffers;
        let (mut start, mut filled, mut left) = (0, kept, received);
        let mut count = 0;
        for gap in &plan.gaps {
            let before = (gap.at - filled).min(left);
            filled += before;
            left -= before;
            if left == 0 {
                break;
            }
            let pending = Pending { gaps: &plan.gaps[count..], span: plan.span.clone() };
            if let Some(header) = &gap.write
                && left >= gap.length + gap.trailer_length
                && staging[start..filled].ends_with(header)
            {
                let end = filled - header.len();
                start += self.take(context, &staging[start..end], &pending)?;
                if start == end && self.on_expected_write(context, header, gap) {
                    // The trailer follows. Without CRC, it contains nothing to check.
                    start = filled + gap.trailer_length;
                    left -= gap.length;
                    count += 1;
                    continue;
                }
            }
            start += self.take(context, &staging[start..filled], &pending)?;
            if start < filled || !self.is_in_place(context, gap) {
                let misplaced = Misplaced { gaps: &plan.gaps[count..], start, filled, left };
                misplaced.gather(context, staging, aside)?;
                self.inbound.habits.on_gaps(count);
                let used = self.take(context, aside, &Pending::NONE)?;
                self.keep(&aside[used..]);
                return Ok(());
            }
            let placed = gap.length.min(left);
            left -= placed;
            count += 1;
            self.on_placed(placed)?;
        }
        self.inbound.habits.on_gaps(count);
        filled += left;
        let used = self.take(context, &staging[start..filled], &Pending::NONE)?;
        self.keep(&staging[start + used..filled]);
        Ok(())
    }

    pub(super) fn keep(&mut self, bytes: &[u8]) {
        self.inbound.kept.clear();
        self.inbound.kept.extend_from_slice(bytes);
    }

    /// Records an expected RDMA write that has arrived completely. Returns false if the general
    /// path must check it.
    #[inline]
    fn on_expected_write(
        &mut self,
        context: &Context<'_>,
        header: &WriteHeader,
        gap: &Gap,
    ) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        // A message may have invalidated the region since the plan was made.
        if context.regions.has_revoked() || !stream.receiver.on_whole_write(header) {
            return false;
        }
        stream.transmitter.on_peer_spoke();
        let [.., a, b, c, d, e, f, g, h] = *header;
        let address = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        self.inbound.expectations.on_write(Stag(gap.key.0), address, gap.length as u32);
        true
    }

    /// Receives the next message if it is complete, does not invalidate a region, and fits in one
    /// range of memory. Returns the number of bytes used.
    #[inline]
    fn take_message(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
        pending: &Pending<'_>,
    ) -> Result<Option<usize>, BreakReason> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        let (Some(payload), Some(receive)) =
            (stream.receiver.whole_send(bytes), self.receives.front())
        else {
            return Ok(None);
        };
        // A frame is shorter than 64 KiB.
        let length = payload.len() as u32;
        let directory = directory(context, &self.receives, &self.outgoing.reads);
        let Ok(run) = directory.local(receive.scatter.as_slice(), 0, length) else {
            return Ok(None);
        };
        let base = run.memory.pointer(run.offset, run.length) as usize;
        if run.length < payload.len() || pending.holds(context, &(base..base + run.length)) {
            return Ok(None);
        }
        run.memory.write(run.offset, payload);
        let used = stream.receiver.on_whole_send(bytes);
        stream.transmitter.on_peer_spoke();
        self.on_received(context, length, None)?;
        Ok(Some(used))
    }

    /// Returns true if the next bytes of the stream belong exactly where the gap lies.
    fn is_in_place(&self, context: &Context<'_>, gap: &Gap) -> bool {
        let (Some(stream), Some(place)) = (&self.stream, &self.inbound.place) else {
            return false;
        };
        let Step::Payload { bytes } = stream.receiver.next_step() else { return false };
        bytes as usize >= gap.length
            && place.is_memory()
            && place.run(&self.directory(context), 0).is_ok_and(|run| {
                (run.key, run.offset) == (gap.key, gap.offset) && run.length >= gap.length
            })
    }

    fn directory<'a>(&'a self, context: &'a Context<'_>) -> Directory<'a> {
        directory(context, &self.receives, &self.outgoing.reads)
    }

    fn on_placed(&mut self, bytes: usize) -> Result<(), BreakReason> {
        if let (Some(place), Some(stream)) = (&mut self.inbound.place, &mut self.stream) {
            place.advance(bytes);
            let count = u32::try_from(bytes).unwrap_or(u32::MAX);
            stream.receiver.on_placed(count).map_err(|refusal| refused(&refusal))?;
        }
        Ok(())
    }

    /// Processes as many bytes as possible, but stops before it would overwrite other bytes of the
    /// stream that still lie in gaps. Returns the number of bytes used.
    pub(super) fn take(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
        pending: &Pending<'_>,
    ) -> Result<usize, BreakReason> {
        let mut used = 0;
        while self.stream.is_none() && used < bytes.len() {
            if self.socket.is_none() {
                return Ok(bytes.len());
            }
            used += self.on_startup(context, &bytes[used..])?;
        }
        loop {
            let rest = &bytes[used..];
            let Some(stream) = &mut self.stream else { return Ok(used) };
            match stream.receiver.next_step() {
                Step::Header { .. } if stream.receiver.crc_in_use() => {
                    match self.take_checked(context, rest)? {
                        Some(count) => used += count,
                        None => return Ok(used),
                    }
                }
                Step::Header { .. } => {
                    if !self.awaits_ready
                        && let Some(count) = self.take_message(context, rest, pending)?
                    {
                        used += count;
                        continue;
                    }
                    let Some(stream) = &mut self.stream else { return Ok(used) };
                    let header = stream.receiver.on_header(rest).map_err(|v| violated(&v))?;
                    let Some(placement) = header else { return Ok(used) };
                    used += usize::from(placement.header_length);
                    self.find_place(context, &placement)?;
                }
                Step::Payload { bytes: left } => {
                    if rest.is_empty() {
                        return Ok(used);
                    }
                    let count = rest.len().min(left as usize);
                    if pending.lies_under(context, self, count) {
                        return Ok(used);
                    }
                    self.put(context, &rest[..count])?;
                    used += count;
                }
                Step::Trailer { bytes: length } => {
                    if rest.len() < length {
                        return Ok(used);
                    }
                    let happening =
                        stream.receiver.on_trailer(&rest[..length]).map_err(|v| violated(&v))?;
                    used += length;
                    self.on_happening(context, happening)?;
                }
                Step::Closed => return Ok(bytes.len()),
            }
        }
    }

    /// Processes one whole frame. Checks its CRC first, so that no damaged bytes are placed, as RFC
    /// 5044 5 recommends. Returns `None` if the frame is incomplete.
    fn take_checked(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Result<Option<usize>, BreakReason> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        let Some(frame) = stream.receiver.on_fpdu(bytes).map_err(|v| violated(&v))? else {
            return Ok(None);
        };
        self.find_place(context, &frame.placement)?;
        if !frame.placement.target.is_control() {
            self.place(context, frame.payload)?;
        }
        self.on_happening(context, frame.event)?;
        Ok(Some(frame.total_length))
    }

    /// Finds and checks the place of a frame's payload.
    fn find_place(
        &mut self,
        context: &Context<'_>,
        placement: &dafs_iwarp::Placement,
    ) -> Result<(), BreakReason> {
        let length = placement.payload_length;
        if let Target::Write { .. } | Target::ReadResponse { .. } = placement.target
            && !placement.last
            && length > 0
        {
            self.inbound.habits.payload_max = length;
        }
        if self.awaits_ready && self.is_ready_message(placement) {
            self.inbound.place = Some(Place::NOWHERE);
            return Ok(());
        }
        match Place::find(&self.directory(context), placement) {
            Ok(place) => self.inbound.place = Some(place),
            Err(error) => return Err(self.refuse_placement(error)),
        }
        match placement.target {
            Target::Write { stag, offset } => {
                self.inbound.expectations.on_write(Stag(stag.0), offset.0, length);
            }
            Target::ReadResponse { message_offset, .. } => {
                self.inbound.read_done = message_offset + length;
            }
            Target::Send { .. } | Target::ReadRequest { .. } | Target::Terminate => {}
        }
        Ok(())
    }

    /// Returns true if the frame is the empty Send by which an initiator shows readiness.
    #[cold]
    fn is_ready_message(&mut self, placement: &dafs_iwarp::Placement) -> bool {
        let is_send = matches!(placement.target, Target::Send { invalidate: None, .. });
        let is_it = is_send && placement.last && placement.payload_length == 0;
        self.awaits_ready = is_it;
        is_it
    }

    /// Places payload bytes that came through the staging buffer.
    fn put(&mut self, context: &Context<'_>, bytes: &[u8]) -> Result<(), BreakReason> {
        if !self.inbound.place.as_ref().is_some_and(Place::is_memory) {
            let Some(stream) = &mut self.stream else { return Ok(()) };
            return stream.receiver.on_payload(bytes).map_err(|refusal| refused(&refusal));
        }
        self.place(context, bytes)?;
        let Some(stream) = &mut self.stream else { return Ok(()) };
        stream.receiver.on_payload(bytes).map_err(|refusal| refused(&refusal))
    }

    fn place(&mut self, context: &Context<'_>, bytes: &[u8]) -> Result<(), BreakReason> {
        let Some(mut place) = self.inbound.place else { return Ok(()) };
        let put = place.put(&self.directory(context), bytes);
        self.inbound.place = Some(place);
        put.map_err(|error| self.refuse_placement(error))
    }

    /// Refuses a placement that the peer requested. The peer is informed by a Terminate.
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
        if let Some(stream) = &mut self.stream {
            stream.transmitter.on_peer_spoke();
        }
        match happening {
            Happening::Continued | Happening::Written => Ok(()),
            Happening::Received { length: 0, invalidate: None, .. }
                if std::mem::take(&mut self.awaits_ready) =>
            {
                Ok(())
            }
            Happening::Received { length, invalidate, .. } => {
                self.on_received(context, length, invalidate.map(|stag| Stag(stag.0)))
            }
            Happening::ReadRequested { sequence, request } => {
                self.on_read_requested(context, sequence, request)
            }
            Happening::ReadCompleted { .. } => {
                self.inbound.read_done = 0;
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
            // A later version of the state machines may have more events.
            other => Err(BreakReason::System(format!("unknown iWARP event {other:?}").into())),
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
        self.inbound.expectations.on_message(length);
        self.inbound.habits.on_message(length);
        if let Some(receive) = self.receives.pop_front() {
            context.events.push_completion(Completion {
                endpoint: context.endpoint,
                cookie: receive.cookie,
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
        request: ReadRequest,
    ) -> Result<(), BreakReason> {
        let answer = Answer { sequence, request };
        match answer.source(context, 0, request.length) {
            Ok(_) => {
                // Bounded: the protocol machine refuses more than the agreed read depth.
                self.outgoing.answers.push_back(answer);
                Ok(())
            }
            Err(error) => Err(self.refuse_answer(&answer, access_error(error))),
        }
    }

    /// Refuses a read by the peer. The peer is informed by a Terminate.
    pub(super) fn refuse_answer(&mut self, answer: &Answer, error: PlacementError) -> BreakReason {
        if let Some(stream) = &mut self.stream {
            let _ = stream.receiver.refuse_read(answer.sequence, &answer.request, error);
        }
        BreakReason::PeerViolation(format!("RDMA read refused: {error}"))
    }
}

/// The gaps whose bytes have arrived but are not checked yet.
pub(super) struct Pending<'p> {
    gaps: &'p [Gap],
    /// The range of addresses that contains all gaps in `gaps`.
    span: Range<usize>,
}

impl Pending<'_> {
    pub(super) const NONE: Pending<'static> = Pending { gaps: &[], span: 0..0 };

    /// Returns true if the next `count` bytes of the current frame would overwrite bytes in these
    /// gaps. This happens when a frame is longer than expected and continues where the next frame
    /// was planned.
    #[inline]
    fn lies_under(&self, context: &Context<'_>, connection: &Connection, count: usize) -> bool {
        let place = connection.inbound.place.as_ref().filter(|place| place.is_memory());
        let (false, Some(place)) = (self.gaps.is_empty(), place) else { return false };
        let directory = connection.directory(context);
        let mut ahead = 0;
        while ahead < count {
            // Bytes without a valid place are not written, so they overwrite nothing.
            let Ok(run) = place.run(&directory, ahead as u32) else { return false };
            let length = run.length.min(count - ahead);
            let start = run.memory.pointer(run.offset, length) as usize;
            let range = start..start + length;
            if self.holds(context, &range) {
                return true;
            }
            ahead += length;
        }
        false
    }

    #[inline]
    fn holds(&self, context: &Context<'_>, range: &Range<usize>) -> bool {
        let may_hold = !self.gaps.is_empty() && overlap(range, &self.span);
        may_hold
            && self.gaps.iter().any(|gap| {
                context.regions.get(gap.key).is_some_and(|entry| {
                    let start = entry.memory.pointer(gap.offset, gap.length) as usize;
                    overlap(range, &(start..start + gap.length))
                })
            })
    }
}

/// The bytes that a call has received after the position where its plan proved wrong.
struct Misplaced<'p> {
    /// The gaps from that position on. The first gap follows the bytes `staging[start..filled]`.
    gaps: &'p [Gap],
    start: usize,
    filled: usize,
    /// The number of received bytes of the stream after `filled`.
    left: usize,
}

impl Misplaced<'_> {
    /// Collects the bytes in stream order. All are copied out before any is placed, because their
    /// memory may be the destination of other bytes.
    fn gather(
        &self,
        context: &Context<'_>,
        staging: &[u8],
        aside: &mut Vec<u8>,
    ) -> Result<(), BreakReason> {
        let (mut filled, mut left) = (self.filled, self.left);
        aside.clear();
        aside.extend_from_slice(&staging[self.start..filled]);
        for gap in self.gaps {
            let staged = (gap.at - filled).min(left);
            aside.extend_from_slice(&staging[filled..filled + staged]);
            filled += staged;
            left -= staged;
            let length = gap.length.min(left);
            if length > 0 {
                let entry = context.regions.get(gap.key);
                let entry = entry.ok_or_else(|| BreakReason::System("a region is gone".into()))?;
                let end = aside.len();
                aside.resize(end + length, 0);
                entry.memory.read(gap.offset, &mut aside[end..]);
                left -= length;
            }
        }
        aside.extend_from_slice(&staging[filled..filled + left]);
        Ok(())
    }
}

fn violated(violation: &dafs_iwarp::Violation) -> BreakReason {
    BreakReason::PeerViolation(violation.to_string())
}

pub(super) fn refused(refusal: &dafs_iwarp::Refusal) -> BreakReason {
    BreakReason::System(format!("iWARP stream: {refusal}").into())
}

/// The maximum number of receive calls in one turn, so that other connections are served too.
const READS_PER_TURN: usize = 8;
/// The number of bytes after which a turn ends, so that the application can send further requests
/// while the peer still sends, and the peer does not run out of work.
pub(super) const TURN_BYTES_MAX: usize = 512 << 10;
/// The number of bytes prefetched in one step while nothing arrives; it takes some microseconds.
const WARM_BYTES: u32 = 16 << 10;
/// The limit for the number of prefetched bytes. More would evict other data from the processor's
/// caches.
const WARM_BYTES_MAX: u32 = 256 << 10;
