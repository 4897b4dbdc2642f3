//! The way of a request through the journal: held while its names are busy, intended,
//! carried out, concluded.
//!
//! Invariant: each request that begins here comes to exactly one end: an outcome, or word
//! that it was not carried out.

use dafs_filer::Touch;
use dafs_journal::RecordNumber;
use dafs_journal::log::GroupDone;
use dafs_ops::{Append, Claim, Creation, Open, Operation, encode_outcome};
use dafs_store::StoreError;
use dafs_types::{FileHandle, ObjectType, Status};
use dafs_wire::{ByteOrder, HEADER_BYTES, Response, encode_response};
use smallvec::SmallVec;

use super::record::{Facts, Intent, Outcome, Record, Reply, RequestKey};
use super::requests::{
    Concluded, Held, Intended, Place, Places, Running, Touched, Unsynced, is_failure,
};
use super::{Entry, LedgerDone, LedgerError};
use crate::caller::Caller;
use crate::fencing::operation_of_intent;
use crate::files::Files;
use crate::jobs::Job;
use crate::outcome::NotDone;
use crate::reactor::Reactor;
use crate::reply_to::{ReplyTo, TaskId, blank};
use crate::respond::ReplyStatus;
use crate::set_aside::{Asked, SetAside, octets_of};
use crate::settings::changes_in;
use crate::translate::outcome_of;

/// What a request is about to do, if it must be written down first.
struct Plan {
    facts: Facts,
    places: Places,
    touched: Touched,
}

impl Reactor {
    /// Sees to a request that may have to go through the journal. False if it may be
    /// carried out at once.
    pub(crate) fn is_gated(&mut self, answer: ReplyTo, operation: &Operation<'_>) -> bool {
        if self.ledger.is_none() || !operation.changes_names() {
            return false;
        }
        if self.filer.has_fences()
            && let Err(status) = self.pass_all(answer, operation.touched())
        {
            self.fail(answer, status);
            return true;
        }
        let plan = match self.plan(answer, operation) {
            Ok(Some(plan)) => plan,
            Ok(None) => return false,
            Err(why) => {
                self.refuse(answer, why, Asked::Operation(operation));
                return true;
            }
        };
        if self.journaled.is_busy(&plan.places) {
            self.journaled.held.push(Held { answer, operation: octets_of(operation) });
            return true;
        }
        if !answer.kept().is_some() {
            return false;
        }
        self.intend(answer, plan, octets_of(operation));
        true
    }

    /// Looks at the names a request is about.
    fn plan(
        &mut self,
        answer: ReplyTo,
        operation: &Operation<'_>,
    ) -> Result<Option<Plan>, NotDone> {
        let by = self.caller(answer)?;
        if matches!(operation, Operation::Remove(_) | Operation::Rename(_) | Operation::Open(_)) {
            self.filer.may_take(by.party.client, self.life.now())?;
        }
        let mut files = self.files();
        let lookup =
            |directory: &FileHandle, name: &[u8]| match by.store().lookup(&by, directory, name) {
                Ok(object) => Ok(Some(object)),
                Err(StoreError::NotFound) => Ok(None),
                Err(error) => Err(Status::from(error)),
            };
        let plan = match operation {
            Operation::CreateNode(asked) => match lookup(&asked.directory, asked.name)? {
                Some(_) => return Err(Status::Exist.into()),
                None => {
                    let places = [place(&asked.directory, asked.name)];
                    Plan::new(Facts::NameFree, places, [asked.directory])
                }
            },
            Operation::Link(asked) => match lookup(&asked.directory, asked.name)? {
                Some(_) => return Err(Status::Exist.into()),
                None => {
                    files.touch(&by, &asked.source, Touch::Link)?;
                    let touched = [asked.directory, asked.source];
                    Plan::new(Facts::NameFree, [place(&asked.directory, asked.name)], touched)
                }
            },
            Operation::Remove(asked) => {
                let object = lookup(&asked.directory, asked.name)?.ok_or(Status::NoEnt)?;
                files.touch(&by, &object.handle, Touch::Remove)?;
                let facts = Facts::Victim(object.handle);
                Plan::new(facts, [place(&asked.directory, asked.name)], [asked.directory])
            }
            Operation::Rename(asked) => {
                let object = lookup(&asked.source, asked.old_name)?.ok_or(Status::NoEnt)?.handle;
                let replaced = lookup(&asked.target, asked.new_name)?.map(|object| object.handle);
                files.touch(&by, &object, Touch::Rename)?;
                if let Some(replaced) = &replaced {
                    files.touch(&by, replaced, Touch::Remove)?;
                }
                let places =
                    [place(&asked.source, asked.old_name), place(&asked.target, asked.new_name)];
                let touched = [asked.source, asked.target];
                Plan::new(Facts::Renames { object, replaced }, places, touched)
            }
            Operation::SetAttributes(asked) => {
                let truncate = changes_in(&asked.attributes)?.0.size == Some(0);
                files.touch(&by, &asked.file, Touch::SetAttributes { truncate })?;
                Plan::new(Facts::Attributes, [itself(&asked.file)], [asked.file])
            }
            Operation::Open(asked) => return files.plan_open(&by, asked),
            _ => return Ok(None),
        };
        Ok(Some(plan))
    }

