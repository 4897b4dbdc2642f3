//! Questions to the holder of a delegation for writing about the attributes of its file
//! (CB_GETATTR, RFC 8881 sections 10.4.3 and 20.1).
//!
//! Invariants:
//! - Each request that waits for the attributes continues: with the holder's reply, or with none
//!   after a limited time, or when the holder has ended. Without a reply the delegation is
//!   recalled.
//! - A delegation has at most one question that was not sent yet. All requests that arrive before
//!   it is sent wait for its reply.

use std::time::Duration;

use dafs_filer::{ClientKey, WaiterId};
use dafs_files::delegations::Told;
use dafs_nfs_state::CallbackOutcome;
use dafs_nfs_wire::nfs4::attributes::number;
use dafs_nfs_wire::nfs4::callbacks::{Callback, CallbackAnswer, CbGetAttrArgs};
use dafs_nfs_wire::nfs4::{Bitmap, Reply};
use dafs_nfs_wire::xdr::Opaque;
use dafs_store::change_of_now;
use dafs_types::{ClientId, FileHandle, limits};
use smallvec::smallvec;

use super::recalls::{Ask, Content, Report};
use super::state::State;
use crate::reactor::Reactor;

impl State {
    /// Asks a client for the attributes of a file that is delegated to it. `waiter` is the request
    /// that waits for them.
    pub(super) fn ask_attributes(
        &mut self,
        reactor: &mut Reactor<'_>,
        client: ClientId,
        file: &FileHandle,
        waiter: WaiterId,
    ) {
        if !self.queue_question(reactor, client, file, waiter) {
            reactor.on_holder_told(waiter, Told::Nothing);
        }
    }

    /// Queues a question. Returns false if the client cannot be asked.
    fn queue_question(
        &mut self,
        reactor: &Reactor<'_>,
        client: ClientId,
        file: &FileHandle,
        waiter: WaiterId,
    ) -> bool {
        let mut all = self.states.delegations.iter();
        let Some((state, held)) =
            all.find(|(_, held)| held.client_id == client && held.file == *file)
        else {
            return false;
        };
        let (state, nfs_client, granted) = (*state, held.nfs_client, held.granted);
        if !self.machine.has_back_channel(nfs_client) {
            return false;
        }
        for content in self.callbacks.contents.values_mut() {
            if let Content::Ask(ask) = content
                && ask.state == state
                && !ask.is_sent
            {
                ask.waiters.push(waiter);
                return true;
            }
        }
        let now = reactor.shared.life.now();
        self.callbacks.last_content += 1;
        let word = self.callbacks.last_content;
        if self.machine.call_back(nfs_client, word, granted, PATIENCE, now).is_err() {
            return false;
        }
        let waiters = smallvec![waiter];
        let ask = Ask { client, state, file: *file, waiters, is_sent: false, reply: None };
        self.callbacks.contents.insert(word, Content::Ask(ask));
        true
    }

    /// Continues the requests that have waited for the attributes.
    pub(super) fn end_ask(
        &mut self,
        reactor: &mut Reactor<'_>,
        ask: Ask,
        outcome: CallbackOutcome,
    ) {
        let told = match outcome {
            CallbackOutcome::Replied(0) => self.told_by(&ask),
            CallbackOutcome::Replied(_) | CallbackOutcome::TimedOut => Told::Nothing,
        };
        for waiter in ask.waiters {
            reactor.on_holder_told(waiter, told);
        }
    }

    /// Returns what the reply of a holder says about its file.
    fn told_by(&self, ask: &Ask) -> Told {
        // A delegation that has ended meanwhile says nothing.
        let held = self.states.delegations.get(&ask.state);
        let (Some(held), Some(report)) = (held, ask.reply) else { return Told::Nothing };
        told_of(report, held.change)
    }

    /// Records the change attribute that a client is shown of a file, if the client has just been
    /// granted a delegation of it.
    pub(super) fn note_change_shown(&mut self, client: ClientKey, file: &FileHandle, change: u64) {
        let latest = self.states.latest.and_then(|state| self.states.delegations.get_mut(&state));
        if let Some(held) = latest.filter(|held| held.client == client && held.file == *file) {
            held.change.get_or_insert(change);
            self.states.latest = None;
        }
    }
}

/// Returns what a report says about a file. `granted` is the change attribute that the holder was
/// shown together with the delegation; a holder that was shown none may have changed the file.
fn told_of(report: Report, granted: Option<u64>) -> Told {
    if report.size > limits::FILE_OFFSET_MAX {
        return Told::Nothing;
    }
    match granted == Some(report.change) {
        // What the holder has written to this server is in the attributes that the server has.
        true => Told::Facts { size: None, change: None },
        false => Told::Facts { size: Some(report.size), change: Some(change_of_now().0) },
    }
}

/// Returns the operation that asks a question.
pub(super) fn question_of(ask: &Ask) -> Callback<'_> {
    let attributes = Bitmap::of(&[number::change, number::size]);
    Callback::GetAttr(CbGetAttrArgs { handle: Opaque(&ask.file.0), attributes })
}

/// Returns the attributes in a result. `None` if it is no success of CB_GETATTR, or if an attribute
/// is missing.
pub(super) fn report_of(answer: &CallbackAnswer<'_>) -> Option<Report> {
    let CallbackAnswer::GetAttr(Reply::Ok(attributes)) = answer else { return None };
    let found = attributes.decode().ok()?;
    Some(Report { change: found.change?, size: found.size? })
}

/// The time that a holder has for its reply.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_changed_file_is_reported_with_its_size() {
        let report = |change| Report { change, size: 7 };
        let unchanged = Told::Facts { size: None, change: None };
        assert_eq!(told_of(report(100), Some(100)), unchanged);
        for (change, granted) in [(101, Some(100)), (0, Some(100)), (100, None)] {
            let told = told_of(report(change), granted);
            let Told::Facts { size: Some(7), change: Some(shown) } = told else {
                panic!("{told:?}");
            };
            assert!(shown > 1_000_000_000_000_000_000, "{shown} is no time");
        }
        let endless = Report { change: 1, size: u64::MAX };
        assert_eq!(told_of(endless, Some(100)), Told::Nothing);
    }
}
