//! Messages protected by an established context.

use dafs_gss::{Acceptor, Initiator, MESSAGE_BYTES_MAX, Protection, Reason};
use dafs_types::Random;

use crate::hostile::{mutate, seeds};
use crate::parties::{SERVICE, answer, client, close, meet, opened, populate, reason, service};
use crate::realm::scenario;

#[test]
fn signatures_hold_both_ways() {
    scenario("protect::signatures_hold_both_ways", |realm| {
        let keytab = populate(realm);
        let (mut ours, mut theirs) = meet(&client(), &service(&keytab));
        let mic = ours.get_mic(b"request").unwrap();
        theirs.verify_mic(b"request", &mic).unwrap();
        let mic = theirs.get_mic(b"response").unwrap();
        ours.verify_mic(b"response", &mic).unwrap();
        // An empty message has a signature, too.
        let mic = ours.get_mic(b"").unwrap();
        theirs.verify_mic(b"", &mic).unwrap();
    });
}

#[test]
fn signatures_that_do_not_hold() {
    scenario("protect::signatures_that_do_not_hold", |realm| {
        let keytab = populate(realm);
        let (mut ours, mut theirs) = meet(&client(), &service(&keytab));
        let first = ours.get_mic(b"first").unwrap();
        assert_eq!(reason(theirs.verify_mic(b"other", &first)), Reason::Altered);
        assert_eq!(reason(ours.verify_mic(b"first", &first)), Reason::Altered, "its own");
        theirs.verify_mic(b"first", &first).unwrap();
        assert_eq!(reason(theirs.verify_mic(b"first", &first)), Reason::Replayed);
        let _lost = ours.get_mic(b"second").unwrap();
        let third = ours.get_mic(b"third").unwrap();
        assert_eq!(reason(theirs.verify_mic(b"third", &third)), Reason::OutOfOrder);
        let (mut stranger, _) = meet(&client(), &service(&keytab));
        let foreign = stranger.get_mic(b"first").unwrap();
        assert_eq!(reason(theirs.verify_mic(b"first", &foreign)), Reason::Altered);
    });
}

#[test]
fn without_order_a_message_may_come_late_or_twice_but_not_altered() {
    scenario("protect::without_order_a_message_may_come_late_or_twice_but_not_altered", |realm| {
        let keytab = populate(realm);
        let initiator = Initiator::new(client(), &SERVICE.parse().unwrap()).unwrap();
        let (initiator, token) = opened(initiator.without_order()).unwrap();
        let (theirs, reply) = answer(Acceptor::new(service(&keytab)), &token).unwrap();
        let ours = close(initiator, &reply).unwrap();
        assert!(!ours.offers(Protection::Integrity), "it would need an order");
        let (mut ours, mut theirs) = (ours.without_order(), theirs.without_order());
        let [first, second] = [b"first", b"other"].map(|text| ours.get_mic(text).unwrap());
        theirs.verify_mic(b"other", &second).unwrap();
        theirs.verify_mic(b"first", &first).unwrap();
        theirs.verify_mic(b"first", &first).unwrap();
        assert_eq!(reason(theirs.verify_mic(b"first", &second)), Reason::Altered);
        let wrapped = ours.wrap(Protection::Privacy, b"secret").unwrap();
        for _ in 0..2 {
            assert_eq!(theirs.unwrap(Protection::Privacy, &wrapped).unwrap(), b"secret");
        }
        let signed = ours.wrap(Protection::Integrity, b"signed").unwrap();
        assert_eq!(reason(theirs.unwrap(Protection::Privacy, &signed)), Reason::NotProtected);

        // The same holds if the client has asked for an order.
        let (ours, theirs) = meet(&client(), &service(&keytab));
        let (mut ours, mut theirs) = (ours.without_order(), theirs.without_order());
        let [first, second] = [b"first", b"other"].map(|text| ours.get_mic(text).unwrap());
        for (text, mic) in [(b"other", &second), (b"first", &first), (b"first", &first)] {
            theirs.verify_mic(text, mic).unwrap();
        }
    });
}

