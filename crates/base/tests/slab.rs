//! Compares the table with a model that never reuses a key.

use std::collections::HashMap;

use dafs_base::{Key, Slab};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Insert(u32),
    /// Removes one of the keys ever returned, so that many are stale.
    Remove(usize),
    Change(usize, u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        any::<u32>().prop_map(Step::Insert),
        any::<usize>().prop_map(Step::Remove),
        (any::<usize>(), any::<u32>()).prop_map(|(key, value)| Step::Change(key, value)),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn a_key_finds_its_own_value_or_nothing(bound in 1..40u32, steps in steps()) {
        let mut slab = Slab::bounded(bound);
        let mut model: HashMap<Key<u32>, u32> = HashMap::new();
        let mut known: Vec<Key<u32>> = Vec::new();
        for step in steps {
            match step {
                Step::Insert(value) => match slab.try_insert(value) {
                    Ok(key) => {
                        prop_assert!(!known.contains(&key), "a key comes up once");
                        prop_assert!(key.index() < bound, "freed places are used first");
                        model.insert(key, value);
                        known.push(key);
                    }
                    Err(given_back) => {
                        prop_assert_eq!(given_back, value);
                        prop_assert_eq!(model.len(), bound as usize);
                    }
                },
                Step::Remove(at) if !known.is_empty() => {
                    let key = known[at % known.len()];
                    prop_assert_eq!(slab.remove(key), model.remove(&key));
                }
                Step::Change(at, value) if !known.is_empty() => {
                    let key = known[at % known.len()];
                    if let Some(there) = slab.get_mut(key) {
                        *there = value;
                    }
                    model.entry(key).and_modify(|there| *there = value);
                }
                Step::Remove(_) | Step::Change(..) => {}
            }
            for &key in &known {
                prop_assert_eq!(slab.get(key), model.get(&key));
                prop_assert_eq!(Key::from_bits(key.to_bits()), key);
                prop_assert_ne!(key.to_bits(), 0);
            }
            prop_assert_eq!(slab.len(), model.len());
            let all: HashMap<Key<u32>, u32> = slab.iter().map(|(key, there)| (key, *there)).collect();
            prop_assert_eq!(&all, &model);
            for key in slab.keys() {
                prop_assert_eq!(slab.key_at(key.index()), Some(key));
            }
        }
    }
}

#[test]
fn the_place_that_was_freed_last_is_used_first() {
    let mut slab = Slab::new();
    let [a, b, c] = ['a', 'b', 'c'].map(|value| slab.insert(value));
    assert_eq!(a, Key::FIRST);
    slab.remove(a);
    slab.remove(c);
    assert_eq!(slab.insert('d').index(), c.index());
    assert_eq!(slab.insert('e').index(), a.index());
    assert_eq!(slab.values().collect::<String>(), "ebd");
    assert_eq!((slab[b], slab.contains(a), slab.contains(Key::NULL)), ('b', false, false));
    assert_eq!(slab.get(Key::from_bits(0)), None);
}
