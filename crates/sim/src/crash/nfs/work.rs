//! The requests of NFS members: they are chosen, sent, sent again without a change, and ended by
//! their replies.
//!
//! Invariant: a request that is sent again has the same slot, number and operations.

use dafs_nfs_wire::nfs4::session::SequenceArgs;
use dafs_nfs_wire::nfs4::{Answer, Operation, Reply as Result4, Status as Status4};
use dafs_nfs_wire::xdr::{Writer, Xdr};
use dafs_types::{FileHandle, Stability, Status};

use super::line::LineEvent;
use super::member::{Asks, Flight, NfsPhase, SLOTS};
use super::messages::{self, Handles, Told, next, reply_of, results};
use crate::crash::cells::CellRange;
use crate::crash::requests::{File, MemberRequest, Reply};
use crate::crash::world::World;
use crate::operation::NameOperation;

impl World {
    /// Runs one turn of an NFS member.
    pub(in crate::crash) fn turn_nfs(&mut self, at: usize) -> Result<(), String> {
        for event in self.nfs_members[at].line.take() {
            match event {
                LineEvent::Up => self.on_nfs_up(at),
                LineEvent::Record(record) => self.on_nfs_record(at, &record)?,
                LineEvent::Down => {
                    let member = &mut self.nfs_members[at];
                    member.hang_up();
                    let index = member.index;
                    self.note(|| format!("NFS member {index} has lost its connection"));
                }
            }
        }
        let (now_ns, epoch) = (self.network.now_ns(), self.epoch);
        let member = &mut self.nfs_members[at];
        match member.phase {
            NfsPhase::Away if !self.stops_reconnecting && self.random.percent(25) => {
                member.line.connect();
                member.phase = NfsPhase::Connecting;
            }
            NfsPhase::Recovering if member.flights.is_empty() && member.patient_ns <= now_ns => {
                match member.settled == Some(epoch) {
                    true => member.phase = NfsPhase::Here,
                    false => self.send_nfs(at, Asks::Settle),
                }
            }
            NfsPhase::Here | NfsPhase::Recovering => self.send_nfs_delayed(at),
            _ => {}
        }
        Ok(())
    }

    /// Makes an NFS member send a request, with some probability.
    pub(in crate::crash) fn begin_nfs(&mut self, at: usize) {
        let member = &self.nfs_members[at];
        let is_patient = member.patient_ns > self.network.now_ns();
        if member.phase != NfsPhase::Here || is_patient || !self.random.percent(45) {
            return;
        }
        let asks = match self.random.below(100) {
            0..55 => {
                let mut asks: Vec<_> = self.choose_name().into_iter().collect();
                // Two changes in one compound have an intent each.
                if self.random.percent(30) {
                    asks.extend(self.choose_name());
                }
                asks
            }
            55..73 => {
                let stability = match self.random.below(4) {
                    0 => Stability::DataSync,
                    1 => Stability::FileSync,
                    _ => Stability::Unstable,
                };
                let run = self.any_nfs_run();
                vec![MemberRequest::Write { id: 0, run, stability, is_direct: false }]
            }
            73..77 => vec![MemberRequest::Commit { file: File::Data }],
            77..88 => vec![MemberRequest::Read { run: self.any_nfs_run() }],
            88..93 => vec![MemberRequest::SetSize { id: 0 }],
            93..96 => vec![MemberRequest::Size],
            _ => return self.send_nfs(at, Asks::Renew),
        };
        if !asks.is_empty() {
            self.send_nfs(at, Asks::Work(asks.into_iter().map(|ask| (0, ask)).collect()));
        }
    }

    fn any_nfs_run(&mut self) -> CellRange {
        CellRange { file: File::Data, ..self.any_run() }
    }

    /// Sends a request if a slot is free.
    pub(super) fn send_nfs(&mut self, at: usize, asks: Asks) {
        let member = &self.nfs_members[at];
        let free: Vec<u32> =
            (0..SLOTS as u32).filter(|slot| !member.flights.contains_key(slot)).collect();
        if free.is_empty() {
            return;
        }
        let (slot, index) = (free[self.random.below(free.len())], member.index);
        let asks = match asks {
            Asks::Work(asks) => {
                Asks::Work(asks.into_iter().map(|ask| self.begun(index, ask.1)).collect())
            }
            other => other,
        };
        let operations = self.operations_of(&asks);
        let member = &mut self.nfs_members[at];
        member.sequences[slot as usize] += 1;
        let (sequence, xid) = (member.sequences[slot as usize], 0);
        let (epoch, servers, again_ns) = (member.epoch, 0, None);
        let flight = Flight { sequence, xid, asks, operations, epoch, servers, again_ns };
        member.flights.insert(slot, flight);
        self.transmit_nfs(at, slot);
    }

