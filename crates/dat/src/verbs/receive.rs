//! Processes the device's completions: arrived messages and completed work.
//!
//! Invariant: receives are reported in the order posted. The number of a receive is `first` plus
//! its index in `receives`. A completion that was taken while preparing to sleep is processed
//! before any other completion.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use dafs_memory::Memory;

use super::establish::Phase;
use super::queues::SGE_MAX;
use super::raw::{self, WorkCompletion, status};
use super::staging::Staged;
use super::transmit::unregistered;
use super::{Connection, system};
use crate::connection::Context;
use crate::region::AccessError;
use crate::{BreakReason, Completion, CompletionStatus, LocalSegment, Operation, PostError, Stag};

/// The receiving state of a connection.
pub(super) struct Inbound {
    pub receives: VecDeque<Receive>,
    /// The number of the first entry of `receives`.
    first: u64,
    completions: Box<[WorkCompletion; COMPLETIONS_AT_ONCE]>,
    /// The number of completions at the front of `completions` that are not processed yet.
    held: usize,
}

/// A receive that waits for its message.
pub(super) struct Receive {
    pub cookie: u64,
    /// The receive's scatter list, if the message arrives in other memory first.
    detour: Option<Box<Detour>>,
}

struct Detour {
    scatter: Box<[LocalSegment]>,
    /// The contiguous memory in which the message arrives before it is copied.
    staged: Option<Staged>,
}

impl Default for Inbound {
    fn default() -> Self {
        Self {
            receives: VecDeque::new(),
            first: 0,
            completions: Box::new([WorkCompletion::default(); COMPLETIONS_AT_ONCE]),
            held: 0,
        }
    }
}

impl Connection {
    pub(super) fn queue_receive(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        scatter: &[LocalSegment],
    ) -> Result<(), PostError> {
        if matches!(self.phase, Phase::Closed | Phase::Vanished) {
            return Err(PostError::NotConnected);
        }
        let depth = self.lane.queues.as_ref().map_or(usize::MAX, |queues| queues.receive_depth);
        if self.inbound.receives.len() >= depth.min(self.config.receives_max as usize) {
            return Err(PostError::QueueFull);
        }
        for segment in scatter {
            context.regions.check(context.domain, segment)?;
        }
        if self.lane.queues.is_none() {
            // The device is not known yet, so the receive is posted later.
            let detour = Some(Box::new(Detour { scatter: scatter.into(), staged: None }));
            self.inbound.receives.push_back(Receive { cookie, detour });
            return Ok(());
        }
        let number = self.inbound.first + self.inbound.receives.len() as u64;
        let detour = self.give_receive(context, number, scatter)?;
        self.inbound.receives.push_back(Receive { cookie, detour });
        Ok(())
    }

    /// Posts the receives that were posted before the device was known.
    pub(super) fn post_early(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        for place in 0..self.inbound.receives.len() {
            let Some(detour) = self.inbound.receives[place].detour.take() else { continue };
            let number = self.inbound.first + place as u64;
            let posted = self.give_receive(context, number, &detour.scatter);
            let failed = |error: PostError| BreakReason::System(error.to_string().into());
            self.inbound.receives[place].detour = posted.map_err(failed)?;
        }
        Ok(())
    }

    /// Posts a receive to the device. Returns the scatter list to copy to when the message has
    /// arrived; `None` if the device places the message itself.
    fn give_receive(
        &mut self,
        context: &mut Context<'_>,
        number: u64,
        scatter: &[LocalSegment],
    ) -> Result<Option<Box<Detour>>, PostError> {
        let Some(queues) = &mut self.lane.queues else { return Err(PostError::NotConnected) };
        let (mut sges, mut count) = ([raw::Sge::default(); SGE_MAX], 0);
        let filled = scatter.iter().filter(|segment| segment.length > 0);
        let pieces = filled.clone().count();
        let mut detour = None;
        if pieces == 0 || pieces > queues.sge_max {
            let length: u64 = filled.map(|segment| u64::from(segment.length)).sum();
            // No message longer than the limit can arrive.
            let length = length.min(u64::from(self.config.message_bytes_max)) as usize;
            let protection = &queues.protection;
            // One byte even if the message must be empty: some devices require a segment.
            let staged = self.staging.take(protection, length.max(1)).map_err(unregistered)?;
            sges[0] = self.staging.sge(staged, 0, length as u32);
            count = 1;
            detour = Some(Box::new(Detour { scatter: scatter.into(), staged: Some(staged) }));
        } else {
            for segment in filled {
                let (protection, domain) = (&queues.protection, context.domain);
                sges[count] = context.regions.device_piece(protection, domain, segment)?;
                count += 1;
            }
        }
        let posted = queues.post_receive(number | RECEIVE, &mut sges[..count]);
        if posted.is_err()
            && let Some(staged) = detour.as_ref().and_then(|detour| detour.staged)
        {
            self.staging.give_back(staged);
        }
        posted.map(|()| detour).map_err(|_| PostError::QueueFull)
    }

