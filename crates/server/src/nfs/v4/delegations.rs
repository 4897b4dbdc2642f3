//! Delegations of NFS clients, which are in the same table of the filer as those of DAFS clients.
//!
//! The filer decides who gets a delegation and when it is recalled or revoked. This file gives
//! delegations their state ids, and passes recalls to the back channel.
//!
//! Invariant: each delegation of the filer that belongs to a client of version 4 has one entry in
//! [`States::delegations`](super::states::States) and one state id.

use dafs_nfs_state::{FileNumber, KindSet, ReferringCall, Revocation};
use dafs_nfs_wire::nfs4::attribute_types::{Ace, AceFlags, AceRights, AceType};
use dafs_nfs_wire::nfs4::open::{
    BlockLimit, Delegation as Shown, NoDelegation, ReadDelegation, ShareAccess as Asked,
    SpaceLimit as ShownLimit, WriteDelegation,
};
use dafs_nfs_wire::nfs4::{Answer, StateId as Wire, Status};
use dafs_nfs_wire::xdr::Opaque;
use dafs_ops::{Delegated, Delegation};
use dafs_types::{ClientId, FileHandle, ShareAccess, SpaceLimit, StateId};

use super::compound::Service;
use super::convert::status_of;
use super::fault::Result;
use super::recalls::Recall;
use super::state::State;
use super::states::{DelegationState, wire_of};
use super::waiting::Did;
use crate::guests::table::GuestNotice;
use crate::reactor::Reactor;

impl Service<'_, '_, '_> {
    /// Returns true if an OPEN may be granted a delegation: the client does not refuse it, and the
    /// server can recall it.
    pub(super) fn may_delegate(&self, asked: Asked, access: ShareAccess) -> bool {
        let is_wanted = match Asked(asked.0 & Asked::WANT_DELEG_MASK.0) {
            Asked::WANT_NO_DELEG | Asked::WANT_CANCEL => false,
            // The filer grants a delegation for writing to every open for writing.
            Asked::WANT_READ_DELEG => !access.writes(),
            _ => true,
        };
        is_wanted
            && self.nfs_client().is_ok_and(|client| self.desk.v4.machine.has_back_channel(client))
    }

    /// Gives a new delegation its state id. Returns the delegation in the form of messages, or the
    /// reason why the open has none, if the client has asked for it.
    pub(super) fn show_delegation(
        &mut self,
        file: &FileHandle,
        granted: Option<&Delegation>,
        wishes: Asked,
    ) -> Shown<'static> {
        if let Some(granted) = granted
            && let Ok(shown) = self.note_delegation(file, granted)
        {
            return shown;
        }
        match Asked(wishes.0 & Asked::WANT_DELEG_MASK.0) {
            Asked(0) => Shown::None,
            Asked::WANT_NO_DELEG => Shown::Refused(NoDelegation::NotWanted),
            Asked::WANT_CANCEL => Shown::Refused(NoDelegation::Cancelled),
            _ => Shown::Refused(NoDelegation::Contention(false)),
        }
    }

    fn note_delegation(
        &mut self,
        file: &FileHandle,
        granted: &Delegation,
    ) -> Result<Shown<'static>> {
        let (client, nfs_client) = (self.client()?, self.nfs_client()?);
        let (number, state) = (granted.state.0, granted.state);
        let noted = self.desk.v4.machine.delegated(nfs_client, FileNumber(number), number);
        let client_id = self.reactor.shared.filer.client_id(client);
        let (Ok((key, id)), Some(client_id)) = (noted, client_id) else {
            let now = self.reactor.shared.life.now();
            // There is no room for the state id, so the delegation ends.
            let _ = self.reactor.shared.filer.return_delegation(client, state, now);
            return Err(Status::Delay);
        };
        let request = self.c.request.as_ref().map(|admitted| admitted.reply);
        let granted_by = request.map(|reply| ReferringCall {
            session: reply.session,
            slot: reply.slot,
            sequence: reply.sequence,
        });
        let entry = DelegationState {
            client,
            client_id,
            nfs_client,
            key,
            file: *file,
            granted: granted_by,
            change: None,
        };
        if let Delegated::Write { .. } = granted.delegated {
            self.desk.v4.states.latest = Some(state);
        }
        self.desk.v4.states.delegations.insert(state, entry);
        self.reactor.shared.channels.guests_mut().expect_notices(client_id);
        let (state, recall) = (wire_of(id), granted.recall);
        // The entry grants no rights, so the client asks the server for the rights of each user.
        let permissions = Ace {
            kind: AceType::ALLOW,
            flags: AceFlags(0),
            rights: AceRights(0),
            who: Opaque(b"EVERYONE@"),
        };
        Ok(match granted.delegated {
            Delegated::Read => Shown::Read(ReadDelegation { state, recall, permissions }),
            Delegated::Write { limit } => {
                let space = match limit {
                    SpaceLimit::Size(bytes) => ShownLimit::Size(bytes),
                    SpaceLimit::Blocks { count, block_bytes } => {
                        ShownLimit::Blocks(BlockLimit { count, block_bytes })
                    }
                };
                Shown::Write(WriteDelegation { state, recall, space, permissions })
            }
        })
    }

    /// Returns the filer's state id of a delegation that a client names. Fails if the delegation is
    /// not for this file.
    pub(super) fn delegation_of(&self, given: &Wire, file: Option<&FileHandle>) -> Result<StateId> {
        let state = StateId(self.state(given, KindSet::DELEGATION)?.inner);
        let found = self.desk.v4.states.delegations.get(&state).ok_or(Status::BadStateId)?;
        match file.is_none_or(|file| *file == found.file) {
            true => Ok(state),
            false => Err(Status::BadStateId),
        }
    }

    pub(super) fn return_delegation(&mut self, given: Wire) -> Result<Did> {
        let file = self.current()?;
        let state = self.delegation_of(&given, Some(&file))?;
        let (client, now) = (self.client()?, self.reactor.shared.life.now());
        let shared = &mut *self.reactor.shared;
        let returned = shared.filer.return_delegation(client, state, now);
        shared.loans.files().end(&mut shared.filer, state);
        self.desk.v4.end_delegation(state);
        returned.map_err(status_of)?;
        self.push(&Answer::DelegReturn(Status::Ok))
    }
}