    /// Writes the intent down; the request goes on once it is durable.
    fn intend(&mut self, answer: ReplyTo, plan: Plan, operation: Box<[u8]>) {
        let Some((key, order)) = self.request_key(answer) else {
            return self.fail(answer, Status::ServerFault);
        };
        let Plan { facts, places, touched } = plan;
        let who = self.who(answer).credentials.clone();
        let intent = Intent { key, who, facts, operation: operation.clone() };
        let mut answer = answer;
        answer.logged = true;
        let request = Intended::Request { answer, operation };
        self.write_intent(answer, order, intent, places, touched, request);
    }

    fn write_intent(
        &mut self,
        answer: ReplyTo,
        order: ByteOrder,
        intent: Intent,
        places: Places,
        touched: Touched,
        next: Intended,
    ) {
        let Some(ledger) = &mut self.ledger else { return };
        let key = intent.key;
        let record = Record::Intent(intent);
        let octets = record.encode();
        let requests = &mut self.journaled;
        requests.busy.extend(places.iter().cloned());
        let number = match requests.skips_intents {
            // Something must be written, or nothing would set the request going again.
            true => ledger.append(&Record::Abandoned(key)),
            false => ledger.append_octets(record.kind(), octets.clone()),
        };
        let endpoint = answer.endpoint;
        let running = Running { key, order, number, endpoint, intent: octets, places, touched };
        requests.running.insert((answer.kept(), answer.stream), running);
        requests.intended.push_back((number, next));
    }

    /// An append has its place: it goes on once that is durable.
    pub(crate) fn intend_append(
        &mut self,
        id: TaskId,
        answer: ReplyTo,
        asked: Append,
        offset: u64,
    ) {
        let Some((key, order)) = self.request_key(answer) else { return };
        let who = self.who(answer).credentials.clone();
        let facts = Facts::Appends { file: asked.file, offset, length: asked.length };
        let operation = octets_of(&Operation::Append(asked));
        let intent = Intent { key, who, facts, operation };
        let (places, touched) = (Places::new(), Touched::new());
        self.write_intent(answer, order, intent, places, touched, Intended::Task(id));
    }

    /// The request's name in the journal, and the byte order of its session.
    fn request_key(&self, answer: ReplyTo) -> Option<(RequestKey, ByteOrder)> {
        let record = self.filer.session_record(answer.kept())?;
        let request = self.filer.request_begun(answer.kept(), answer.stream)?;
        Some((RequestKey { session: record.id, request }, record.order))
    }

    // ---- carrying out ---------------------------------------------------------------

    /// Gives the next group away, if there is one.
    #[inline]
    pub(crate) fn push_ledger(&mut self) {
        let Some(ledger) = &mut self.ledger else { return };
        // Asked at each turn: a job is large, and is not to be moved about where there is none.
        if let Some(job) = self.journaled.take_sync(&self.whole_store) {
            self.pool.submit(Job::Ledger(job));
        }
        if let Some(job) = ledger.take_group() {
            self.pool.submit(Job::Ledger(job));
        }
    }

    /// Something is on stable storage, or never will be.
    pub(crate) fn on_ledger_done(&mut self, done: LedgerDone) {
        match done {
            LedgerDone::Group(done) => self.on_group_done(done),
            LedgerDone::Synced(Ok(())) => self.on_touched_synced(),
            LedgerDone::Synced(Err(error)) => self.life.fail(LedgerError::Store(error)),
        }
    }

    /// What operations have touched is on stable storage: their outcomes are written down, and
    /// they are answered. Nobody else changes their names before the outcomes are durable.
    fn on_touched_synced(&mut self) {
        for Unsynced { concluded, after, running } in std::mem::take(&mut self.journaled.syncing) {
            let Some(ledger) = &mut self.ledger else { return };
            let ended = running.ended(concluded.status, &concluded.octets);
            let number = ledger.append(&ended);
            self.journaled.cooling.push_back((number, running.places));
            self.conclude_after(after, concluded);
            self.filer.leave_fence(operation_of_intent(running.number));
        }
    }

