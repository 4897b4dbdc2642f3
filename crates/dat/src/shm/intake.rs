//! Receives from the ring: messages, and staged reads and writes.
//!
//! Invariant: a frame is checked by its header, which is loaded once, and by bytes that are copied
//! out of the ring first. No data is placed before its region, bounds and rights are checked.

use dafs_memory::Memory;

use super::ring::{BadFrame, FrameHeader, FrameKind};
use super::transfer::{Answer, Receive, local, refuse_peer};
use super::{BreakReason, CompletionStatus, Connection, Context, Operation, no_rings};
use crate::{Completion, Stag};

impl Connection {
    /// Processes frames of the ring. Returns true if any frame was processed.
    pub(super) fn take_in(&mut self, context: &mut Context<'_>) -> Result<bool, BreakReason> {
        let mut moved = false;
        for _ in 0..FRAMES_PER_TURN {
            let rings = self.rings.as_mut().ok_or_else(no_rings)?;
            let frame = rings.consumer.peek().map_err(bad_frame)?;
            let Some((header, offset)) = frame else { break };
            match header.kind {
                FrameKind::Delta => self.on_short(context, header)?,
                FrameKind::Send if header.is_short() => self.on_short(context, header)?,
                FrameKind::Send => self.on_send(context, header, offset)?,
                FrameKind::Write => self.on_write(context, header, offset)?,
                FrameKind::ReadRequest => self.on_read_request(header, offset)?,
                FrameKind::ReadResponse => self.on_read_response(context, header, offset)?,
                FrameKind::Wrap => {
                    return Err(BreakReason::PeerViolation("wrap marker out of place".into()));
                }
            }
            let rings = self.rings.as_mut().ok_or_else(no_rings)?;
            rings.consumer.advance(header);
            moved = true;
        }
        if moved {
            let rings = self.rings.as_mut().ok_or_else(no_rings)?;
            if rings.consumer.publish() {
                self.wake_peer();
            }
        }
        if !self.work.is_empty() || !self.answers.is_empty() {
            self.execute(context)?;
        }
        Ok(moved)
    }

    /// Copies a message directly from the ring into a receive. The message is too long for the copy
    /// that [`super::delta`] keeps of short messages.
    fn on_send(
        &mut self,
        context: &mut Context<'_>,
        header: FrameHeader,
        offset: usize,
    ) -> Result<(), BreakReason> {
        let receive = self.take_receive(header.length)?;
        let ring = &self.rings.as_ref().ok_or_else(no_rings)?.memory;
        let (mut at, mut left) = (offset, header.length);
        for segment in receive.segments() {
            let count = segment.length.min(left);
            let (memory, to) = local(context, segment)?;
            Memory::copy(ring, at, memory, to, count as usize);
            at += count as usize;
            left -= count;
        }
        received(context, &receive, header.length, header.word)
    }

    #[inline]
    fn on_short(
        &mut self,
        context: &mut Context<'_>,
        header: FrameHeader,
    ) -> Result<(), BreakReason> {
        let receive = self.take_receive(header.length)?;
        let rings = self.rings.as_mut().ok_or_else(no_rings)?;
        let message = rings.consumer.message(header).map_err(bad_frame)?;
        scatter(context, &receive, message)?;
        received(context, &receive, header.length, header.word)
    }

    /// Removes and returns the oldest posted receive, which must have room for `length` bytes.
    #[inline]
    fn take_receive(&mut self, length: u32) -> Result<Receive, BreakReason> {
        match self.receives.front() {
            Some(receive) if receive.room >= u64::from(length) => {}
            _ => return Err(BreakReason::ReceiverNotReady),
        }
        self.receives.pop_front().ok_or(BreakReason::ReceiverNotReady)
    }

    fn on_write(
        &mut self,
        context: &mut Context<'_>,
        header: FrameHeader,
        offset: usize,
    ) -> Result<(), BreakReason> {
        let ring = &self.rings.as_ref().ok_or_else(no_rings)?.memory;
        let count = header.length.checked_sub(8).ok_or_else(short_frame)?;
        let address = read_u64(ring, offset);
        let stag = Stag(header.word);
        let (memory, to) = context
            .regions
            .remote(context.domain, stag, address, count, true)
            .map_err(refuse_peer)?;
        Memory::copy(ring, offset + 8, memory, to, count as usize);
        Ok(())
    }