impl State {
    /// Ends the state id of a delegation that has ended.
    pub(super) fn end_delegation(&mut self, state: StateId) {
        if let Some(delegation) = self.states.delegations.remove(&state) {
            self.machine.ended(delegation.key);
        }
    }

    /// Handles what NFS clients must be told about their delegations and locks.
    pub(in crate::nfs) fn take_notices(&mut self, reactor: &mut Reactor<'_>) {
        while let Some(notice) = reactor.shared.channels.guests_mut().next_notice() {
            match notice {
                GuestNotice::Recall { state, truncate } => self.recall(reactor, state, truncate),
                GuestNotice::AskAttributes { client, file, waiter } => {
                    self.ask_attributes(reactor, client, &file, waiter);
                }
                GuestNotice::Revoked { client, file } => self.revoked(client, &file),
                GuestNotice::LockFree { owner, file, word } => {
                    self.tell_of_lock(reactor, word, &owner, file);
                }
            }
        }
    }

    fn recall(&mut self, reactor: &mut Reactor<'_>, state: StateId, truncate: bool) {
        // A delegation that has ended needs no recall.
        let Some(found) = self.states.delegations.get(&state) else { return };
        let Some(id) = self.machine.state_id(found.key) else { return };
        let (client, file) = (found.client_id, found.file);
        let recall = Recall { client, state, shown: wire_of(id), file, truncate };
        let (nfs_client, granted) = (found.nfs_client, found.granted);
        self.queue_recall(reactor, nfs_client, recall, granted);
    }

    fn revoked(&mut self, client: ClientId, file: &FileHandle) {
        let all = self.states.delegations.values();
        let mut found = all.filter(|held| held.client_id == client && held.file == *file);
        if let Some(key) = found.next().map(|held| held.key) {
            self.machine.revoke_state(key, Revocation::NotReturned);
        }
    }
}
