//! The steps of the fast path: look up, move bytes, reply.

use dafs_dat::{EndpointId, Gather, ServingInterface};
use dafs_files::defect::Defect;
use dafs_files::io::IoFile;
use dafs_files::reading::Reading;
use dafs_files::under_way::Reach;
use dafs_files::writing::Writing;
use dafs_store::cache::{CachedFile, Piece, Pieces, Prepared, Progress, Read, Span, Spans};
use dafs_types::{CacheHint, Stability, Status};
use dafs_wire::{Checksum, DirectBuffer, Response, TRANSFER_ANSWER_BYTES, encode_response};

use super::{Hit, Hold, KEPT_MAX, Late, SHARED_KEPT_MAX, WANTED_MAX, Wanted, Way};
use crate::afterwards::Keeping;
use crate::meter::Moved;
use crate::moving::transfer::remote_of;
use crate::moving::transfer::{Cookie, Loan};
use crate::reactor::{Own, Reactor, may_move};
use crate::reply_to::{TaskId, blank};
use crate::requests::answers::read_response;
use crate::requests::granting::{count, take_grant};
use crate::requests::respond::QUIET;
use crate::task::{Buffers, ReadTarget, ReadTask, Task, Wait, Work, WriteSource, WriteTask};
use crate::waiting::fencing::{operation_of_loan, operation_of_task};

impl Own {
    /// Moves the bytes of all hits, while other reactors use the shared state. Afterwards
    /// [`Reactor::settle_hits`] handles the hits that could not be moved here, and sends all
    /// replies.
    pub(crate) fn move_hits(&mut self) {
        if self.defect.is_some() {
            self.move_late();
        }
        let Self { hits, interface, .. } = self;
        for index in 0..hits.kept.len() {
            hits.ahead.step();
            let Some(hit) = hits.kept.get_mut(index) else { return };
            // A server with several reactors has no channels for RDMA reads, so the operation
            // channel is used.
            let over = hit.answer.endpoint;
            hit.moved = Some(hit.move_over(interface, over));
            hits.ahead.step();
        }
    }

    /// Returns the number of hits that are kept while later requests are looked up. With several
    /// reactors all hits of a turn are kept, because they are moved while the other reactors take
    /// turns.
    #[inline]
    fn kept_max(&self) -> usize {
        if self.is_alone { KEPT_MAX } else { SHARED_KEPT_MAX }
    }
}

impl Hit {
    /// Moves the bytes of the hit. Returns false if that is not possible immediately.
    #[inline]
    fn move_over(&self, interface: &mut ServingInterface, over: EndpointId) -> bool {
        let local = std::slice::from_ref(&self.local);
        match self.hold {
            Hold::Read { .. } | Hold::Lent { .. } => {
                interface.rdma_write_now(over, local, self.remote)
            }
            Hold::Write { .. } => interface.rdma_read_now(over, local, self.remote),
        }
    }
}

