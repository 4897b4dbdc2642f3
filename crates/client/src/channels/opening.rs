//! The channels beside the first, made when a session is established.
//!
//! Invariant: a channel counts only if its server knows it for the same client as the first; so it
//! is the same server, in the same life. One that does not come about is done without.

use std::rc::Rc;

use dafs_dat::Address;
use dafs_types::Status;
use dafs_wire::messages::Empty;
use dafs_wire::{Procedure, Request, Response};

use crate::answer::Answer;
use crate::channels::{Beside, Role};
use crate::client::Shared;
use crate::connect::{establish, open_endpoint};
use crate::core::Core;
use crate::decode::decode_any;
use crate::ids::SessionKey;
use crate::options::SessionOptions;
use crate::recovery::places::Place;
use crate::state::SessionState;

/// Makes as many channels beside the first as the session wants and its server has use for.
pub(crate) async fn open_beside(shared: &Rc<Shared>, first: SessionKey) {
    let wanted = shared.borrow().channels_wanted(first);
    if wanted <= 1 {
        return;
    }
    let offered = offered(shared, first).await.unwrap_or(1);
    for number in 1..wanted.min(offered) {
        let places = shared.borrow().places_beside(first, usize::from(number));
        for place in places {
            if open_one(shared, first, &place).await {
                break;
            }
        }
    }
    shared.borrow_mut().sessions[first].role.spread(first);
}

/// By how many channels the server can be used; `None` of one that does not know the question.
async fn offered(shared: &Rc<Shared>, first: SessionKey) -> Option<u16> {
    let address = shared.borrow().sessions[first].address.clone();
    let answer = Answer::to(shared, first, None, &Request::Channels(Empty)).ok()?.await.ok()?;
    match decode_any(Procedure::Channels, &answer, &address).ok()? {
        (header, Response::Channels(result)) if header.status == Status::Ok => {
            Some(u16::try_from(result.count).unwrap_or(u16::MAX))
        }
        _ => None,
    }
}

/// Makes one channel. Whether it stands.
async fn open_one(shared: &Rc<Shared>, first: SessionKey, place: &Place) -> bool {
    let Some((key, options)) = shared.borrow_mut().begin_beside(first, place) else { return false };
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
    /// How many channels a session may have.
    fn channels_wanted(&self, first: SessionKey) -> u16 {
        let session = &self.sessions[first];
        // Memory that devices were told of goes over one of them.
        let can_spread = match session.place.address {
            Address::Tcp(_) | Address::Shm(_) | Address::Sim { .. } => session.recovery.is_some(),
            Address::Verbs(_) => false,
        };
        let most = session.options.channels.clamp(1, SessionOptions::CHANNELS_MAX);
        if can_spread { most } else { 1 }
    }

    /// Where to look for the server for a channel, best first.
    fn places_beside(&self, first: SessionKey, number: usize) -> Vec<Place> {
        let session = &self.sessions[first];
        let machine = session.recovery.as_ref();
        let mut places: Vec<Place> = machine
            .map(|machine| machine.places().beside(&session.place.address, number))
            .into_iter()
            .flatten()
            .collect();
        if !places.iter().any(|place| place.address == session.place.address) {
            places.push(session.place.clone());
        }
        places
    }

    /// Begins to connect a channel beside the first.
    fn begin_beside(
        &mut self,
        first: SessionKey,
        place: &Place,
    ) -> Option<(SessionKey, Rc<SessionOptions>)> {
        let Self { sessions, transport, .. } = self;
        let session = sessions.open(first).ok()?;
        let options = Rc::new(SessionOptions {
            delegations: false,
            ..SessionOptions::clone(&session.options)
        });
        let machine = session.recovery.as_ref()?.beside(&options, &place.address);
        let label = session.label;
        let key = sessions.add(|key| {
            let endpoint = open_endpoint(transport, key, place, &options)?;
            let state = SessionState::begun(endpoint, place, options.clone(), Some(machine));
            let role = Role::Beside(Beside { first, folding: Vec::new() });
            Ok::<_, crate::transport::NotOpened>(SessionState { label, role, ..state })
        });
        let key = key.ok()?;
        sessions[first].role.add(key);
        Some((key, options))
    }

    /// Whether a channel's server knows it for the client that the first one is of.
    fn is_same_client(&self, first: SessionKey, key: SessionKey) -> bool {
        let (one, other) = (&self.sessions[first], &self.sessions[key]);
        // One without kept results could not come back.
        other.recovery.is_some() && one.standing.client == other.standing.client
    }
}
