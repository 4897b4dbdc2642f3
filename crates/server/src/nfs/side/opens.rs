//! The hosts of NLM as clients of the filer, and their opens of files.

use dafs_filer::{ClientKey, EnteringClient, Holder as FilerHolder, LeaveReason, Party, Principal};
use dafs_files::caller::Caller;
use dafs_files::outcome::{NotDone, Now};
use dafs_nfs_wire::nlm::LockStatus;
use dafs_ops::{Claim, Creation, Fault, LockMode, Names, Open};
use dafs_types::{
    ClientId, DeleteDisposition, FileHandle, ShareAccess, ShareDeny, StateId, Verifier,
};

use super::hosts::{self, Host, Locked};
use super::locks::{Result, Service, status_of};
use super::state::Side;
use crate::nfs::calls::Desk;
use crate::nfs::users::User;
use crate::reactor::Reactor;
use crate::requests::handles;

/// Releases all locks and reservations of a host, and forgets it.
pub(super) fn end_host(desk: &mut Desk<'_>, reactor: &mut Reactor<'_>, client: ClientKey) {
    let Some(host) = desk.side.hosts.remove(client) else { return };
    let (address, name) = (host.address, host.name.escape_ascii().to_string());
    tracing::info!(%address, name, "the locks of an NFS client are released");
    desk.side.blocked.forget_client(client);
    let now = reactor.shared.life.now();
    let released = reactor.shared.filer.client_leave(client, LeaveReason::Orderly, now);
    reactor.files().act_on_locks();
    for closed in &released {
        reactor.files().release_open(closed);
    }
    desk.users.forget_client(reactor.shared, client);
}

/// Closes a host's open of a file if the host has no locks on it and waits for none.
pub(super) fn close_if_unused(
    side: &mut Side,
    reactor: &mut Reactor<'_>,
    client: ClientKey,
    file: &FileHandle,
) {
    let is_waiting = side.blocked.concerns(client, file);
    let Some(host) = side.hosts.get_mut(client) else { return };
    let is_used = |locked: &Locked| !locked.owners.is_empty() || is_waiting;
    if host.files.get(file).is_none_or(is_used) {
        return;
    }
    if let Some(locked) = host.files.remove(file) {
        close(reactor, client, locked.state);
    }
}

/// Closes an open. No data was written under it, so nothing waits for the end.
pub(super) fn close(reactor: &mut Reactor<'_>, client: ClientKey, state: StateId) {
    reactor.files().end_open(Party { client, fence: None }, state);
}