    /// A group is durable, or never will be.
    fn on_group_done(&mut self, done: GroupDone) {
        let Some(ledger) = &mut self.ledger else { return };
        let durable = match ledger.on_group_done(done) {
            Ok(durable) => durable,
            Err(error) => return self.life.fail(error),
        };
        self.free_cooled(durable);
        self.checkpoint_if_due();
        self.advance_fences(durable);
        self.files().remove_undo(durable);
        while let Some(concluded) = self.next_concluded(durable) {
            self.deliver_concluded(concluded);
        }
        while let Some(intended) = self.next_intended(durable) {
            match intended {
                Intended::Task(id) => self.resume(id, None),
                Intended::Request { answer, operation } => {
                    self.take_up(answer, &SetAside::Operation(operation), None)
                }
            }
        }
    }

    fn next_concluded(&mut self, durable: RecordNumber) -> Option<Concluded> {
        let concluded = &mut self.journaled.concluded;
        concluded.front().filter(|(number, _)| *number <= durable)?;
        concluded.pop_front().map(|(_, concluded)| concluded)
    }

    fn next_intended(&mut self, durable: RecordNumber) -> Option<Intended> {
        let intended = &mut self.journaled.intended;
        intended.front().filter(|(number, _)| *number <= durable)?;
        intended.pop_front().map(|(_, intended)| intended)
    }

    /// Serves again what waited for names that are free now.
    fn serve_held(&mut self) {
        for Held { answer, operation } in std::mem::take(&mut self.journaled.held) {
            self.take_up(answer, &SetAside::Operation(operation), None);
        }
    }

    // ---- the end --------------------------------------------------------------------

    /// A request that is kept has an answer.
    pub(crate) fn conclude_kept(
        &mut self,
        answer: ReplyTo,
        told: ReplyStatus,
        octets: &[u8],
        message: Option<&[u8]>,
    ) {
        let ReplyStatus { status, after } = told;
        let name = (answer.kept(), answer.stream);
        let running = answer.logged.then(|| self.journaled.running.remove(&name)).flatten();
        let Some(running) = running else {
            if after.0 != 0 {
                let concluded = Concluded::new(answer, status, octets, message);
                return self.conclude_after(after, concluded);
            }
            self.keep(answer, status, octets);
            match message {
                // It has its grant.
                Some(message) if !answer.logged => self.send(answer.endpoint, message),
                message => self.send_if_any(answer, message),
            }
            return self.end_member(answer);
        };
        let mut concluded = Concluded::new(answer, status, octets, message);
        concluded.key = Some(running.key);
        if !is_failure(status) && !running.touched.is_empty() {
            return self.journaled.unsynced.push(Unsynced { concluded, after, running });
        }
        let Some(ledger) = &mut self.ledger else { return };
        let number = ledger.append(&running.ended(status, octets));
        let Running { number: intent, places, .. } = running;
        self.free_places(&places);
        if is_failure(status) {
            self.deliver_concluded(concluded);
        } else {
            self.conclude_after(number.max(after), concluded);
        }
        self.filer.leave_fence(operation_of_intent(intent));
        self.serve_held();
    }

    /// Names whose outcomes are durable are free.
    fn free_cooled(&mut self, durable: RecordNumber) {
        let mut is_any = false;
        while self.journaled.cooling.front().is_some_and(|(number, _)| *number <= durable)
            && let Some((_, places)) = self.journaled.cooling.pop_front()
        {
            self.free_places(&places);
            is_any = true;
        }
        if is_any {
            self.serve_held();
        }
    }

    /// Delivers an answer once a record is durable.
    fn conclude_after(&mut self, after: RecordNumber, concluded: Concluded) {
        match &mut self.ledger {
            Some(ledger) if after > ledger.log.durable() => {
                // What was appended last is durable last: the queue stays in order.
                let waiting = &mut self.journaled.concluded;
                let after = waiting.back().map_or(after, |(last, _)| after.max(*last));
                waiting.push_back((after, concluded));
            }
            _ => self.deliver_concluded(concluded),
        }
    }

    /// An answer of a session without a response cache waits for a record.
    #[cold]
    pub(crate) fn delay_answer(&mut self, answer: ReplyTo, after: RecordNumber, message: &[u8]) {
        let concluded = Concluded::new(answer, Status::Ok, &[], Some(message));
        self.conclude_after(after, concluded);
    }

    fn deliver_concluded(&mut self, concluded: Concluded) {
        let Concluded { answer, status, octets, message, .. } = concluded;
        if answer.kept().is_some() {
            self.keep(answer, status, &octets);
        }
        if self.channels.get(answer.endpoint).is_some() {
            self.send_if_any(answer, message.as_deref());
        }
        self.end_member(answer);
    }

    fn send_if_any(&mut self, answer: ReplyTo, message: Option<&[u8]>) {
        if let Some(message) = message {
            self.send_waited(answer, message);
        }
    }

