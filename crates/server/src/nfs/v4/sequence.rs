//! The operation SEQUENCE, which begins a request of a session, and the identities of senders.

use std::net::IpAddr;

use dafs_files::defect::Defect;
use dafs_gss::Protection;
use dafs_nfs_state::{
    Caller as Asker, ConnectionId, NfsState, PeerId, Principal, SequenceAsk, SequenceReply,
    Sequenced, Service as RequestService, SessionId4,
};
use dafs_nfs_wire::nfs4::session::{SequenceArgs, SequenceDone, SequenceStatus};
use dafs_nfs_wire::nfs4::types::SessionId;
use dafs_nfs_wire::nfs4::{Answer, Reply, Status};

use super::compound::{Service, Stop};
use super::convert::status_of_machine;
use super::journaled::Journaled;
use super::waiting::{Did, Sender};
use crate::nfs::calls;
use crate::nfs::users::User;

impl Service<'_, '_, '_> {
    pub(super) fn sequence(
        &mut self,
        asked: &SequenceArgs,
        rest: &[u8],
    ) -> std::result::Result<Did, Stop> {
        let ask = SequenceAsk {
            session: SessionId4(asked.session.0),
            sequence: asked.sequence,
            slot: asked.slot,
            highest_slot: asked.highest_slot,
            must_keep: asked.cache_this,
            checksum: checksum_of(&self.c.sender, rest),
            operation_count: self.c.call.count,
            request_bytes: self.c.call.bytes,
        };
        let now = self.reactor.shared.life.now();
        let principal = principal_of(&self.c.sender);
        let asker = asker_of(&self.c.sender, &principal);
        self.enter_restored(ask.session).map_err(Stop::Failed)?;
        let defect = self.reactor.own.defect;
        let machine = &mut self.desk.v4.machine;
        let sequenced = match defect.and_then(|defect| sequence_wrongly(machine, defect, &ask)) {
            Some(wrong) => Ok(wrong),
            None => machine.sequence(&ask, &asker, now),
        };
        let sequenced = sequenced.map_err(|error| Stop::Failed(status_of_machine(error)))?;
        let is_resumed = matches!(sequenced, Sequenced::Resume(_));
        let admitted = match sequenced {
            Sequenced::New(admitted) | Sequenced::Resume(admitted) => admitted,
            Sequenced::Repeat(key) => {
                let kept = self.desk.v4.machine.kept_reply(key);
                let kept = kept.ok_or(Stop::Failed(Status::ServerFault))?;
                calls::begin(self.desk.writer, self.c.id.xid);
                self.desk.writer.raw(kept);
                return Err(Stop::Replied);
            }
            Sequenced::RepeatNotKept(reply) => {
                self.push_sequence(&reply);
                return Err(Stop::FailNext(Status::RetryUncachedRep));
            }
        };
        let limit = match admitted.must_keep {
            true => admitted.kept_bytes_max.min(admitted.reply_bytes_max),
            false => admitted.reply_bytes_max,
        };
        self.c.request = Some(admitted);
        if admitted.is_persistent {
            self.c.journaled = Some(Journaled::new(ask.checksum));
        }
        if !is_resumed || !self.resume_request(&admitted) {
            self.push_sequence(&admitted.reply);
            if is_resumed {
                return Err(Stop::FailNext(Status::RetryUncachedRep));
            }
        }
        self.desk.writer.set_limit(limit as usize);
        let client = self.desk.v4.clients.get(&admitted.client).copied();
        let user = client.and_then(|client| {
            let Sender { peer, credentials, .. } = self.c.sender.clone();
            self.desk.users.admit(self.reactor.shared, client, &User { peer, credentials })
        });
        if let Some(user) = user {
            self.c.id.user = user;
            self.c.by = self.reactor.shared.channels.guests().get(user).map(|guest| guest.caller());
        }
        Ok(Did::Written)
    }

    pub(super) fn push_sequence(&mut self, reply: &SequenceReply) {
        let done = SequenceDone {
            session: SessionId(reply.session.0),
            sequence: reply.sequence,
            slot: reply.slot,
            highest_slot: reply.highest_slot,
            target_highest_slot: reply.target_highest_slot,
            status: SequenceStatus(reply.status_flags),
        };
        // There is always room for this result, because the smallest limit of a session includes
        // it.
        let _ = self.push(&Answer::Sequence(Reply::Ok(done)));
    }
}

/// Returns what a server with this defect decides on a request. `None` if it decides as it should.
fn sequence_wrongly(
    machine: &mut NfsState,
    defect: Defect,
    ask: &SequenceAsk,
) -> Option<Sequenced> {
    match defect {
        Defect::ExecuteRepeats => machine.execute_repeat(ask).map(Sequenced::New),
        Defect::CompareNoSequence => machine.kept_for(ask).map(Sequenced::Repeat),
        _ => None,
    }
}

/// Returns the identity that a client's state belongs to.
pub(super) fn principal_of(sender: &Sender) -> Principal {
    if let Some(proof) = &sender.proof {
        return Principal::Gss(proof.user.principal.as_bytes().into());
    }
    match sender.has_credentials {
        true => Principal::System(sender.credentials.uid()),
        false => Principal::Nobody,
    }
}

/// Describes the sender in the form that [`dafs_nfs_state`] needs.
pub(super) fn asker_of<'a>(sender: &Sender, principal: &'a Principal) -> Asker<'a> {
    Asker {
        principal,
        service: sender.proof.as_ref().map_or(RequestService::Plain, |proof| {
            match proof.seal.protection {
                Protection::Authentication => RequestService::Plain,
                Protection::Integrity => RequestService::Integrity,
                Protection::Privacy => RequestService::Privacy,
            }
        }),
        connection: ConnectionId(sender.link.to_bits()),
        peer: peer_of(sender.peer.address),
    }
}

/// Returns the number that stands for a host.
pub(in crate::nfs) fn peer_of(address: IpAddr) -> PeerId {
    PeerId(match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        // A host can choose the last 64 bits of its address, so only the first 64 bits identify it.
        IpAddr::V6(address) => address.to_bits() >> 64 << 64,
    })
}

/// Returns a checksum of a request: of its credential, and of the first [`CHECKSUM_BYTES`] bytes of
/// the operations after the SEQUENCE. The journal contains checksums, so they must stay the same in
/// later versions of the server.
fn checksum_of(sender: &Sender, operations: &[u8]) -> u64 {
    let Sender { credentials, has_credentials, proof, .. } = sender;
    let mut sum = crc32c::crc32c(&[u8::from(*has_credentials)]);
    if let Some(proof) = proof {
        sum = crc32c::crc32c_append(sum, proof.user.principal.as_bytes());
    }
    let ids = [credentials.uid(), credentials.gid()];
    for number in ids.iter().chain(credentials.groups()) {
        sum = crc32c::crc32c_append(sum, &number.to_be_bytes());
    }
    let covered = &operations[..operations.len().min(CHECKSUM_BYTES)];
    let sum = crc32c::crc32c_append(sum, covered);
    u64::from(sum) << 32 | operations.len() as u64 & u64::from(u32::MAX)
}

/// The maximum number of bytes that a checksum covers. This includes names and handles, but only
/// the start of the data of a WRITE.
const CHECKSUM_BYTES: usize = 1024;
