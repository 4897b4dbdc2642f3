//! The beginning and the end of an NFS member's session.
//!
//! Invariant: a member that was heard recently enough keeps its session, even if the server is
//! killed.

use dafs_nfs_wire::nfs4::session::{
    ChannelAttributes, CreateSessionArgs, CreateSessionDone, ExchangeIdArgs, SessionFlags,
};
use dafs_nfs_wire::nfs4::types::{ClientId, ClientOwner, Verifier};
use dafs_nfs_wire::nfs4::{Answer, Operation, Reply as Result4, Status as Status4};
use dafs_nfs_wire::xdr::{Opaque, Xdr};

use super::member::{NfsPhase, SLOTS};
use super::messages::{compound, next, results};
use crate::crash::world::World;

impl World {
    /// Begins a session, or goes on with the one that the member has.
    pub(super) fn on_nfs_up(&mut self, at: usize) {
        let epoch = self.epoch;
        let member = &mut self.nfs_members[at];
        member.epoch = epoch;
        match (member.phase, member.session) {
            (NfsPhase::Gone, _) => {}
            (_, Some(_)) => {
                member.phase = NfsPhase::Recovering;
                self.send_nfs_again(at);
            }
            (_, None) => self.exchange_id(at),
        }
    }

    pub(super) fn exchange_id(&mut self, at: usize) {
        let member = &mut self.nfs_members[at];
        member.phase = NfsPhase::Exchanging;
        let (owner, mut verifier) = (format!("member-{}", member.index), [7; 8]);
        verifier[..4].copy_from_slice(&member.deaths.to_le_bytes());
        let owner = ClientOwner { verifier: Verifier(verifier), owner: Opaque(owner.as_bytes()) };
        self.ask_nfs(at, &Operation::ExchangeId(ExchangeIdArgs { owner, ..<_>::default() }));
    }

    fn create_session(&mut self, at: usize, client: ClientId, sequence: u32) {
        self.nfs_members[at].phase = NfsPhase::Creating;
        let channel = ChannelAttributes {
            header_pad_bytes: 0,
            request_bytes_max: 4096,
            response_bytes_max: 4096,
            cached_bytes_max: 2048,
            operations_max: 32,
            requests_max: SLOTS as u32,
            rdma_reads: None,
        };
        self.ask_nfs(
            at,
            &Operation::CreateSession(CreateSessionArgs {
                client,
                sequence,
                flags: SessionFlags::PERSIST,
                fore: channel,
                back: channel,
                ..CreateSessionArgs::default()
            }),
        );
    }

    /// Sends an operation outside of a session.
    fn ask_nfs(&mut self, at: usize, operation: &Operation<'_>) {
        let member = &mut self.nfs_members[at];
        let xid = member.next_xid();
        member.asked = Some(xid);
        let record = compound(xid, |writer| {
            operation.encode(writer);
            1
        });
        member.line.send(&record, &mut self.random);
        self.asked += 1;
        let (index, phase) = (member.index, member.phase);
        self.note(|| format!("NFS member {index} asks, {phase:?}"));
    }

    /// Handles the reply to an operation outside of a session.
    pub(super) fn on_nfs_asked(&mut self, at: usize, record: &[u8]) -> Result<(), String> {
        let (xid, mut answers) = results(record)?;
        let answer = next(&mut answers)?.ok_or("a compound has no result")?;
        let member = &mut self.nfs_members[at];
        if member.asked.take() != Some(xid) {
            return Err(format!("NFS member {} has not sent call {xid}", member.index));
        }
        let (index, phase) = (member.index, member.phase);
        match (phase, answer) {
            (NfsPhase::Exchanging, Answer::ExchangeId(Result4::Ok(done))) => {
                member.client = Some(done.client);
                self.create_session(at, done.client, done.sequence);
            }
            (NfsPhase::Creating, Answer::CreateSession(Result4::Ok(done))) => {
                return self.on_nfs_session(at, &done);
            }
            (NfsPhase::Leaving, answer) => return self.on_nfs_left(at, answer.status()),
            // The server was killed after EXCHANGE_ID, or another session was made meanwhile.
            (NfsPhase::Creating, answer)
                if matches!(answer.status(), Status4::StaleClientId | Status4::SeqMisordered) =>
            {
                self.exchange_id(at);
            }
            // A member that has died waits until the server has ended the requests of its former
            // instance.
            (_, answer) if answer.status() == Status4::Delay => member.hang_up(),
            (phase, answer) => {
                return Err(format!("NFS member {index} got {answer:?}, {phase:?}"));
            }
        }
        Ok(())
    }

    fn on_nfs_session(&mut self, at: usize, done: &CreateSessionDone) -> Result<(), String> {
        let member = &mut self.nfs_members[at];
        let (index, slots) = (member.index, done.fore.requests_max);
        if slots as usize != SLOTS || !done.flags.contains(SessionFlags::PERSIST) {
            return Err(format!("NFS member {index} got {done:?}"));
        }
        member.session = Some(done.session);
        if member.is_leaving {
            member.phase = NfsPhase::Leaving;
            self.ask_nfs(at, &Operation::DestroySession(done.session));
            return Ok(());
        }
        member.phase = NfsPhase::Recovering;
        self.report.nfs_sessions += 1;
        self.note(|| format!("NFS member {index} has a session"));
        Ok(())
    }

    /// Ends the sessions and the client id of a member, which must be idle. The member first begins
    /// a session as another instance of the client, which ends all sessions of the former one, even
    /// those whose CREATE_SESSION had no reply.
    pub(in crate::crash) fn leave_nfs(&mut self, at: usize) {
        let member = &mut self.nfs_members[at];
        member.is_leaving = true;
        member.deaths += 1;
        member.session = None;
        self.exchange_id(at);
    }

    fn on_nfs_left(&mut self, at: usize, status: Status4) -> Result<(), String> {
        let member = &mut self.nfs_members[at];
        match (member.session.take(), member.client, status) {
            (Some(_), Some(client), Status4::Ok) => {
                self.ask_nfs(at, &Operation::DestroyClientId(client));
                Ok(())
            }
            (None, _, Status4::Ok) => {
                member.line.hang_up();
                member.phase = NfsPhase::Gone;
                Ok(())
            }
            (_, _, status) => Err(format!("NFS member {} cannot leave: {status:?}", member.index)),
        }
    }
}