    /// A request was not carried out, and whoever asks is told so: it can be asked anew.
    /// What is left of it is an answer that nothing is kept of.
    pub(crate) fn abandon(&mut self, answer: ReplyTo) -> ReplyTo {
        if !answer.kept().is_some() {
            return answer;
        }
        if let Some(ledger) = &mut self.ledger
            && let Some(running) = self.journaled.running.remove(&(answer.kept(), answer.stream))
        {
            ledger.append(&Record::Abandoned(running.key));
            self.filer.leave_fence(operation_of_intent(running.number));
            self.free_places(&running.places);
            self.serve_held();
        }
        if self.filer.end_unkept(answer.kept()) {
            self.ask_again();
        }
        let mut answer = answer;
        answer.logged = false;
        answer.keep_in(dafs_filer::KeptSession::NONE);
        answer
    }

    fn free_places(&mut self, places: &Places) {
        for place in places {
            self.journaled.busy.remove(place);
        }
    }

    /// A result whose connection is gone.
    #[cold]
    pub(crate) fn conclude_undelivered(
        &mut self,
        answer: ReplyTo,
        told: ReplyStatus,
        response: &Response<'_>,
    ) {
        let Some(order) = self.filer.session_record(answer.kept()).map(|record| record.order)
        else {
            return;
        };
        if is_failure(told.status) {
            // It may have failed because its connection did.
            self.abandon(answer);
            return;
        }
        // Nobody waits: room for the longest costs nothing here.
        let mut message = vec![0; dafs_types::limits::RESPONSE_BYTES_MAX];
        let header = blank(answer, told.status, 1);
        match encode_response(order, &header, response, &mut message) {
            Ok(length) => {
                self.conclude_kept(answer, told, &message[HEADER_BYTES..length], None);
            }
            Err(error) => {
                let told = ReplyStatus { status: error.status(), ..told };
                self.conclude_kept(answer, told, &[], None);
            }
        }
    }
}

impl Files<'_> {
    /// An OPEN is written down if it makes or truncates a file.
    fn plan_open(&mut self, by: &Caller, asked: &Open<'_>) -> Result<Option<Plan>, NotDone> {
        let Claim::Null { path } = &asked.claim else { return Ok(None) };
        let names: SmallVec<[&[u8]; 8]> = path.iter().collect();
        let Some((last, way)) = names.split_last() else { return Ok(None) };
        if !asked.creation.is_any() {
            return Ok(None);
        }
        let walked = self.walk(by, &asked.from, way);
        if walked.error.is_some() {
            // Carrying it out will say how far it got.
            return Ok(None);
        }
        match by.store().lookup(by, &walked.handle, last) {
            Err(StoreError::NotFound) => {
                let places = [(walked.handle, Box::from(*last))];
                Ok(Some(Plan::new(Facts::NameFree, places, [walked.handle])))
            }
            Ok(object) => {
                let changes = asked.creation.attributes().map(changes_in).transpose()?;
                let truncates = changes.is_some_and(|(changes, _)| changes.size == Some(0))
                    && matches!(asked.creation, Creation::Unchecked { .. })
                    && object.attributes.kind == ObjectType::Regular;
                let handle = object.handle;
                if truncates {
                    let (access, deny) = (asked.access, asked.deny);
                    self.touch(by, &handle, Touch::Open { access, deny, truncate: true })?;
                }
                let plan = || Plan::new(Facts::Truncates, [itself(&handle)], [handle]);
                Ok(truncates.then(plan))
            }
            Err(_) => Ok(None),
        }
    }
}

impl Running {
    /// How the request has ended, as it is written down: as an outcome, if there are words for it.
    fn ended(&self, status: Status, octets: &[u8]) -> Record {
        let key = self.key;
        match outcome_of(self.order, key.request.procedure, status, octets) {
            Some(outcome) => {
                let mut encoded = Vec::new();
                encode_outcome(&outcome, &mut encoded);
                Record::Outcome(Outcome { key, outcome: encoded.into() })
            }
            None => Record::Reply(Reply { key, status, octets: octets.into() }),
        }
    }
}

impl Concluded {
    fn new(answer: ReplyTo, status: Status, octets: &[u8], message: Option<&[u8]>) -> Self {
        let (octets, message) = (octets.into(), message.map(Box::from));
        Self { answer, key: None, status, octets, message }
    }
}

impl Plan {
    fn new<const N: usize, const M: usize>(
        facts: Facts,
        places: [Place; N],
        touched: [FileHandle; M],
    ) -> Self {
        Self { facts, places: places.into_iter().collect(), touched: touched.into_iter().collect() }
    }
}

/// A name in its directory.
fn place(directory: &FileHandle, name: &[u8]) -> Place {
    (*directory, name.into())
}

/// An object, under whatever name.
fn itself(object: &FileHandle) -> Place {
    (*object, Box::default())
}