impl Service<'_, '_, '_> {
    /// Returns the filer's client for a host. Adds the host if it is new.
    pub(super) fn enter(&mut self, name: &[u8]) -> Result<ClientKey> {
        let address = self.sender.peer.address;
        if let Some(client) = self.desk.side.hosts.find(address, name) {
            return Ok(client);
        }
        if !self.desk.side.hosts.has_room(address) {
            for client in self.desk.side.hosts.idle() {
                end_host(self.desk, self.reactor, client);
            }
            if !self.desk.side.hosts.has_room(address) {
                return Err(LockStatus::DeniedNoLocks);
            }
        }
        let now = self.reactor.shared.life.now();
        let shared = &mut *self.reactor.shared;
        let id = loop {
            let id = ClientId(shared.entrance.entropy().next_u64());
            if !shared.filer.has_client_id(id) {
                break id;
            }
        };
        let entered = shared.filer.client_enter(&EnteringClient {
            id,
            name: &hosts::client_name(address, name),
            // The host keeps its identity over restarts of this server, so that it can reclaim its
            // locks. After its own restart, its monitor sends a notice.
            verifier: Verifier(*b"nlm-host"),
            principal: &Principal::Anonymous,
            holder: FilerHolder::at(address),
            expects_record: false,
            ends_reclaims_itself: false,
        });
        let client = entered.map_err(|_| LockStatus::DeniedNoLocks)?;
        if shared.filer.client_begin(client, now).is_refused {
            return Err(LockStatus::DeniedNoLocks);
        }
        let host = Host {
            id,
            address,
            name: name.into(),
            monitor: 0,
            files: Default::default(),
            shares: Default::default(),
        };
        self.desk.side.hosts.insert(client, host);
        self.reactor.apply_succession();
        Ok(client)
    }

    /// Returns the caller for the user who has sent the call.
    pub(super) fn caller(&mut self, client: ClientKey) -> Result<Caller> {
        let credentials = self.sender.credentials.clone();
        let user = User { peer: self.sender.peer.clone(), credentials };
        let admitted = self.desk.users.admit(self.reactor.shared, client, &user);
        let endpoint = admitted.ok_or(LockStatus::Failed)?;
        self.user = Some(endpoint);
        let guest = self.reactor.shared.channels.guests().get(endpoint);
        guest.map(|guest| guest.caller()).ok_or(LockStatus::Failed)
    }

    pub(super) fn handle(&self, given: &[u8]) -> Result<FileHandle> {
        let mut handle = FileHandle(given.try_into().map_err(|_| LockStatus::StaleFh)?);
        handles::renew(&*self.reactor.shared.whole_store, &mut handle);
        Ok(handle)
    }

    /// Fails during the grace period, unless the request is a reclaim, and after it if it is one.
    pub(super) fn check_grace(&self, reclaims: bool) -> Result<()> {
        match self.reactor.shared.filer.is_in_grace() == reclaims {
            true => Ok(()),
            false => Err(LockStatus::DeniedGracePeriod),
        }
    }

    pub(super) fn not_done(&mut self, why: NotDone) -> LockStatus {
        status_of(Fault::from(self.reactor.without_waiting(why)))
    }

    pub(super) fn open(
        &mut self,
        by: &Caller,
        file: &FileHandle,
        owner: &[u8],
        (access, deny): (ShareAccess, ShareDeny),
        reclaims: bool,
    ) -> Result<StateId> {
        self.reactor.files().check_fence(by, file).map_err(status_of)?;
        let itself: &[&[u8]] = &[b"."];
        let path = Names::new(itself);
        let ask = Open {
            from: *file,
            claim: if reclaims { Claim::Previous } else { Claim::Null { path } },
            creation: Creation::NoCreate,
            disposition: DeleteDisposition::DontCare,
            owner,
            access,
            deny,
            key: None,
        };
        match self.reactor.files().open(by, false, &ask) {
            Ok(Now::Done((opened, after))) => {
                self.after = self.after.max(after);
                Ok(opened.state)
            }
            Ok(Now::Later(_)) => Err(LockStatus::Failed),
            Err(why) => Err(self.not_done(why)),
        }
    }

    /// Returns the host's open of a file for a lock. Opens the file if necessary.
    pub(super) fn open_for(
        &mut self,
        by: &Caller,
        file: &FileHandle,
        mode: LockMode,
        reclaims: bool,
    ) -> Result<StateId> {
        let client = by.party.client;
        let wanted = match mode {
            LockMode::Read => ShareAccess::Read,
            LockMode::Write => ShareAccess::Write,
        };
        let host = self.desk.side.hosts.get(client).ok_or(LockStatus::Failed)?;
        let known = host.files.get(file);
        if let Some(locked) = known
            && (locked.access == ShareAccess::Both || locked.access == wanted)
        {
            return Ok(locked.state);
        }
        if known.is_none() && !host.has_room() {
            return Err(LockStatus::DeniedNoLocks);
        }
        let state = self.open(by, file, LOCKS, (wanted, ShareDeny::None), reclaims)?;
        let host = self.desk.side.hosts.get_mut(client).ok_or(LockStatus::Failed)?;
        let new = || Locked { state, access: wanted, owners: Default::default() };
        let locked = host.files.entry(*file).or_insert_with(new);
        if locked.access != wanted {
            locked.access = ShareAccess::Both;
        }
        Ok(locked.state)
    }
}

/// The owner of a host's opens for locks.
const LOCKS: &[u8] = b"k";
