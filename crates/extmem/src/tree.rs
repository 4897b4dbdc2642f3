//! A loser tree, which finds the record that comes first among many sorted sources.
//!
//! Each inner node stores the source that lost there. So finding the next winner takes one
//! comparison per level.
//!
//! Invariant: the winner's record comes first. Of equal records, that of the source with the
//! smaller index comes first, so a merge is stable.

use crate::error::{Error, Result};
use crate::source::Source;

/// A set of sources and the tournament between them.
pub struct LoserTree<S> {
    sources: Vec<S>,
    /// For each source, whether it has ended, and otherwise the prefix of its record, which is
    /// compared before whole records. Ended sources sort after all others.
    heads: Vec<Head>,
    /// The losers of the nodes from 1 on. The parent of leaf `index` is `(count + index) / 2`.
    losers: Vec<usize>,
    winner: usize,
    /// The number of records taken from each source, to name one that is out of order.
    taken: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    is_ended: bool,
    prefix: u64,
}

impl<S: Source> LoserTree<S> {
    /// Moves each source to its first record and builds the tree.
    ///
    /// # Errors
    /// The error of a source.
    pub fn new(sources: Vec<S>) -> Result<Self> {
        let count = sources.len();
        let mut tree = Self {
            sources,
            heads: vec![Head { is_ended: true, prefix: 0 }; count],
            losers: vec![0; count],
            winner: 0,
            taken: vec![0; count],
        };
        for index in 0..count {
            if tree.sources[index].advance()? {
                let prefix = tree.sources[index].prefix();
                tree.heads[index] = Head { is_ended: false, prefix };
            }
        }
        tree.play();
        Ok(tree)
    }

    /// Plays all matches of the tournament.
    fn play(&mut self) {
        let count = self.sources.len();
        let mut winners = vec![0; 2 * count];
        for (index, winner) in winners[count..].iter_mut().enumerate() {
            *winner = index;
        }
        for node in (1..count).rev() {
            let (left, right) = (winners[2 * node], winners[2 * node + 1]);
            let is_right = self.comes_before(right, left);
            winners[node] = if is_right { right } else { left };
            self.losers[node] = if is_right { left } else { right };
        }
        self.winner = winners.get(1).copied().unwrap_or(0);
    }

    #[inline]
    fn comes_before(&self, left: usize, right: usize) -> bool {
        let (a, b) = (self.heads[left], self.heads[right]);
        if a != b {
            return a < b;
        }
        if a.is_ended {
            return left < right;
        }
        self.sources[left].compare(&self.sources[right]).then(left.cmp(&right)).is_lt()
    }

    /// Returns the source whose record comes first, or `None` if all have ended.
    #[must_use]
    #[inline]
    pub fn first(&self) -> Option<&S> {
        let is_ended = self.heads.get(self.winner).is_none_or(|head| head.is_ended);
        if is_ended { None } else { Some(&self.sources[self.winner]) }
    }

    /// Moves past the record that comes first.
    ///
    /// # Errors
    /// The error of the source; [`Error::OutOfOrder`] if the prefixes show that its next record
    /// belongs before this one.
    #[inline]
    pub fn advance(&mut self) -> Result<()> {
        let index = self.winner;
        let source = &mut self.sources[index];
        let is_ended = !source.advance()?;
        let prefix = source.prefix();
        self.taken[index] += 1;
        if !is_ended && prefix < self.heads[index].prefix {
            let (file, record) = (source.name().to_owned(), self.taken[index] + 1);
            return Err(Error::OutOfOrder { file, record });
        }
        self.heads[index] = Head { is_ended, prefix };
        let mut winner = index;
        let mut node = (self.sources.len() + index) / 2;
        while node > 0 {
            if self.comes_before(self.losers[node], winner) {
                std::mem::swap(&mut self.losers[node], &mut winner);
            }
            node /= 2;
        }
        self.winner = winner;
        Ok(())
    }
}
