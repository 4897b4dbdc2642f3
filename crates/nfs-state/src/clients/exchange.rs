//! EXCHANGE_ID (RFC 8881 section 18.35). The case numbers in the comments are those of section
//! 18.35.4.

use dafs_types::{ClientId, Moment, Verifier};
use smallvec::SmallVec;

use super::record::{Client, EndReason, RevokedStates};
use super::table::Clients;
use crate::Nfs4Error;
use crate::keys::ClientKey;
use crate::limits::CLIENT_OWNER_BYTES_MAX;
use crate::operation::OperationNumber;
use crate::peer::{Caller, Protection, ProtectionAsk};

/// The flags of EXCHANGE_ID (RFC 8881 section 18.35.1).
pub mod exchange_flags {
    /// The client understands referrals to other servers.
    pub const SUPP_MOVED_REFER: u32 = 0x1;
    /// The client understands that a file system has moved to another server.
    pub const SUPP_MOVED_MIGR: u32 = 0x2;
    /// State ids are bound to the principal that has opened the file.
    pub const BIND_PRINC_STATEID: u32 = 0x100;
    /// The server is used without pNFS.
    pub const USE_NON_PNFS: u32 = 0x1_0000;
    /// The server is used as a metadata server of pNFS.
    pub const USE_PNFS_MDS: u32 = 0x2_0000;
    /// The server is used as a data server of pNFS.
    pub const USE_PNFS_DS: u32 = 0x4_0000;
    /// The request updates a confirmed record of the client.
    pub const UPD_CONFIRMED_REC_A: u32 = 0x4000_0000;
    /// The reply describes a confirmed record of the client.
    pub const CONFIRMED_R: u32 = 0x8000_0000;
    /// All flags that a client may set.
    pub const OF_CLIENTS: u32 = SUPP_MOVED_REFER
        | SUPP_MOVED_MIGR
        | BIND_PRINC_STATEID
        | USE_NON_PNFS
        | USE_PNFS_MDS
        | USE_PNFS_DS
        | UPD_CONFIRMED_REC_A;
}

/// The arguments of EXCHANGE_ID on which the server's decision depends.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeId<'a> {
    /// The name by which the client calls itself.
    pub owner: &'a [u8],
    /// The verifier of this incarnation of the client.
    pub verifier: Verifier,
    /// The flags, see [`exchange_flags`].
    pub flags: u32,
    /// The protection of its state that the client asks for.
    pub protection: ProtectionAsk,
}

/// The results of EXCHANGE_ID that depend on the server's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanged {
    /// The key of the client's record.
    pub key: ClientKey,
    /// The client id for CREATE_SESSION.
    pub id: ClientId,
    /// The sequence number for the next CREATE_SESSION.
    pub sequence: u32,
    /// The flags, see [`exchange_flags`].
    pub flags: u32,
    /// The protection of the client's state that is in force.
    pub protection: Protection,
}

impl Clients {
    /// Handles EXCHANGE_ID.
    ///
    /// # Errors
    /// INVAL for unknown flags, a name that is empty or too long, or a protection that the request
    /// itself does not have; NOENT, NOT_SAME or PERM for an update if there is no confirmed client,
    /// if it is another incarnation, or if it belongs to another principal; CLID_INUSE if the name
    /// belongs to another principal; WRONG_CRED if the client's machine credential is required;
    /// ENCR_ALG_UNSUPP if the client asks for SP4_SSV; DELAY if the tables are full.
    pub fn exchange_id(
        &mut self,
        ask: &ExchangeId<'_>,
        caller: &Caller<'_>,
        now: Moment,
    ) -> Result<Exchanged, Nfs4Error> {
        let has_bad_flags = ask.flags & !exchange_flags::OF_CLIENTS != 0;
        if has_bad_flags || ask.owner.is_empty() || ask.owner.len() > CLIENT_OWNER_BYTES_MAX {
            return Err(Nfs4Error::Inval);
        }
        let protection = Protection::negotiate(ask.protection, caller)?;
        if ask.flags & exchange_flags::UPD_CONFIRMED_REC_A != 0 {
            return self.update(ask, caller, now);
        }
        if let Some(known) = self.meet_confirmed(ask, caller, now)? {
            return Ok(known);
        }
        // Case 4: the new record replaces an unconfirmed record.
        if let Some(unconfirmed) = self.incarnations(ask.owner).unconfirmed {
            self.end(unconfirmed, EndReason::Replaced);
        }
        self.make_room(caller.peer, now)?;
        self.add(ask, caller, protection, now)
    }

