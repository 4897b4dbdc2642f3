//! Every type of every program survives encoding. Truncated or damaged messages are refused or
//! decode to something else, but never panic.

use dafs_nfs_wire::fuzzing::{codecs, generate, refusal, same_again};
use dafs_types::Random;
use proptest::prelude::*;

/// Returns a valid encoding of a type.
fn encoding(shape: &'static dafs_nfs_wire::xdr::Shape, seed: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    generate(shape, seed, &mut bytes);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn values_come_back(seed in any::<u64>()) {
        for (name, codec) in codecs() {
            let bytes = encoding(codec.shape, seed);
            prop_assert_eq!((codec.recode)(&bytes), Ok(bytes), "{}", name);
        }
    }

    #[test]
    fn cut_values_are_refused(seed in any::<u64>()) {
        for (name, codec) in codecs() {
            let bytes = encoding(codec.shape, seed);
            // Longer messages are cut at fewer places.
            let step = bytes.len() / 200 + 1;
            for cut in (0..bytes.len()).step_by(step) {
                let error = refusal(codec, &bytes[..cut]);
                prop_assert!(error.is_some(), "{} of {} bytes, cut at {}", name, bytes.len(), cut);
            }
        }
    }

    #[test]
    fn numbers_that_lie_do_no_harm(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        for (_, codec) in codecs() {
            let bytes = encoding(codec.shape, seed);
            if bytes.is_empty() {
                continue;
            }
            for lie in [u32::MAX, 1 << 31, 0x00ff_ffff, 0x1000, 2, 1, 0] {
                let mut bytes = bytes.clone();
                let at = random.below(bytes.len()) / 4 * 4;
                bytes[at..at + 4].copy_from_slice(&lie.to_be_bytes());
                same_again(codec, &bytes);
            }
        }
    }

    #[test]
    fn any_padding_is_accepted(seed in any::<u64>()) {
        let text = &b"abcdefghijklmnop"[..seed as usize % 17];
        let value = dafs_nfs_wire::xdr::Opaque::<16>(text);
        let bytes = dafs_nfs_wire::xdr::encode_whole(&value).unwrap();
        let mut other = bytes.clone();
        other[4 + text.len()..].fill(seed as u8);
        prop_assert_eq!(dafs_nfs_wire::xdr::decode_whole(&other), Ok(value));
    }
}

#[test]
fn every_arm_is_generated() {
    // Each type has another encoding for some other seed, unless it has no content.
    for (name, codec) in codecs() {
        let all: std::collections::BTreeSet<Vec<u8>> =
            (0..20).map(|seed| encoding(codec.shape, seed)).collect();
        let is_empty = all.contains(&Vec::new());
        assert!(all.len() > 1 || is_empty, "{name} has only {all:?}");
    }
}
