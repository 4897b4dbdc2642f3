//! Chains on channels other than the first.
//!
//! Invariant: a chain uses an additional channel only if it opens an existing file, reads from it
//! and closes it. No other request uses that open, so that the chain can be run again from its
//! start after a restart of the server.

use dafs_types::{ShareDeny, Status};
use dafs_wire::messages::{Open, OpenCreation, OpenTarget};
use dafs_wire::{ByteOrder, ChainFlags, Procedure, Request, Response, decode_request};

use crate::chain::work::{ChainMember, ChainWork, SharedChain};
use crate::core::Core;
use crate::ids::SessionKey;
use crate::impersonation::acting_in;

impl Core {
    /// Chooses the channel for a chain: the one with the fewest requests in flight.
    pub(crate) fn channel_for_chain(&self, first: SessionKey, chain: &SharedChain) -> SessionKey {
        if !chain.borrow().is_self_contained() {
            return first;
        }
        let parts = self.sessions[first].role.parts();
        let load = |key: &SessionKey| {
            let session = self.sessions.get(*key)?;
            let outstanding = session.in_flight.credits.outstanding();
            session.is_open().then(|| (session.in_flight.has_waiting(), outstanding))
        };
        let loads = parts.iter().filter_map(|key| Some((load(key)?, *key)));
        loads.min_by_key(|(load, _)| *load).map_or(first, |(_, key)| key)
    }

    /// Hands the open of a chain that ran on another channel to the session, if a member after the
    /// OPEN failed and left it open.
    pub(crate) fn hand_over_opens(
        &mut self,
        first: SessionKey,
        key: SessionKey,
        chain: &SharedChain,
    ) {
        let mut chain = chain.borrow_mut();
        if chain.members.iter().all(|member| member.status == Some(Status::Ok)) {
            return;
        }
        if let (Some(machine), Some(state)) = (&mut self.sessions[key].recovery, chain.opened()) {
            machine.opens_mut().forget(state);
        }
        chain.members.iter_mut().for_each(|member| member.is_noted = false);
        if let Some(machine) = &mut self.sessions[first].recovery {
            chain.note(machine.opens_mut());
        }
    }
}

impl ChainWork {
    /// Returns true if the chain opens an existing file with the client's own credentials, without
    /// denying access to other clients, then reads from the file and closes it.
    pub(crate) fn is_self_contained(&self) -> bool {
        let [open, looks @ .., close] = &self.members[..] else { return false };
        let uses_it = |member: &ChainMember| {
            member.planned.contains(ChainFlags::FILE_HANDLE)
                && (member.procedure.chained_state_at().is_none()
                    || member.planned.contains(ChainFlags::STATE_ID))
        };
        let looks_at_it = |member: &ChainMember| {
            let looks = matches!(
                member.procedure,
                Procedure::ReadDirect | Procedure::ReadInline | Procedure::GetAttrInline
            );
            looks && uses_it(member)
        };
        open.procedure == Procedure::Open
            && close.procedure == Procedure::Close
            && uses_it(close)
            && looks.iter().all(looks_at_it)
            && self.opens_without_excluding()
    }

    fn opens_without_excluding(&self) -> bool {
        let message = &self.bytes[self.members[0].message.clone()];
        let Ok((_, Request::Open(open))) = decode_request(ByteOrder::NATIVE, message) else {
            return false;
        };
        let Open { target, creation, deny, key, .. } = open;
        matches!(target, OpenTarget::Null { .. })
            && matches!(creation, OpenCreation::NoCreate)
            && deny == ShareDeny::None
            && key.is_none()
            && acting_in(message).is_none()
    }

    /// Returns the state id of the chain's OPEN.
    fn opened(&self) -> Option<dafs_types::StateId> {
        match self.response(0) {
            Some(Response::Open(opened)) => Some(opened.state),
            _ => None,
        }
    }
}
