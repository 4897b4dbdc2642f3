//! The share reservations of NLM.

use dafs_nfs_wire::nlm::{LockStatus, ShareAccess as AskedAccess, ShareMode};
use dafs_ops::Downgrade;
use dafs_types::{ShareAccess, ShareDeny};

use super::locks::{Result, Service, status_of};
use super::messages::Sharing;
use super::opens::close;

impl Service<'_, '_, '_> {
    pub(super) fn share(&mut self, asked: &Sharing<'_>) -> Result<()> {
        self.check_grace(asked.reclaims)?;
        let file = self.handle(asked.file)?;
        let client = self.enter(asked.caller)?;
        let by = self.caller(client)?;
        let host = self.desk.side.hosts.get(client).ok_or(LockStatus::Failed)?;
        let key = (file, asked.owner.into());
        if !host.shares.contains_key(&key) && !host.has_room() {
            return Err(LockStatus::DeniedNoLocks);
        }
        let access = match asked.access {
            // The filer has no opens without access.
            AskedAccess::None | AskedAccess::Read => ShareAccess::Read,
            AskedAccess::Write => ShareAccess::Write,
            AskedAccess::ReadWrite => ShareAccess::Both,
        };
        let deny = match asked.mode {
            ShareMode::DenyNone => ShareDeny::None,
            ShareMode::DenyRead => ShareDeny::Read,
            ShareMode::DenyWrite => ShareDeny::Write,
            ShareMode::DenyReadWrite => ShareDeny::Both,
        };
        let owner = [b"s", asked.owner].concat();
        let state = self.open(&by, &file, &owner, (access, deny), asked.reclaims)?;
        // The filer has joined the reservation with an earlier one of the same owner, which it
        // replaces.
        let only = Downgrade { file, state, access, deny, key: None };
        self.reactor.files().open_downgrade(by.party, &only).map_err(status_of)?;
        if let Some(host) = self.desk.side.hosts.get_mut(client) {
            host.shares.insert(key, state);
        }
        Ok(())
    }

    pub(super) fn unshare(&mut self, asked: &Sharing<'_>) -> Result<()> {
        let file = self.handle(asked.file)?;
        let client = self.desk.side.hosts.find(self.sender.peer.address, asked.caller);
        let host = client.and_then(|client| self.desk.side.hosts.get_mut(client));
        let state = host.and_then(|host| host.shares.remove(&(file, asked.owner.into())));
        match (client, state) {
            (Some(client), Some(state)) => close(self.reactor, client, state),
            _ => self.check_grace(false)?,
        }
        Ok(())
    }
}
