//! Transfers that take one copy and no time, as between processes that share memory.
//!
//! Invariant: such transfers access only memory that the peer has exposed and not withdrawn.

use dafs_memory::Memory;

use super::lane::Side;
use super::packet::Piece;
use super::state::State;
use crate::RemoteSegment;
use crate::region::RegionEntry;

impl State {
    /// Makes a region accessible to the peer.
    pub(crate) fn expose(&mut self, link: u64, side: usize, entry: &RegionEntry) {
        let is_wanted = self.config.at_once_ppm > 0 && entry.dmabuf.is_none();
        if let Some(link) = self.links.get_mut(&link).filter(|_| is_wanted) {
            link.sides[side].exposed.push(entry.clone());
        }
    }

    /// Withdraws a region from the peer.
    pub(crate) fn withdraw(&mut self, link: u64, side: usize, entry: &RegionEntry) {
        if let Some(link) = self.links.get_mut(&link) {
            link.sides[side].exposed.retain(|exposed| exposed.region.key != entry.region.key);
        }
    }

    /// Moves bytes between pieces of one side and memory of its peer. Returns false if no byte was
    /// moved.
    pub(crate) fn move_at_once(
        &mut self,
        (id, side): (u64, usize),
        pieces: &[Piece],
        remote: &RemoteSegment,
        write: bool,
    ) -> bool {
        let chance = self.config.at_once_ppm;
        if chance == 0 || !self.random.chance(chance) || self.is_parted(id) {
            return false;
        }
        let Some(link) = self.links.get(&id).filter(|link| !link.lanes[side].cut) else {
            return false;
        };
        let Some((theirs, mut at)) = link.sides[1 - side].reach(remote, write) else {
            return false;
        };
        for Piece { memory, offset, length } in pieces {
            match write {
                true => Memory::copy(memory, *offset, theirs, at, *length),
                false => Memory::copy(theirs, at, memory, *offset, *length),
            }
            at += length;
        }
        self.note("at-once", id, 1 - side, u64::from(remote.length));
        true
    }
}

impl Side {
    /// Returns the memory that the peer has exposed at `remote`, if the rights allow the access.
    fn reach(&self, remote: &RemoteSegment, write: bool) -> Option<(&Memory, usize)> {
        if self.gone || self.ended {
            return None;
        }
        let entry = self.exposed.iter().find(|entry| entry.region.stag == remote.stag)?;
        let may = if write { entry.rights.remote_write } else { entry.rights.remote_read };
        let at = usize::try_from(remote.address.checked_sub(entry.region.address)?).ok()?;
        let is_inside = entry.memory.contains(at, remote.length as usize);
        (may && is_inside).then_some((&entry.memory, at))
    }
}
