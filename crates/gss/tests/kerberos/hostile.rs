//! Tokens that no honest peer sends.

use std::sync::Arc;

use dafs_gss::{
    Acceptor, Credential, CredentialSource, KERBEROS_OID, Protection, Reason, Service,
    ServiceOptions, TOKEN_BYTES_MAX,
};
use dafs_types::Random;

use crate::parties::{SERVICE, answer, call, client, library, meet, populate, reason, service};
use crate::realm::{Realm, scenario};

/// The variable that selects one seed.
const SEED_VARIABLE: &str = "DAFS_GSS_SEED";
/// The number of mutations of one valid token.
const MUTATIONS: u64 = 10_000;
/// The number of repetitions that would show a leak.
const WORN_COUNT: usize = 600;

/// Returns the seeds of a random test: `count` of them, or the one to replay.
pub(crate) fn seeds(count: u64) -> std::ops::Range<u64> {
    let only = std::env::var(SEED_VARIABLE).ok().and_then(|seed| seed.parse::<u64>().ok());
    only.map_or(0..count, |seed| seed..seed + 1)
}

/// Returns a mutation of a token, never the token itself. A seed reproduces the mutation. The token
/// differs in each run, because its keys do.
pub(crate) fn mutate(token: &[u8], dice: &mut Random) -> Vec<u8> {
    let mut mutant = token.to_vec();
    for _ in 0..=dice.below(3) {
        let at = dice.below(mutant.len());
        match dice.below(8) {
            0..=3 if !mutant.is_empty() => mutant[at] ^= 1 << dice.below(8),
            4 if !mutant.is_empty() => mutant[at] = dice.bytes(1)[0],
            5 => mutant.truncate(at),
            6 => {
                let length = dice.below(20);
                let extra = dice.bytes(length);
                mutant.splice(at..at, extra);
            }
            _ => {
                let end = (at + 1 + dice.below(8)).min(mutant.len());
                mutant.drain(at.min(end)..end);
            }
        }
    }
    if mutant == token {
        mutant.push(0);
    }
    mutant
}

/// Returns bytes in the frame of a first token of Kerberos V.
fn framed(body: &[u8]) -> Vec<u8> {
    let inner = [&[6, 9], KERBEROS_OID, &[1, 0], body].concat();
    let length = u16::try_from(inner.len()).unwrap().to_be_bytes();
    [&[0x60, 0x82], length.as_slice(), &inner].concat()
}

#[test]
fn a_token_is_good_once() {
    scenario("hostile::a_token_is_good_once", |realm| {
        let keytab = populate(realm);
        let (first, again) = (service(&keytab), service(&keytab));
        let (_, token) = call(&client(), SERVICE).unwrap();
        answer(Acceptor::new(Arc::clone(&first)), &token).unwrap();
        for service in [first, again] {
            let refusal = answer(Acceptor::new(service), &token).unwrap_err();
            assert_eq!(refusal.reason(), Reason::Replayed, "{refusal}");
            assert!(refusal.reply().is_some(), "an honest client may be told");
        }
    });
}

#[test]
fn a_named_replay_cache_is_shared_by_who_names_it() {
    scenario("hostile::a_named_replay_cache_is_shared_by_who_names_it", |realm| {
        let options = |cache: &str| ServiceOptions {
            name: Some(SERVICE.parse().unwrap()),
            keytab: Some(realm.path("service.keytab")),
            replay_cache: Some(realm.path(cache)),
        };
        populate(realm);
        let acquire = |cache| Arc::new(Service::acquire(&library(), &options(cache)).unwrap());
        let (_, token) = call(&client(), SERVICE).unwrap();
        answer(Acceptor::new(acquire("one.rcache")), &token).unwrap();
        assert!(realm.path("one.rcache").exists());
        let outcome = answer(Acceptor::new(acquire("one.rcache")), &token);
        assert_eq!(reason(outcome), Reason::Replayed);
        // Another replay cache does not know the token. So the system's cache is the default.
        answer(Acceptor::new(acquire("two.rcache")), &token).unwrap();
    });
}

