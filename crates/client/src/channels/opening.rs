//! Opens additional channels when a session is established.
//!
//! Invariant: a channel is used only if its server knows the client by the same client id as on the
//! first channel, which proves that both lead to the same incarnation of the same server. If a
//! channel cannot be opened, the session works without it.

use std::rc::Rc;

use dafs_dat::Address;
use dafs_types::Status;
use dafs_wire::messages::Empty;
use dafs_wire::{Procedure, Request, Response};

use crate::channels::{AdditionalChannel, Role};
use crate::client::Shared;
use crate::connect::{establish, open_endpoint};
use crate::core::Core;
use crate::decode::decode_any;
use crate::ids::SessionKey;
use crate::options::SessionOptions;
use crate::recovery::server_addresses::ServerAddress;
use crate::reply_future::ReplyFuture;
use crate::state::SessionState;

/// Opens as many additional channels as the session wants and its server can use.
pub(crate) async fn open_additional_channels(shared: &Rc<Shared>, first: SessionKey) {
    let wanted = shared.borrow().channels_wanted(first);
    if wanted <= 1 {
        return;
    }
    let offered = offered(shared, first).await.unwrap_or(1);
    for number in 1..wanted.min(offered) {
        let places = shared.borrow().addresses_for_channel(first, usize::from(number));
        for place in places {
            if open_one(shared, first, &place).await {
                break;
            }
        }
    }
    shared.borrow_mut().sessions[first].role.spread(first);
}

/// Asks the server how many channels it can use, and returns the number; `None` if the server does
/// not know this request.
async fn offered(shared: &Rc<Shared>, first: SessionKey) -> Option<u16> {
    let address = shared.borrow().sessions[first].address.clone();
    let answer =
        ReplyFuture::send(shared, first, None, &Request::Channels(Empty)).ok()?.await.ok()?;
    match decode_any(Procedure::Channels, &answer, &address).ok()? {
        (header, Response::Channels(result)) if header.status == Status::Ok => {
            Some(u16::try_from(result.count).unwrap_or(u16::MAX))
        }
        _ => None,
    }
}

/// Opens one additional channel. Returns true if it was established.
async fn open_one(shared: &Rc<Shared>, first: SessionKey, place: &ServerAddress) -> bool {
    let Some((key, options)) = shared.borrow_mut().start_additional_channel(first, place) else {
        return false;
    };
    let is_established = establish(shared, key, &options).await.is_ok();
    let mut core = shared.borrow_mut();
    let is_known = is_established && core.is_same_client(first, key);
    if !is_known {
        core.sessions[first].role.remove(key);
        core.leave(key);
    }
    is_known
}

impl Core {
    /// Returns the number of channels that the session's options ask for; 1 if it cannot use
    /// several.
    fn channels_wanted(&self, first: SessionKey) -> u16 {
        let session = &self.sessions[first];
        // Memory that is registered with an RDMA device can be reached over one connection only.
        let can_spread = match session.place.address {
            Address::Tcp(_) | Address::Shm(_) | Address::Sim { .. } => session.recovery.is_some(),
            Address::Verbs(_) => false,
        };
        let most = session.options.channels.clamp(1, SessionOptions::CHANNELS_MAX);
        if can_spread { most } else { 1 }
    }

    /// Returns the addresses to try for a channel, best first.
    fn addresses_for_channel(&self, first: SessionKey, number: usize) -> Vec<ServerAddress> {
        let session = &self.sessions[first];
        let machine = session.recovery.as_ref();
        let mut places: Vec<ServerAddress> = machine
            .map(|machine| machine.places().for_channel(&session.place.address, number))
            .into_iter()
            .flatten()
            .collect();
        if !places.iter().any(|place| place.address == session.place.address) {
            places.push(session.place.clone());
        }
        places
    }

    /// Starts to connect an additional channel.
    fn start_additional_channel(
        &mut self,
        first: SessionKey,
        place: &ServerAddress,
    ) -> Option<(SessionKey, Rc<SessionOptions>)> {
        let Self { sessions, transport, .. } = self;
        let session = sessions.open(first).ok()?;
        let options = Rc::new(SessionOptions {
            delegations: false,
            ..SessionOptions::clone(&session.options)
        });
        let machine = session.recovery.as_ref()?.for_channel(&options, &place.address);
        let label = session.label;
        let key = sessions.add(|key| {
            let endpoint = open_endpoint(transport, key, place, &options)?;
            let state = SessionState::begun(endpoint, place, options.clone(), Some(machine));
            let role = Role::Additional(AdditionalChannel { first, questions: Vec::new() });
            Ok::<_, crate::transport::NotOpened>(SessionState { label, role, ..state })
        });
        let key = key.ok()?;
        sessions[first].role.add(key);
        Some((key, options))
    }

    /// Returns true if the server knows the client of both channels by the same client id.
    fn is_same_client(&self, first: SessionKey, key: SessionKey) -> bool {
        let (one, other) = (&self.sessions[first], &self.sessions[key]);
        // A session whose results the server does not keep could not reconnect.
        other.recovery.is_some() && one.standing.client == other.standing.client
    }
}