    /// Processes the device's completions. Returns true if any work made progress.
    pub(super) fn take_in(&mut self, context: &mut Context<'_>) -> Result<bool, BreakReason> {
        let mut moved = false;
        for _ in 0..ROUNDS_MAX {
            let count = self.poll_completions()?;
            if count == 0 {
                break;
            }
            moved = true;
            for place in 0..count {
                let completion = self.inbound.completions[place];
                self.on_completion(context, &completion)?;
            }
        }
        if moved && self.is_open() {
            // The completions may have made room for waiting work.
            self.push_out()?;
        }
        Ok(moved)
    }

    fn poll_completions(&mut self) -> Result<usize, BreakReason> {
        let held = std::mem::take(&mut self.inbound.held);
        if held > 0 {
            return Ok(held);
        }
        let Some(queues) = &mut self.lane.queues else { return Ok(0) };
        queues.poll(&mut self.inbound.completions[..]).map_err(system)
    }

    fn on_completion(
        &mut self,
        context: &mut Context<'_>,
        completion: &WorkCompletion,
    ) -> Result<(), BreakReason> {
        let number = completion.id & !RECEIVE;
        let is_receive = completion.id & RECEIVE != 0;
        match (completion.status, is_receive) {
            (status::SUCCESS, true) => self.on_message(context, completion),
            (status::SUCCESS, false) => {
                self.on_sent(context, number);
                Ok(())
            }
            // The cause was reported before, or only the connection manager knows it. The
            // connection manager then reports the end of the connection.
            (status::FLUSHED, _) if self.is_open() => {
                self.take_events(context)?;
                Err(BreakReason::Peer)
            }
            (status::FLUSHED, _) => Ok(()),
            (_, true) => {
                self.end_receive(context, CompletionStatus::Failed, 0, None);
                Err(reason_of(completion, true))
            }
            (_, false) => {
                self.on_send_failed(context, number);
                Err(reason_of(completion, false))
            }
        }
    }

    fn on_message(
        &mut self,
        context: &mut Context<'_>,
        completion: &WorkCompletion,
    ) -> Result<(), BreakReason> {
        if matches!(self.phase, Phase::Answered) {
            self.note_heard(context)?;
        }
        let named = match completion.flags {
            flags if flags & raw::COMPLETION_WITH_INVALIDATE != 0 => Some(completion.immediate),
            flags if flags & raw::COMPLETION_WITH_IMMEDIATE != 0 => {
                Some(u32::from_be(completion.immediate))
            }
            _ => None,
        };
        let mut invalidated = None;
        if let Some(name) = named {
            match self.invalidate(context, name) {
                Ok(stag) => invalidated = Some(stag),
                Err(_) => {
                    self.end_receive(context, CompletionStatus::Failed, 0, None);
                    let what =
                        format!("it invalidates {name:#x}, which is not a region of this side");
                    return Err(BreakReason::PeerViolation(what));
                }
            }
        }
        self.end_receive(context, CompletionStatus::Success, completion.length, invalidated);
        Ok(())
    }

    fn invalidate(&self, context: &mut Context<'_>, name: u32) -> Result<Stag, AccessError> {
        let protection = self.protection.as_ref().ok_or(AccessError::InvalidStag)?;
        context.regions.invalidate_on_device(protection, Stag(name), context.domain)
    }