#[test]
fn a_replay_cache_that_cannot_be_written_lets_nobody_in() {
    scenario("hostile::a_replay_cache_that_cannot_be_written_lets_nobody_in", |realm| {
        let keytab = populate(realm);
        let options = ServiceOptions {
            name: None,
            keytab: Some(keytab),
            replay_cache: Some(realm.path("no such folder/rcache")),
        };
        let service = Arc::new(Service::acquire(&library(), &options).unwrap());
        let (_, token) = call(&client(), SERVICE).unwrap();
        assert!(answer(Acceptor::new(service), &token).is_err());
    });
}

#[test]
fn garbage_is_refused() {
    scenario("hostile::garbage_is_refused", |realm| {
        let service = service(&populate(realm));
        let step = |token: &[u8]| reason(answer(Acceptor::new(Arc::clone(&service)), token));
        assert_eq!(step(&[]), Reason::TokenDefective);
        assert_eq!(step(&vec![0x60; TOKEN_BYTES_MAX + 1]), Reason::TokenTooLong);
        assert_eq!(step(&framed(&[])), Reason::TokenDefective);
        let spnego = [0x60, 8, 6, 6, 0x2b, 6, 1, 5, 5, 2];
        assert_eq!(step(&spnego), Reason::MechanismUnknown);
        for seed in seeds(300) {
            let replay = format!("DAFS_GSS_SEED={seed} cargo test -p dafs-gss garbage");
            let mut dice = Random::new(seed);
            let length = dice.below(700);
            let garbage = dice.bytes(length);
            for token in [framed(&garbage), garbage] {
                let refusal = answer(Acceptor::new(Arc::clone(&service)), &token).unwrap_err();
                assert_eq!(refusal.reason(), Reason::TokenDefective, "{replay}: {refusal}");
            }
        }
    });
}

#[test]
fn a_cut_token_is_refused() {
    scenario("hostile::a_cut_token_is_refused", |realm| {
        let service = service(&populate(realm));
        let (_, token) = call(&client(), SERVICE).unwrap();
        for length in 0..token.len() {
            let outcome = answer(Acceptor::new(Arc::clone(&service)), &token[..length]);
            assert_eq!(outcome.unwrap_err().reason(), Reason::TokenDefective, "{length} bytes");
        }
        // The token is cut within its frame, so that the library sees it.
        let body = &token[token.len() - 400..];
        for length in 0..body.len() {
            let cut = framed(&body[..length]);
            let outcome = answer(Acceptor::new(Arc::clone(&service)), &cut);
            assert_eq!(outcome.unwrap_err().reason(), Reason::TokenDefective, "{length} bytes");
        }
        answer(Acceptor::new(service), &token).unwrap();
    });
}

/// Returns the encrypted part at the end of a Kerberos V reply. Everything before it is framing:
/// tags, lengths, and the type and version of the key. A reader correctly skips unknown parts of
/// the framing.
fn sealed_part(reply: &[u8]) -> &[u8] {
    let frame = [&[6, 9], KERBEROS_OID, &[2, 0]].concat();
    let start = reply.windows(frame.len()).position(|window| window == frame).unwrap();
    let mut rest = &reply[start + frame.len()..];
    loop {
        let (tag, content, behind) = element(rest);
        match (behind.is_empty(), tag) {
            (true, OCTET_STRING) => return content,
            (true, _) => rest = content,
            (false, _) => rest = behind,
        }
    }
}