    /// Registers a request with the checker. Returns it with its number.
    fn begun(&mut self, index: usize, ask: MemberRequest) -> (u64, MemberRequest) {
        self.number += 1;
        let ask = self.named(ask);
        self.judge.begin(self.number, index, &ask);
        (self.number, ask)
    }

    fn operations_of(&self, asks: &Asks) -> (Vec<u8>, u32) {
        let mut writer = Writer::new();
        let mut count = 0;
        match asks {
            Asks::Renew => {}
            Asks::Settle => {
                Operation::ReclaimComplete(false).encode(&mut writer);
                count = 1;
            }
            Asks::Work(asks) => {
                for (_, ask) in asks {
                    count += self.encode_nfs(ask, &mut writer);
                }
            }
        }
        (writer.bytes().to_vec(), count)
    }

    fn encode_nfs(&self, ask: &MemberRequest, writer: &mut Writer) -> u32 {
        let file = match ask {
            MemberRequest::Names { operation: NameOperation::Link { file, .. }, .. } => {
                self.judge.handle_of(*file)
            }
            _ => FileHandle::NULL,
        };
        let handles = Handles { directories: &self.directories, files: &self.files, file };
        messages::encode(ask, &handles, writer)
    }

    /// Sends the request of a slot, for the first time or again.
    fn transmit_nfs(&mut self, at: usize, slot: u32) {
        let member = &mut self.nfs_members[at];
        let highest_slot = member.flights.keys().max().copied().unwrap_or(slot);
        let (xid, epoch, session) = (member.next_xid(), member.epoch, member.session);
        let (Some(flight), Some(session)) = (member.flights.get_mut(&slot), session) else {
            return;
        };
        flight.xid = xid;
        flight.again_ns = None;
        let is_other = flight.epoch != epoch;
        flight.servers += u32::from(flight.servers == 0 || is_other);
        flight.epoch = epoch;
        // Until here, a late reply of the previous server may have ended the request.
        for id in flight.asks.writes().into_iter().filter(|_| is_other) {
            self.judge.cells.repeat(id);
        }
        let sequence = flight.sequence;
        let asked = SequenceArgs { session, sequence, slot, highest_slot, cache_this: true };
        let (operations, count) = &flight.operations;
        let record = messages::compound(xid, |writer| {
            Operation::Sequence(asked).encode(writer);
            writer.raw(operations);
            1 + count
        });
        let text = format!("{:?}", flight.asks);
        member.line.send(&record, &mut self.random);
        let index = member.index;
        self.asked += 1;
        self.note(|| format!("{xid} at NFS member {index}, {slot}.{sequence}: {text}"));
    }

    /// Sends all requests without a reply again, on a new connection.
    pub(super) fn send_nfs_again(&mut self, at: usize) {
        let slots: Vec<u32> = self.nfs_members[at].flights.keys().copied().collect();
        for slot in slots {
            self.report.nfs_repeats += 1;
            self.transmit_nfs(at, slot);
        }
    }

    /// Sends the requests again that the server was still executing.
    fn send_nfs_delayed(&mut self, at: usize) {
        let now_ns = self.network.now_ns();
        let is_due = |flight: &Flight| flight.again_ns.is_some_and(|again_ns| again_ns <= now_ns);
        let flights = self.nfs_members[at].flights.iter();
        let due: Vec<u32> =
            flights.filter(|(_, flight)| is_due(flight)).map(|(slot, _)| *slot).collect();
        for slot in due {
            self.transmit_nfs(at, slot);
        }
    }

    // ---- replies --------------------------------------------------------------------