#[test]
fn messages_are_wrapped_as_asked() {
    scenario("protect::messages_are_wrapped_as_asked", |realm| {
        let keytab = populate(realm);
        let (mut ours, mut theirs) = meet(&client(), &service(&keytab));
        let message = b"what nobody else should know";
        for protection in [Protection::Authentication, Protection::Integrity, Protection::Privacy] {
            assert!(ours.offers(protection) && theirs.offers(protection));
            let wrapped = ours.wrap(protection, message).unwrap();
            let is_visible = wrapped.windows(message.len()).any(|part| part == message);
            assert_eq!(is_visible, protection != Protection::Privacy);
            assert_eq!(theirs.unwrap(protection, &wrapped).unwrap(), message);
            let wrapped = theirs.wrap(protection, message).unwrap();
            assert_eq!(ours.unwrap(protection, &wrapped).unwrap(), message);
        }
        let signed = ours.wrap(Protection::Integrity, message).unwrap();
        assert_eq!(reason(theirs.unwrap(Protection::Privacy, &signed)), Reason::NotProtected);
        let mut altered = ours.wrap(Protection::Privacy, message).unwrap();
        *altered.last_mut().unwrap() ^= 1;
        assert_eq!(reason(theirs.unwrap(Protection::Privacy, &altered)), Reason::Altered);
    });
}

#[test]
fn messages_have_a_longest() {
    scenario("protect::messages_have_a_longest", |realm| {
        let keytab = populate(realm);
        let (mut ours, mut theirs) = meet(&client(), &service(&keytab));
        let longest = Random::new(7).bytes(MESSAGE_BYTES_MAX + 1);
        let longest = &longest[..MESSAGE_BYTES_MAX];
        let wrapped = ours.wrap(Protection::Privacy, longest).unwrap();
        assert!(theirs.unwrap(Protection::Privacy, &wrapped).unwrap() == longest);
        let longer = vec![0; MESSAGE_BYTES_MAX + 1];
        let refusal = reason(ours.wrap(Protection::Privacy, &longer));
        assert_eq!(refusal, Reason::TokenTooLong);
        assert_eq!(reason(ours.get_mic(&longer)), Reason::TokenTooLong);
    });
}

/// Unwrapping an altered message yields the original message or an error. It yields the message if
/// only the rotation count differs (RRC, RFC 4121 4.2.5), which no signature covers and which may
/// have the same effect.
#[test]
fn altered_messages_are_refused() {
    scenario("protect::altered_messages_are_refused", |realm| {
        let keytab = populate(realm);
        let (client, service) = (client(), service(&keytab));
        for seed in seeds(20) {
            let replay = format!("DAFS_GSS_SEED={seed} cargo test -p dafs-gss altered_messages");
            let mut dice = Random::new(seed);
            let (mut ours, mut theirs) = meet(&client, &service);
            let message = dice.bytes(100);
            for protection in [Protection::Integrity, Protection::Privacy] {
                let whole = ours.wrap(protection, &message).unwrap();
                let opened = (0..200).find_map(|_| {
                    let altered = mutate(&whole, &mut dice);
                    Some((theirs.unwrap(protection, &altered).ok()?, altered))
                });
                let outcome = theirs.unwrap(protection, &whole);
                if let Some((opened, altered)) = opened {
                    assert_eq!(opened, message, "{replay}");
                    assert!(altered[..6] == whole[..6] && altered[8..] == whole[8..], "{replay}");
                    assert_eq!(reason(outcome), Reason::Replayed, "{replay}");
                } else {
                    assert_eq!(outcome.unwrap(), message, "{replay}");
                }
            }
            let mic = ours.get_mic(&message).unwrap();
            for _ in 0..200 {
                let altered = mutate(&mic, &mut dice);
                assert!(theirs.verify_mic(&message, &altered).is_err(), "{replay}");
            }
            theirs.verify_mic(&message, &mic).unwrap();
        }
    });
}