/// Returns the first DER element: its tag, its contents, and the following bytes.
fn element(bytes: &[u8]) -> (u8, &[u8], &[u8]) {
    let [tag, length, rest @ ..] = bytes else { panic!("no element: {bytes:02x?}") };
    let (length, rest) = match length {
        0..0x80 => (usize::from(*length), rest),
        _ => {
            let (long, rest) = rest.split_at(usize::from(length & 0x7f));
            (long.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
    };
    let (content, behind) = rest.split_at(length);
    (*tag, content, behind)
}

const OCTET_STRING: u8 = 4;

/// Only the encrypted part of a reply authenticates the server.
#[test]
fn a_server_that_answers_with_garbage_is_not_believed() {
    scenario("hostile::a_server_that_answers_with_garbage_is_not_believed", |realm| {
        let service = service(&populate(realm));
        let credential = client();
        let exchange = || {
            let (initiator, token) = call(&credential, SERVICE).unwrap();
            let (_, reply) = answer(Acceptor::new(Arc::clone(&service)), &token).unwrap();
            (initiator, reply)
        };
        for seed in seeds(200) {
            let replay = format!("DAFS_GSS_SEED={seed} cargo test -p dafs-gss answers_with");
            let mut dice = Random::new(seed);
            let (initiator, reply) = exchange();
            let altered = mutate(&reply, &mut dice);
            let sealed = sealed_part(&reply);
            let is_intact = altered.windows(sealed.len()).any(|window| window == sealed);
            let outcome = initiator.step(Some(&altered));
            assert!(outcome.is_err() || is_intact, "{replay}: {altered:02x?} of {reply:02x?}");
        }
        // No byte of the encrypted part may be changed.
        let (initiator, reply) = exchange();
        initiator.step(Some(&reply)).unwrap();
        for from_end in 1..=sealed_part(&reply).len() {
            let (initiator, mut reply) = exchange();
            // This reply may be shorter, because its numbers may be.
            if from_end <= sealed_part(&reply).len() {
                let at = reply.len() - from_end;
                reply[at] ^= 1 << (from_end % 8);
                assert!(initiator.step(Some(&reply)).is_err(), "{from_end} bytes before the end");
            }
        }
        // The reply of another connection, and this side's own token sent back.
        let (initiator, own) = call(&credential, SERVICE).unwrap();
        assert!(initiator.step(Some(&own)).is_err());
        let (_, token) = call(&credential, SERVICE).unwrap();
        let (_, reply) = answer(Acceptor::new(Arc::clone(&service)), &token).unwrap();
        let (initiator, _) = call(&credential, SERVICE).unwrap();
        assert!(initiator.step(Some(&reply)).is_err());
    });
}

/// Every mutation of a token is refused after the token itself was accepted: the replay cache
/// catches changes that no signature covers.
#[test]
fn altered_tokens_are_refused() {
    scenario("hostile::altered_tokens_are_refused", |realm| {
        let service = service(&populate(realm));
        let (_, token) = call(&client(), SERVICE).unwrap();
        answer(Acceptor::new(Arc::clone(&service)), &token).unwrap();
        for seed in seeds(MUTATIONS) {
            let altered = mutate(&token, &mut Random::new(seed));
            let outcome = answer(Acceptor::new(Arc::clone(&service)), &altered);
            let replay = format!("DAFS_GSS_SEED={seed} cargo test -p dafs-gss altered_tokens");
            assert!(outcome.is_err(), "{replay}");
        }
        // The service still works.
        let (_, token) = call(&client(), SERVICE).unwrap();
        answer(Acceptor::new(service), &token).unwrap();
    });
}

/// Returns the number of resident bytes of this process.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Creates and releases every kind of handle and buffer.
fn wear(service: &Arc<Service>, credential: &Arc<Credential>, realm: &Realm) {
    let (mut ours, mut theirs) = meet(credential, service);
    let wrapped = ours.wrap(Protection::Privacy, b"hidden").unwrap();
    theirs.unwrap(Protection::Privacy, &wrapped).unwrap();
    let mic = theirs.get_mic(b"signed").unwrap();
    ours.verify_mic(b"signed", &mic).unwrap();
    let (half_made, token) = call(credential, SERVICE).unwrap();
    answer(Acceptor::new(Arc::clone(service)), &token).unwrap();
    answer(Acceptor::new(Arc::clone(service)), &token).unwrap_err();
    answer(Acceptor::new(Arc::clone(service)), &framed(b"garbage")).unwrap_err();
    drop(half_made);
    library().local_name(theirs.peer()).unwrap();
    let options = ServiceOptions {
        name: Some(SERVICE.parse().unwrap()),
        keytab: Some(realm.path("service.keytab")),
        replay_cache: None,
    };
    Service::acquire(&library(), &options).unwrap();
    Credential::acquire(&library(), &CredentialSource::Default).unwrap();
}

/// The smallest possible leak is a buffer of some hundred bytes.
#[test]
fn nothing_is_left_behind() {
    scenario("hostile::nothing_is_left_behind", |realm| {
        let service = service(&populate(realm));
        let credential = client();
        (0..WORN_COUNT).for_each(|_| wear(&service, &credential, realm));
        let settled = resident();
        (0..WORN_COUNT).for_each(|_| wear(&service, &credential, realm));
        let grown = resident().saturating_sub(settled);
        println!("{grown} bytes more, {settled} before");
        assert!(grown < WORN_COUNT * 32, "{grown} bytes more after {WORN_COUNT} contexts");
    });
}