    fn on_nfs_record(&mut self, at: usize, record: &[u8]) -> Result<(), String> {
        let member = &mut self.nfs_members[at];
        let was_fresh = self.network.now_ns() - member.heard_ns < self.plan.lease_ns / 2;
        member.heard_ns = self.network.now_ns();
        if matches!(member.phase, NfsPhase::Exchanging | NfsPhase::Creating | NfsPhase::Leaving) {
            return self.on_nfs_asked(at, record);
        }
        let xid = record.first_chunk().map_or(0, |xid| u32::from_be_bytes(*xid));
        let flights = member.flights.iter();
        let slot = flights.clone().find(|(_, flight)| flight.xid == xid).map(|(slot, _)| *slot);
        let Some((slot, flight)) =
            slot.and_then(|slot| Some((slot, member.flights.remove(&slot)?)))
        else {
            return Err(format!("NFS member {} has not sent call {xid}", member.index));
        };
        let index = member.index;
        let text = format!("{:?} at NFS member {index}", flight.asks);
        let failed = |what| format!("{text}: {what}");
        let (status, told) = told_of(record, &flight).map_err(failed)?;
        self.note(|| format!("{xid} is answered to NFS member {index}: {status:?}, {told:?}"));
        match status {
            Status4::Ok => self.on_nfs_told(at, flight, told),
            // The server is still executing the request.
            Status4::Delay => {
                let again_ns = Some(self.network.now_ns() + PATIENCE_NS);
                let flight = Flight { again_ns, ..flight };
                self.nfs_members[at].flights.insert(slot, flight);
                Ok(())
            }
            Status4::BadSession | Status4::DeadSession if !was_fresh => {
                self.nfs_members[at].flights.insert(slot, flight);
                self.lose_nfs_session(at);
                Ok(())
            }
            status => Err(failed(format!("{status:?}"))),
        }
    }

    /// Begins again without a session, after the lease has expired. The outcomes of the requests
    /// without replies will never be known.
    fn lose_nfs_session(&mut self, at: usize) {
        let member = &mut self.nfs_members[at];
        let (node, index, lost) = (member.node(), member.index, member.forget_session());
        member.client = None;
        member.hang_up();
        self.note(|| format!("NFS member {index} has lost its session"));
        self.orphan(node, lost);
    }

    /// Restarts an NFS member, which loses all its memory.
    pub(in crate::crash) fn kill_nfs_member(&mut self, at: usize) {
        let member = &mut self.nfs_members[at];
        let (node, index, lost) = (member.node(), member.index, member.die());
        self.note(|| format!("trouble: NFS member {index} dies"));
        self.report.deaths += 1;
        self.orphan(node, lost);
    }

    fn on_nfs_told(&mut self, at: usize, flight: Flight, told: Vec<Told>) -> Result<(), String> {
        let now_ns = self.network.now_ns();
        let asks = match flight.asks {
            Asks::Renew => return Ok(()),
            Asks::Settle => {
                self.nfs_members[at].settled = Some(flight.epoch);
                return Ok(());
            }
            Asks::Work(asks) => asks,
        };
        for ((number, ask), told) in asks.into_iter().zip(told) {
            let is_refused =
                matches!(told, Told::Later | Told::Reply(Reply::Status(Status::Grace)));
            if is_refused {
                self.nfs_members[at].patient_ns = now_ns + PATIENCE_NS;
            }
            if flight.servers > 1 && matches!(told, Told::Reply(_)) {
                self.report.nfs_recovered += 1;
            }
            let is_write = matches!(ask, MemberRequest::Write { .. });
            match told {
                // The previous server may have executed the write, whose result is not journaled.
                _ if is_refused && is_write && flight.servers > 1 => self.judge.settle(number)?,
                Told::Reply(reply) => {
                    if matches!(ask, MemberRequest::Read { .. }) {
                        self.note_absence();
                    }
                    self.judge.end(number, &reply)?;
                }
                Told::Later | Told::Unreached => self.judge.cancel(number)?,
            }
        }
        Ok(())
    }
}

/// Decodes the results of a request: the status of its SEQUENCE, and what is told about each of the
/// requests in it.
fn told_of(record: &[u8], flight: &Flight) -> Result<(Status4, Vec<Told>), String> {
    let (_, mut answers) = results(record)?;
    match next(&mut answers)?.ok_or("a compound has no result")? {
        Answer::Sequence(Result4::Ok(_)) => {}
        other => return Ok((other.status(), Vec::new())),
    }
    let asks = match &flight.asks {
        Asks::Work(asks) => asks,
        Asks::Renew => return Ok((Status4::Ok, Vec::new())),
        Asks::Settle => {
            return match next(&mut answers)?.map(|answer| answer.status()) {
                // The request was executed twice, by two servers.
                Some(Status4::Ok | Status4::CompleteAlready) => Ok((Status4::Ok, Vec::new())),
                other => Err(format!("RECLAIM_COMPLETE got {other:?}")),
            };
        }
    };
    let (mut told, mut is_reached) = (Vec::new(), true);
    for (_, ask) in asks {
        let one = match is_reached {
            true => reply_of(ask, &mut answers)?,
            false => Told::Unreached,
        };
        is_reached = matches!(&one, Told::Reply(reply) if !matches!(reply, Reply::Status(_)));
        told.push(one);
    }
    Ok((Status4::Ok, told))
}

/// The time in nanoseconds that a member waits before it repeats a request that was refused.
const PATIENCE_NS: u64 = 3_000_000;
