//! Messages that are read in the buffer in which they arrive.

use dafs_dat::{
    EndpointId, Gather, Inbox, Interface, LocalKey, LocalSegment, PostError, Rights, SendOptions,
    Signal,
};

use crate::fixture::Fixture;
use crate::pair::{DOMAIN, Pair, pattern};

const SLOTS: u16 = 4;

/// Returns a pair whose acceptor has an inbox.
fn with_inbox(fixture: &dyn Fixture) -> Pair {
    let mut pair = Pair::new(fixture);
    pair.acceptor.open_inbox(SLOTS);
    pair
}

/// Waits until `count` messages have arrived, and returns the newest.
fn await_message(pair: &mut Pair, count: usize) -> Vec<u8> {
    pair.until("the message", |pair| pair.acceptor.messages.len() == count);
    let (slot, length) = pair.acceptor.messages.last_mut().unwrap();
    slot.message(*length).to_vec()
}

/// Gives back the oldest slot and posts it. Returns true if the inbox posted it.
fn repost(pair: &mut Pair) -> bool {
    let endpoint = pair.acceptor.endpoint();
    let (slot, _) = pair.acceptor.messages.remove(0);
    let inbox = pair.acceptor.inbox.as_mut().unwrap();
    inbox.give_back(slot);
    inbox.post(&mut pair.acceptor.interface, endpoint)
}

pub(crate) fn messages_are_read_where_they_arrive(fixture: &dyn Fixture) {
    let mut pair = with_inbox(fixture);
    for round in 0..3 * u64::from(SLOTS) {
        let bytes = pattern(round, 1 + 23 * round as usize % 256);
        pair.initiator.send(round, &bytes);
        assert_eq!(await_message(&mut pair, 1), bytes, "{round}");
        assert!(repost(&mut pair), "{round}");
    }
}

pub(crate) fn a_message_in_hand_is_nobody_elses(fixture: &dyn Fixture) {
    let mut pair = with_inbox(fixture);
    for number in 0..SLOTS {
        pair.initiator.send(number.into(), &pattern(number.into(), 200));
        await_message(&mut pair, usize::from(number) + 1);
    }
    assert_eq!(pair.acceptor.inbox.as_ref().unwrap().free(), 0);
    // The owner of a slot may write to it, and that changes no other message.
    for (slot, length) in pair.acceptor.messages.iter_mut().skip(1) {
        slot.message(*length).fill(7);
    }
    assert!(repost(&mut pair));
    pair.initiator.send(9, &pattern(9, 200));
    assert_eq!(await_message(&mut pair, usize::from(SLOTS)), pattern(9, 200));
    for (slot, length) in pair.acceptor.messages.iter_mut().take(usize::from(SLOTS) - 1) {
        assert_eq!(slot.message(*length), [7; 200]);
        // At most the whole slot is returned.
        assert_eq!(slot.message(u32::MAX).len(), 256);
    }
}

pub(crate) fn a_slot_goes_back_to_its_own_inbox(fixture: &dyn Fixture) {
    let mut pair = with_inbox(fixture);
    pair.initiator.send(1, b"first");
    await_message(&mut pair, 1);
    let former = pair.acceptor.inbox.take().unwrap();
    pair.acceptor.open_inbox(SLOTS);
    assert!(!repost(&mut pair), "another inbox has no use for it");
    // The former inbox's slots are still posted. Its messages are not taken for the new one's.
    pair.initiator.send(2, b"second");
    pair.until("the completion", |pair| pair.acceptor.received().len() == 1);
    assert_eq!(pair.acceptor.messages.len(), 0);
    drop(former);
}

/// Posts every kind of work with this segment. Returns the results.
fn post_all(
    interface: &mut Interface,
    endpoint: EndpointId,
    segment: LocalSegment,
    target: dafs_dat::RemoteSegment,
) -> [Result<(), PostError>; 5] {
    let gather = [Gather::Segment(segment)];
    let now = interface.rdma_write_now(endpoint, &[segment], target)
        || interface.rdma_read_now(endpoint, &[segment], target);
    [
        interface.post_receive(endpoint, 1, &[segment]),
        interface.post_send(endpoint, 1, &gather, SendOptions::default()),
        interface.post_rdma_write(endpoint, 1, &[segment], target, Signal::Always),
        interface.post_rdma_read(endpoint, 1, &[segment], target),
        if now { Ok(()) } else { Err(PostError::BadSegment) },
    ]
}

pub(crate) fn what_is_an_inboxes_is_nobody_elses_to_post(fixture: &dyn Fixture) {
    let mut pair = with_inbox(fixture);
    let target = pair.initiator.buffer(64, Rights::REMOTE).region.remote(0, 64);
    let key = pair.acceptor.inbox.as_ref().unwrap().key();
    let endpoint = pair.acceptor.endpoint();
    let interface = &mut pair.acceptor.interface;
    let segment = LocalSegment { key, offset: 0, length: 64 };
    let outcomes = post_all(interface, endpoint, segment, target);
    assert_eq!(outcomes, [Err(PostError::BadSegment); 5]);
    // Without the bit of private keys, it is not a valid key.
    let plain = LocalSegment { key: LocalKey(key.0 & (u32::MAX >> 1)), ..segment };
    let outcomes = post_all(interface, endpoint, plain, target);
    assert_eq!(outcomes, [Err(PostError::BadSegment); 5]);
    // No other completion ends one of its receives.
    let own = pair.acceptor.buffer(64, Rights::LOCAL).region.local(0, 64);
    for cookie in [u64::MAX, 1 << 63] {
        let posted = pair.acceptor.interface.post_receive(endpoint, cookie, &[own]);
        assert_eq!(posted, Err(PostError::PrivateCookie));
    }
    pair.initiator.send(1, b"still");
    assert_eq!(await_message(&mut pair, 1), b"still");
}

pub(crate) fn an_inbox_posts_by_its_own_interface(fixture: &dyn Fixture) {
    let mut pair = with_inbox(fixture);
    pair.initiator.open_inbox(SLOTS);
    pair.initiator.send(1, b"one");
    await_message(&mut pair, 1);
    let (slot, _) = pair.acceptor.messages.remove(0);
    let (here, there) = (pair.acceptor.endpoint(), pair.initiator.endpoint());
    let inbox = pair.acceptor.inbox.as_mut().unwrap();
    inbox.give_back(slot);
    // On another interface, its key may belong to another inbox.
    assert!(!inbox.post(&mut pair.initiator.interface, there));
    assert!(inbox.post(&mut pair.acceptor.interface, here));
}

pub(crate) fn an_inbox_may_be_gone_before_its_messages(fixture: &dyn Fixture) {
    let mut pair = with_inbox(fixture);
    pair.initiator.send(1, b"kept");
    await_message(&mut pair, 1);
    let (mut slot, length) = pair.acceptor.messages.remove(0);
    let inbox = pair.acceptor.inbox.take().unwrap();
    pair.acceptor.interface.deregister(inbox.key());
    drop(inbox);
    let mut other = Inbox::new(&mut pair.acceptor.interface, DOMAIN, SLOTS, 256).unwrap();
    assert_eq!(slot.message(length), b"kept");
    other.give_back(slot);
    assert_eq!(other.free(), usize::from(SLOTS));
}