impl Reactor<'_> {
    /// Queues a request, to be looked up together with the requests that follow.
    #[inline]
    pub(crate) fn want(&mut self, wanted: Wanted) {
        if self.own.hits.wanted.is_empty() && self.own.interface.event_count() == 0 {
            // No further request is waiting, so this request is looked up alone.
            return self.look_up_one(&wanted);
        }
        self.shared.cache.hold(wanted.io.file);
        self.own.hits.wanted.push(wanted);
        self.fetch_ahead();
        if self.own.hits.wanted.len() == WANTED_MAX {
            self.look_up();
            while self.own.hits.kept.len() > self.own.kept_max() {
                self.move_hit();
            }
        }
    }

    /// Finishes all queued requests: each one is replied to or parked. Then does the work that
    /// was deferred until the replies are sent.
    #[inline]
    pub(crate) fn settle(&mut self) {
        self.settle_hits();
        self.follow_up();
    }

    /// Spoils the moves of the current hits if a test injects a defect.
    #[cold]
    pub(crate) fn spoil_moves(&mut self) {
        match self.own.defect {
            Some(Defect::AnswerBeforeMove) => self.answer_early(),
            Some(Defect::UnpinBeforeMove) => self.own.hits.unpin_all(&mut self.shared.cache),
            _ => {}
        }
    }

    /// Replies to the writes at the front of the queue before their bytes have arrived, because a
    /// test injects that defect.
    fn answer_early(&mut self) {
        while let Some(hit) = self.own.hits.kept.front()
            && let (true, Hold::Write { .. }) = (hit.is_foretold, &hit.hold)
        {
            let late = Late { over: hit.answer.endpoint, local: hit.local, remote: hit.remote };
            self.own.hits.late.push(late);
            self.send_foretold();
            let Some(Hit { io, hold, moves_as, .. }) = self.own.hits.kept.pop_front() else {
                return;
            };
            self.end_hold(io, hold);
            self.end_move(moves_as, io.file);
        }
        self.own.interface.flush();
    }

    /// Finishes all queued requests: each one is replied to or parked.
    #[inline]
    pub(crate) fn settle_hits(&mut self) {
        self.look_up();
        while !self.own.hits.kept.is_empty() {
            self.move_hit();
        }
    }

    /// Prefetches a few more of the cache lines that will be copied next. It is called at many
    /// points on a request's path, so that the loads from memory are spread out. The processor
    /// supports about ten outstanding cache lines; a thread that requests more stalls.
    #[inline]
    pub(crate) fn fetch_ahead(&mut self) {
        self.own.hits.ahead.step();
    }

    #[inline]
    pub(crate) fn look_up(&mut self) {
        if self.own.hits.wanted.is_empty() {
            return;
        }
        let mut wanted = std::mem::take(&mut self.own.hits.wanted);
        for wanted in &wanted {
            self.shared.cache.prefetch(wanted.io.file, wanted.offset);
        }
        for wanted in &wanted {
            self.look_up_one(wanted);
            self.shared.cache.close(wanted.io.file);
        }
        wanted.clear();
        self.own.hits.wanted = wanted;
    }

    #[inline]
    fn look_up_one(&mut self, wanted: &Wanted) {
        match wanted.way {
            Way::Read(hint) => self.look_up_read(wanted, hint),
            Way::Write => self.look_up_write(wanted),
        }
    }

    #[inline]
    fn look_up_read(&mut self, wanted: &Wanted, hint: CacheHint) {
        let Wanted { answer, io, offset, length, buffer, .. } = *wanted;
        let mut pieces = Pieces::new();
        let found = self.shared.cache.read(io.file, offset, length, &mut pieces);
        if let (Read::Hit { length: found, is_end, wants_more }, [_]) = (found, &pieces[..])
            && (found == length || is_end)
            && let Some(piece) = pieces.pop()
        {
            if wants_more {
                self.read_ahead(io.file);
            }
            let Piece { offset, length, pin } = piece;
            let response = read_response(length, is_end, Checksum::NONE);
            return self.keep_hit(wanted, (offset, length), Hold::Read { pin, is_end }, &response);
        }
        let target = ReadTarget::Direct(Buffers::One(buffer));
        let reading = Reading::new(io, offset, length, hint);
        self.start_read_found(answer, ReadTask { reading, target }, found, pieces);
    }

    fn look_up_write(&mut self, wanted: &Wanted) {
        let Wanted { answer, io, offset, length, buffer, .. } = *wanted;
        let (mut spans, mut jobs) = (Spans::new(), Vec::new());
        let found = self.shared.cache.prepare_write(io.file, offset, length, &mut spans, &mut jobs);
        if let (Prepared::Ready(_), [span]) = (&found, &spans[..])
            && span.length == length
            && let Prepared::Ready(token) = found
        {
            let place = (span.offset, length);
            let response = self.write_response(length);
            return self.keep_hit(wanted, place, Hold::Write { token, offset, buffer }, &response);
        }
        let task = plain_write(io, offset, length, buffer);
        let answer = self.keep_begun(answer);
        self.start_write_with(answer, task, (found, jobs), &mut spans);
    }

    /// Keeps a hit for later. If only the number of credits in its reply can still change, the
    /// reply is encoded now, before the bytes are copied. The order matters because a store that
    /// follows the copy of a page waits until the page is written, and a load of the same bytes
    /// with another word size stalls too. For the same reason the encoded reply is not moved in
    /// memory.
    #[inline]
    fn keep_hit(
        &mut self,
        wanted: &Wanted,
        (offset, length): (u64, u32),
        hold: Hold,
        response: &Response<'_>,
    ) {
        let Wanted { answer, io, ref buffer, .. } = *wanted;
        let is_hidden = self.own.is_alone || self.own.defect == Some(Defect::HideMoves);
        let moves_as = if is_hidden { None } else { Some(self.begin_move(wanted, length)) };
        self.own.hits.ahead.push(self.shared.cache.arena().address() + offset, length);
        self.fetch_ahead();
        self.own.hits.kept.push_back(Hit {
            answer,
            local: self.own.arena.local(offset, length),
            remote: remote_of(buffer, length),
            io,
            hold,
            moved: None,
            moves_as,
            is_foretold: false,
            message: [0; TRANSFER_ANSWER_BYTES],
        });
        self.fetch_ahead();
        if let Some(hit) = self.own.hits.kept.back_mut()
            && let Some(channel) = self.shared.channels.get(answer.endpoint)
            && let Some(order) = channel.order
            && !(answer.kept().is_some() | channel.checksums)
        {
            let target = self.shared.sessions.likely_target(channel.id);
            let header = blank(answer, Status::Ok, target);
            let room = &mut hit.message;
            hit.is_foretold = channel.response_bytes_max >= room.len()
                && encode_response(order, &header, response, room) == Ok(TRANSFER_ANSWER_BYTES);
        }
        self.fetch_ahead();
    }

    /// Enters the hit into the table of tasks, so that other reactors see it while its bytes are
    /// moved.
    fn begin_move(&mut self, wanted: &Wanted, length: u32) -> TaskId {
        let Wanted { answer, io, offset, .. } = *wanted;
        let changes = match wanted.way {
            Way::Read(_) => None,
            Way::Write => Some(io.undo_seen),
        };
        let reach = Reach::of(io.file, (offset, length), changes);
        // The hit holds its file like a parked task, because the file's open may be closed
        // meanwhile.
        self.shared.cache.hold(io.file);
        self.shared.tasks.begin_move(answer.endpoint, reach)
    }

    /// Removes the hit from the table of tasks, if it has an entry.
    #[inline]
    fn end_move(&mut self, id: Option<TaskId>, file: CachedFile) {
        let Some(id) = id else { return };
        self.shared.tasks.end_move(id);
        self.shared.filer.leave_fence(operation_of_task(id));
        // Other requests for the file may have waited for this hit.
        self.on_progress(Progress { file, error: None });
        self.shared.cache.close(file);
    }

    /// Moves the bytes of the oldest hit and replies to it.
    #[inline]
    fn move_hit(&mut self) {
        self.fetch_ahead();
        self.fetch_ahead();
        let is_alone = self.own.is_alone;
        let Some(hit) = self.own.hits.first() else { return };
        let over = match hit.hold {
            Hold::Read { .. } | Hold::Lent { .. } => hit.answer.endpoint,
            Hold::Write { .. } => self.shared.channels.reads_over(hit.answer.endpoint),
        };
        let is_moved = match hit.moved {
            Some(is_moved) => is_moved,
            // With several reactors a long transfer is posted instead of copied, because the other
            // reactors wait for the end of this turn.
            None => {
                may_move(is_alone, hit.local.length) && hit.move_over(&mut self.own.interface, over)
            }
        };
        if !is_moved && !self.post_hit() {
            return;
        }
        self.fetch_ahead();
        if !self.send_foretold() {
            return self.end_hit();
        }
        let Some(Hit { io, hold, moves_as, .. }) = self.own.hits.kept.pop_front() else { return };
        self.end_hold(io, hold);
        self.end_move(moves_as, io.file);
        self.fetch_ahead();
    }

    /// Sends the reply of the oldest hit, whose bytes were moved. The reply, which was encoded in
    /// advance, is not copied. Returns false if no reply was encoded in advance.
    #[inline]
    fn send_foretold(&mut self) -> bool {
        let is_last = self.own.hits.kept.len() == 1;
        let Some(hit) = self.own.hits.kept.front_mut().filter(|hit| hit.is_foretold) else {
            return false;
        };
        let endpoint = hit.answer.endpoint;
        let member = hit.answer.chain.is_some().then_some(hit.answer);
        if let Some(channel) = self.shared.channels.get_mut(endpoint) {
            take_grant(&mut self.shared.sessions, channel, hit.answer, &mut hit.message);
        }
        let gather = [Gather::Bytes(&hit.message)];
        let silent = Cookie::Silent.pack();
        let is_posted = self.own.interface.post_send(endpoint, silent, &gather, QUIET).is_ok();
        // The reply was sent, so the following work does not delay the client.
        if let Some(channel) = self.shared.channels.get_mut(endpoint) {
            let length = hit.local.length;
            let moved = match hit.hold {
                Hold::Read { .. } | Hold::Lent { .. } => Moved::Read(length),
                Hold::Write { .. } => Moved::Written(length),
            };
            let books = (&mut self.shared.sessions, &mut self.shared.meter);
            count(books, channel, hit.answer, Status::Ok, moved);
        }
        if hit.answer.kept_later().is_some() {
            let keeping = Keeping::of(hit.answer, &hit.message);
            if is_last {
                self.shared.afterwards.keep(keeping, &mut self.shared.sessions);
            } else {
                // This work does not delay the client, but it must be done before the next request.
                keeping.keep(&mut self.shared.sessions);
            }
        }
        self.end_send(endpoint, is_posted);
        if let Some(member) = member {
            // The next member of the chain only needs to know that this member succeeded.
            self.end_member(member);
        }
        true
    }

    /// Releases a hit's reference to the cache after its bytes were moved.
    #[inline]
    fn end_hold(&mut self, io: IoFile, hold: Hold) {
        match hold {
            Hold::Read { pin, .. } => self.shared.cache.unpin(pin),
            Hold::Lent { .. } => {}
            Hold::Write { token, .. } => {
                let progress = self.shared.cache.write_done(token, self.shared.life.now());
                self.on_progress(progress);
            }
        }
        self.give_back(io.file, io.borrowed);
    }

    /// Encodes and sends the reply of the oldest hit, whose bytes were moved. Used if no reply was
    /// encoded in advance.
    #[inline(never)]
    fn end_hit(&mut self) {
        let Some(Hit { answer, local, io, hold, moves_as, .. }) = self.own.hits.kept.pop_front()
        else {
            return;
        };
        let length = local.length;
        match hold {
            Hold::Read { is_end, .. } | Hold::Lent { is_end } => {
                self.end_hold(io, hold);
                let response = read_response(length, is_end, Checksum::NONE);
                self.reply_moved(answer, &response);
            }
            Hold::Write { .. } => {
                let answer = self.keep_begun(answer);
                self.end_hold(io, hold);
                let response = self.write_response(length);
                self.reply_moved(answer, &response);
            }
        }
        self.end_move(moves_as, io.file);
    }

    /// Posts the transfer of the oldest hit. Returns false if the hit must wait for the transfer's
    /// completion.
    #[inline]
    fn post_hit(&mut self) -> bool {
        let Some(hit) = self.own.hits.kept.front_mut() else { return false };
        let (endpoint, local, remote) = (hit.answer.endpoint, hit.local, hit.remote);
        let is_end = match hit.hold {
            Hold::Read { is_end, .. } => is_end,
            Hold::Lent { .. } => {
                // The pin was already released by an injected defect.
                self.post_write(endpoint, &[local], remote, Cookie::Silent, true);
                return true;
            }
            Hold::Write { .. } => {
                self.await_hit();
                return false;
            }
        };
        if let Hold::Read { pin, .. } = std::mem::replace(&mut hit.hold, Hold::Lent { is_end }) {
            let moves_as = hit.moves_as;
            let cookie = self.shared.loans.insert(endpoint, Loan::Pin(pin), local.length);
            if let (Some(id), Cookie::Loan(loan)) = (moves_as, cookie) {
                let (from, to) = (operation_of_task(id), operation_of_loan(loan));
                self.shared.filer.rename_fenced_operation(from, to);
            }
            self.post_write(endpoint, &[local], remote, cookie, true);
        }
        true
    }

    /// Turns the oldest hit, a write whose bytes are still being fetched, into a task.
    fn await_hit(&mut self) {
        let Some(Hit { answer, local, io, hold, moves_as, .. }) = self.own.hits.kept.pop_front()
        else {
            return;
        };
        let Hold::Write { token, offset, buffer } = hold else { return };
        let id = self.shared.tasks.reserve();
        if let Some(from) = moves_as {
            let (from, to) = (operation_of_task(from), operation_of_task(id));
            self.shared.filer.rename_fenced_operation(from, to);
        }
        let mut task = plain_write(io, offset, local.length, buffer);
        let spans = Spans::from_iter([Span { offset: local.offset, length: local.length }]);
        let answer = self.keep_begun(answer);
        let is_there = self.fetch_into(id, answer, &mut task, token, &spans);
        let task = Task::new(answer, Work::Write(task));
        if is_there {
            self.drive(id, task);
        } else {
            self.park(id, task, Wait::Transfers);
        }
        self.end_move(moves_as, io.file);
    }
}

fn plain_write(io: IoFile, offset: u64, length: u32, buffer: DirectBuffer) -> WriteTask {
    let source = WriteSource::Direct(Buffers::One(buffer));
    WriteTask::new(Writing::new(io, offset, length, Stability::Unstable), source)
}