    /// Handles a request that updates a confirmed record.
    fn update(
        &mut self,
        ask: &ExchangeId<'_>,
        caller: &Caller<'_>,
        now: Moment,
    ) -> Result<Exchanged, Nfs4Error> {
        // Case 7: there is no confirmed record.
        let key = self.incarnations(ask.owner).confirmed.ok_or(Nfs4Error::NoEnt)?;
        let client = self.get_mut(key).ok_or(Nfs4Error::NoEnt)?;
        // Case 8: the record belongs to another incarnation of the client.
        if client.verifier != ask.verifier {
            return Err(Nfs4Error::NotSame);
        }
        // Case 9: the record belongs to another principal.
        if client.principal != *caller.principal {
            return Err(Nfs4Error::Perm);
        }
        client.protection.check(OperationNumber::EXCHANGE_ID, &client.principal, caller)?;
        // Case 6. The protection of a client never changes after its confirmation.
        client.renewed = client.renewed.max(now);
        client.is_courtesy = false;
        Ok(exchanged(key, client))
    }

    /// Decides how the owner's confirmed record affects the request. Returns the result if the
    /// request concerns this record; `None` if the request needs a new record.
    fn meet_confirmed(
        &mut self,
        ask: &ExchangeId<'_>,
        caller: &Caller<'_>,
        now: Moment,
    ) -> Result<Option<Exchanged>, Nfs4Error> {
        let Some(key) = self.incarnations(ask.owner).confirmed else { return Ok(None) };
        let Some(client) = self.get(key) else { return Ok(None) };
        if client.principal != *caller.principal {
            // Case 3: two clients use the same name. The client that came first keeps the name as
            // long as it has state and its lease has not expired.
            let is_free =
                client.running == 0 && (!client.has_state() || self.has_lapsed(client, now));
            if !is_free {
                return Err(Nfs4Error::ClidInUse);
            }
            self.end(key, EndReason::Replaced);
            return Ok(None);
        }
        client.protection.check(OperationNumber::EXCHANGE_ID, &client.principal, caller)?;
        // Case 2: the request is repeated, or the client tests whether two addresses lead to the
        // same server. Case 5: the client has restarted. The old record stays until CREATE_SESSION
        // confirms the new one.
        let is_same = client.verifier == ask.verifier;
        // Without proof of its identity, another host cannot claim to be the client, restarted.
        if !is_same && !client.is_from(caller) && !self.has_lapsed(client, now) {
            return Err(Nfs4Error::ClidInUse);
        }
        Ok(is_same.then(|| exchanged(key, client)))
    }

    /// Case 1, and the second half of cases 3, 4 and 5: adds an unconfirmed record.
    fn add(
        &mut self,
        ask: &ExchangeId<'_>,
        caller: &Caller<'_>,
        protection: Protection,
        now: Moment,
    ) -> Result<Exchanged, Nfs4Error> {
        let id = self.new_id().ok_or(Nfs4Error::Delay)?;
        let key = self.insert(Client {
            id,
            owner: ask.owner.into(),
            verifier: ask.verifier,
            principal: caller.principal.clone(),
            peer: caller.peer,
            protection,
            is_confirmed: false,
            is_reclaiming: true,
            is_restored: false,
            is_awaited: false,
            sequence: 0,
            created: None,
            renewed: now,
            is_courtesy: false,
            running: 0,
            sessions: SmallVec::new(),
            back_sessions: 0,
            back_connections: 0,
            states: 0,
            revoked: RevokedStates::default(),
        });
        let client = self.get(key).ok_or(Nfs4Error::Delay)?;
        Ok(exchanged(key, client))
    }
}

fn exchanged(key: ClientKey, client: &Client) -> Exchanged {
    let confirmed = if client.is_confirmed { exchange_flags::CONFIRMED_R } else { 0 };
    Exchanged {
        key,
        id: client.id,
        sequence: client.sequence.wrapping_add(1),
        flags: exchange_flags::USE_NON_PNFS | confirmed,
        protection: client.protection,
    }
}
