//! An interval tree of the locks of one file, ordered by the bytes that they cover.
//!
//! Invariant: the tree is a treap over (first byte, lock), and each node stores the largest last
//! byte of its subtree. The priority of a node is a hash of its key, so the shape of the tree
//! depends only on the keys. Therefore equal calls build equal trees, and a client that chooses the
//! offsets cannot make the tree deep without inverting the hash.

use std::ops::ControlFlow;

use super::action::HoldKey;
use super::range::ByteRange;

/// The index that means "no node".
const NONE: u32 = u32::MAX;

/// A set of ranges, each with the key of a lock. The ranges may overlap. Insertion and removal take
/// logarithmic time. A search takes logarithmic time plus one step for each range found.
#[derive(Debug)]
pub(super) struct IntervalTree {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: u32,
}

#[derive(Debug)]
struct Node {
    range: ByteRange,
    value: HoldKey,
    priority: u64,
    /// The largest last byte of all ranges in the subtree.
    reach: u64,
    left: u32,
    right: u32,
}

impl Default for IntervalTree {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), root: NONE }
    }
}

impl IntervalTree {
    /// Adds a range. No two ranges may have the same first byte and the same value.
    pub(super) fn insert(&mut self, range: ByteRange, value: HoldKey) {
        let node = Node {
            range,
            value,
            priority: mix(range.first() ^ mix(value.to_bits())),
            reach: range.last(),
            left: NONE,
            right: NONE,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        let (left, right) = self.split(self.root, (range.first(), value));
        let left = self.merge(left, at);
        self.root = self.merge(left, right);
    }

    /// Removes a range, which must be in the tree.
    pub(super) fn remove(&mut self, range: ByteRange, value: HoldKey) {
        self.root = self.remove_below(self.root, (range.first(), value));
    }

    /// Calls `visit` with the values of all ranges that overlap `range`, ordered by first byte,
    /// until `visit` breaks.
    pub(super) fn search<B>(
        &self,
        range: ByteRange,
        visit: &mut impl FnMut(HoldKey) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.search_below(self.root, range, visit)
    }

    fn search_below<B>(
        &self,
        at: u32,
        range: ByteRange,
        visit: &mut impl FnMut(HoldKey) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let Some(node) = self.nodes.get(at as usize) else { return ControlFlow::Continue(()) };
        if node.reach < range.first() {
            return ControlFlow::Continue(());
        }
        self.search_below(node.left, range, visit)?;
        if node.range.first() > range.last() {
            return ControlFlow::Continue(());
        }
        if node.range.overlaps(range) {
            visit(node.value)?;
        }
        self.search_below(node.right, range, visit)
    }

    fn remove_below(&mut self, at: u32, key: (u64, HoldKey)) -> u32 {
        assert_ne!(at, NONE, "a range that is removed is in the tree");
        let (left, right) = (self.nodes[at as usize].left, self.nodes[at as usize].right);
        match key.cmp(&self.key(at)) {
            std::cmp::Ordering::Equal => {
                self.free.push(at);
                return self.merge(left, right);
            }
            std::cmp::Ordering::Less => {
                self.nodes[at as usize].left = self.remove_below(left, key);
            }
            std::cmp::Ordering::Greater => {
                self.nodes[at as usize].right = self.remove_below(right, key);
            }
        }
        self.update(at);
        at
    }

    /// Splits a tree into a tree of the keys below `key` and a tree of all other keys.
    fn split(&mut self, at: u32, key: (u64, HoldKey)) -> (u32, u32) {
        if at == NONE {
            return (NONE, NONE);
        }
        if self.key(at) < key {
            let (left, right) = self.split(self.nodes[at as usize].right, key);
            self.nodes[at as usize].right = left;
            self.update(at);
            (at, right)
        } else {
            let (left, right) = self.split(self.nodes[at as usize].left, key);
            self.nodes[at as usize].left = right;
            self.update(at);
            (left, at)
        }
    }

    /// Joins two trees. All keys of the first tree must be less than those of the second.
    fn merge(&mut self, left: u32, right: u32) -> u32 {
        if left == NONE || right == NONE {
            return if left == NONE { right } else { left };
        }
        if self.nodes[left as usize].priority >= self.nodes[right as usize].priority {
            self.nodes[left as usize].right = self.merge(self.nodes[left as usize].right, right);
            self.update(left);
            left
        } else {
            self.nodes[right as usize].left = self.merge(left, self.nodes[right as usize].left);
            self.update(right);
            right
        }
    }

    fn key(&self, at: u32) -> (u64, HoldKey) {
        let node = &self.nodes[at as usize];
        (node.range.first(), node.value)
    }

    fn update(&mut self, at: u32) {
        let node = &self.nodes[at as usize];
        let below = |child: u32| self.nodes.get(child as usize).map_or(0, |child| child.reach);
        let reach = node.range.last().max(below(node.left)).max(below(node.right));
        self.nodes[at as usize].reach = reach;
    }
}

fn mix(value: u64) -> u64 {
    let mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use dafs_types::{Entropy, Random};

    use super::*;

    fn key(number: u32) -> HoldKey {
        HoldKey::from_bits(u64::from(number))
    }

    fn found(tree: &IntervalTree, range: ByteRange) -> Vec<HoldKey> {
        let mut values = Vec::new();
        let flow = tree.search(range, &mut |value| {
            values.push(value);
            ControlFlow::<()>::Continue(())
        });
        assert!(flow.is_continue());
        values
    }

    fn depth(tree: &IntervalTree, at: u32) -> usize {
        match tree.nodes.get(at as usize) {
            Some(node) => 1 + depth(tree, node.left).max(depth(tree, node.right)),
            None => 0,
        }
    }

    #[test]
    fn a_search_finds_the_same_ranges_as_a_list() {
        let mut random = Random::new(0x1e7);
        let (mut tree, mut list) = (IntervalTree::default(), Vec::new());
        for value in (0..4000).map(key) {
            if random.percent(45) && !list.is_empty() {
                let (range, value) = list.swap_remove(random.below(list.len()));
                tree.remove(range, value);
            } else {
                let first = random.next_u64() % 200;
                let range = ByteRange::new(first, 1 + random.next_u64() % 50).unwrap();
                tree.insert(range, value);
                list.push((range, value));
            }
            let asked = ByteRange::new(random.next_u64() % 250, 1 + random.next_u64() % 9).unwrap();
            let mut expected: Vec<_> = list.iter().filter(|(r, _)| r.overlaps(asked)).collect();
            expected.sort_by_key(|(range, value)| (range.first(), *value));
            let expected: Vec<HoldKey> = expected.iter().map(|(_, value)| *value).collect();
            assert_eq!(found(&tree, asked), expected, "seed 0x1e7, step {value:?}");
        }
    }

    #[test]
    fn the_tree_stays_shallow_with_rising_offsets_and_forgets_removed_ranges() {
        let mut tree = IntervalTree::default();
        let range = |at: u32| ByteRange::new(u64::from(at) * 4, 4).unwrap();
        (0..10_000).for_each(|at| tree.insert(range(at), key(at)));
        assert!(depth(&tree, tree.root) < 60, "depth {}", depth(&tree, tree.root));
        assert_eq!(found(&tree, ByteRange::new(4000, 5).unwrap()), [1000, 1001].map(key));
        (0..10_000).for_each(|at| tree.remove(range(at), key(at)));
        assert_eq!(tree.root, NONE);
        assert_eq!(tree.free.len(), 10_000);
    }

    #[test]
    fn a_search_stops_when_the_visitor_says_so() {
        let mut tree = IntervalTree::default();
        (0..9).map(key).for_each(|value| tree.insert(ByteRange::WHOLE, value));
        let flow = tree.search(ByteRange::WHOLE, &mut |value| match value {
            value if value == key(3) => ControlFlow::Break(value),
            _ => ControlFlow::Continue(()),
        });
        assert_eq!(flow, ControlFlow::Break(key(3)));
    }
}