    fn on_read_request(&mut self, header: FrameHeader, offset: usize) -> Result<(), BreakReason> {
        if header.length != 12 {
            return Err(short_frame());
        }
        if self.answers.len() >= usize::from(self.config.read_depth.max(1)) {
            return Err(BreakReason::PeerViolation("too many RDMA reads at once".into()));
        }
        let ring = &self.rings.as_ref().ok_or_else(no_rings)?.memory;
        let address = read_u64(ring, offset);
        let mut length = [0; 4];
        ring.read(offset + 8, &mut length);
        let left = u32::from_le_bytes(length);
        self.answers.push_back(Answer { stag: Stag(header.word), address, left });
        Ok(())
    }

    fn on_read_response(
        &mut self,
        context: &mut Context<'_>,
        header: FrameHeader,
        offset: usize,
    ) -> Result<(), BreakReason> {
        let unasked = || BreakReason::PeerViolation("RDMA read response to no request".into());
        let ring = &self.rings.as_ref().ok_or_else(no_rings)?.memory;
        let read = self.staged_reads.front_mut().ok_or_else(unasked)?;
        if header.length > read.length - read.done {
            return Err(unasked());
        }
        let mut skip = u64::from(read.done);
        let (mut at, mut left) = (offset, header.length);
        for segment in &read.scatter {
            let length = u64::from(segment.length);
            if skip >= length {
                skip -= length;
                continue;
            }
            let count = u32::try_from(length - skip).unwrap_or(u32::MAX).min(left);
            let (memory, to) = local(context, segment)?;
            let to = to + usize::try_from(skip).unwrap_or(0);
            Memory::copy(ring, at, memory, to, count as usize);
            skip = 0;
            at += count as usize;
            left -= count;
        }
        read.done += header.length;
        if read.done == read.length {
            let (cookie, length) = (read.cookie, read.length);
            self.staged_reads.pop_front();
            context.complete(Operation::RdmaRead, cookie, CompletionStatus::Success, length);
        }
        Ok(())
    }
}

/// Copies a message into a receive that has room for it.
#[inline]
fn scatter(
    context: &Context<'_>,
    receive: &Receive,
    mut message: &[u8],
) -> Result<(), BreakReason> {
    // Nearly always one segment is large enough.
    if !message.is_empty() && message.len() <= receive.first.length as usize {
        let (memory, to) = local(context, &receive.first)?;
        memory.write(to, message);
        return Ok(());
    }
    for segment in receive.segments() {
        let count = (segment.length as usize).min(message.len());
        let (memory, to) = local(context, segment)?;
        let (here, rest) = message.split_at(count);
        memory.write(to, here);
        message = rest;
    }
    Ok(())
}

/// Completes a receive. `word` is the STag of a region to invalidate, or zero.
#[inline]
fn received(
    context: &mut Context<'_>,
    receive: &Receive,
    length: u32,
    word: u32,
) -> Result<(), BreakReason> {
    let invalidated = (word != 0).then_some(Stag(word));
    if let Some(stag) = invalidated {
        let revoked = context.regions.invalidate(stag, context.domain);
        if let Err(error) = revoked {
            let endpoint = context.endpoint;
            context.events.push_completion(Completion {
                endpoint,
                cookie: receive.cookie,
                operation: Operation::Receive,
                status: CompletionStatus::Failed,
                length: 0,
                invalidated: None,
            });
            return Err(refuse_peer(error));
        }
    }
    context.events.push_completion(Completion {
        endpoint: context.endpoint,
        cookie: receive.cookie,
        operation: Operation::Receive,
        status: CompletionStatus::Success,
        length,
        invalidated,
    });
    Ok(())
}

fn bad_frame(bad: BadFrame) -> BreakReason {
    BreakReason::PeerViolation(format!("frame header {:#x} in the ring", bad.0))
}

fn short_frame() -> BreakReason {
    BreakReason::PeerViolation("frame of impossible length".into())
}

fn read_u64(memory: &Memory, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    memory.read(offset, &mut bytes);
    u64::from_le_bytes(bytes)
}

/// The number of frames processed before other connections get their turn.
const FRAMES_PER_TURN: usize = 64;