    /// Completes the oldest receive, whose message has arrived.
    fn end_receive(
        &mut self,
        context: &mut Context<'_>,
        status: CompletionStatus,
        length: u32,
        invalidated: Option<Stag>,
    ) {
        let Some(receive) = self.inbound.receives.pop_front() else { return };
        self.inbound.first += 1;
        if let Some(detour) = receive.detour
            && let Some(staged) = detour.staged
        {
            self.spread(context, &detour.scatter, staged, length);
            self.staging.give_back(staged);
        }
        context.events.push_completion(Completion {
            endpoint: context.endpoint,
            cookie: receive.cookie,
            operation: Operation::Receive,
            status,
            length,
            invalidated,
        });
    }

    /// Copies a message from contiguous memory to the segments of its receive.
    fn spread(&self, context: &Context<'_>, scatter: &[LocalSegment], staged: Staged, length: u32) {
        let (source, start) = self.staging.memory(staged);
        let mut done = 0;
        for segment in scatter {
            let here = segment.length.min(length - done) as usize;
            // A region that was deregistered in the meantime is skipped.
            if let Ok((target, offset)) = context.regions.local(context.domain, segment) {
                Memory::copy(source, start + done as usize, target, offset, here);
            }
            done += here as u32;
        }
    }

    /// Requests a wakeup before the interface sleeps. Returns false if a completion has already
    /// arrived.
    pub(super) fn arm_completions(&mut self) -> bool {
        let Some(queues) = &mut self.lane.queues else { return true };
        if self.inbound.held > 0 || queues.arm().is_err() {
            return false;
        }
        // A completion that arrived before the request for a wakeup wakes no thread, so check for
        // one.
        match queues.poll(&mut self.inbound.completions[..]) {
            Ok(count) => self.inbound.held = count,
            Err(_) => return false,
        }
        self.inbound.held == 0
    }

    /// Processes the messages that the peer sent before it closed the connection in the regular
    /// way.
    pub(super) fn take_in_the_rest(&mut self, context: &mut Context<'_>) {
        while matches!(self.take_in(context), Ok(true)) {}
    }

    /// Processes the completions that the device reported before the connection ended.
    pub(super) fn drain(&mut self, context: &mut Context<'_>) {
        while let Ok(count @ 1..) = self.poll_completions() {
            for place in 0..count {
                let completion = self.inbound.completions[place];
                if completion.status == status::SUCCESS {
                    // A protocol violation no longer matters, because the connection has ended.
                    let _ = self.on_completion(context, &completion);
                }
            }
        }
    }

    /// Gives the device a short time to send the most recently posted message before the connection
    /// is closed.
    pub(super) fn linger(&mut self, context: &mut Context<'_>) {
        if !self.has_posted() || self.post_last().is_err() {
            return;
        }
        let begun = Instant::now();
        while self.has_posted() && begun.elapsed() < LINGER_MAX {
            if self.take_in(context).is_err() {
                return;
            }
        }
    }
}

fn reason_of(completion: &WorkCompletion, is_receive: bool) -> BreakReason {
    match completion.status {
        status::LOCAL_LENGTH if is_receive => BreakReason::ReceiverNotReady,
        status::RECEIVER_NOT_READY => BreakReason::ReceiverNotReady,
        status::REMOTE_ACCESS => {
            BreakReason::RemoteAccess("the peer's device does not allow this access".into())
        }
        status::REMOTE_INVALID_REQUEST | status::REMOTE_OPERATION => {
            BreakReason::Terminated("the peer's device could not execute the request".into())
        }
        status::RETRIES_EXCEEDED => BreakReason::System("the peer's device does not reply".into()),
        other => {
            let vendors = completion.vendor_error;
            let text = format!("the RDMA device reports status {other} (vendor's {vendors:#x})");
            BreakReason::System(text.into())
        }
    }
}

/// The bit that is set in the work request ids of receives.
const RECEIVE: u64 = 1 << 63;
/// The maximum number of completions taken by one call.
const COMPLETIONS_AT_ONCE: usize = 16;
/// The maximum number of calls per turn that take completions.
const ROUNDS_MAX: usize = 8;
/// The maximum time for which a peer that does not receive can delay this side.
const LINGER_MAX: Duration = Duration::from_millis(1);
