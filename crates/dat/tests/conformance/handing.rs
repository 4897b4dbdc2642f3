//! Descriptors that are sent next to messages, on transports that support it.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;

use crate::fixture::Fixture;
use crate::pair::Pair;

pub(crate) fn a_descriptor_is_there_before_the_message_that_names_it(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let (here, there) = (pair.acceptor.endpoint(), pair.initiator.endpoint());
    let file = File::open("/proc/self/status").unwrap();
    let mut names = 0..;
    let sent = pair.acceptor.interface.hand_over(here, names.next().unwrap(), file.as_fd());
    if !matches!(pair.world.address, dafs_dat::Address::Shm(_)) {
        assert!(!sent, "this transport has none");
        assert!(pair.initiator.interface.take_handed_over(there, 0).is_none());
        return pair.assert_alive(1);
    }
    assert!(sent);
    let is_sent = pair.initiator.interface.hand_over(there, 9, file.as_fd());
    assert!(!is_sent, "the side that connects hands nothing over");
    assert!(pair.initiator.interface.take_handed_over(there, 77).is_none());
    let taken = pair.initiator.interface.take_handed_over(there, 0).unwrap();
    let mut text = String::new();
    File::from(taken).read_to_string(&mut text).unwrap();
    assert!(text.starts_with("Name:"));
    assert!(pair.initiator.interface.take_handed_over(there, 0).is_none(), "it comes once");
    // A peer that does not take what it was sent gets no more.
    let mut last = 0;
    let refused = names.by_ref().take(UNTAKEN_MAX).find(|name| {
        last = *name;
        !pair.acceptor.interface.hand_over(here, *name, file.as_fd())
    });
    assert!(refused.is_some(), "descriptors without end");
    assert!(pair.initiator.interface.take_handed_over(there, last).is_none());
    assert!(pair.initiator.interface.take_handed_over(there, last - 1).is_some());
    let again = names.next().unwrap();
    assert!(pair.acceptor.interface.hand_over(here, again, file.as_fd()));
    assert!(pair.initiator.interface.take_handed_over(there, again).is_some());
    pair.assert_alive(1);
}

/// A number above the limit of descriptors in flight.
const UNTAKEN_MAX: usize = 200;
