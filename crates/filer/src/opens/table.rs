//! The table of opens.
//!
//! Invariants:
//! - An open is either in all of these places or in none: its slot, its client's list, its file's
//!   list, the owner index, and its file's counts.
//! - A state id contains the index of its slot, so that READ and WRITE find their open without a
//!   search.

use std::hash::{BuildHasher, Hasher, RandomState};

use dafs_ops::Fault;
use dafs_types::{
    DeleteDisposition, QuickMap, RemoveMode, ShareAccess, ShareDeny, ShareKey, StateId, limits,
};
use hashbrown::HashTable;
use smallvec::SmallVec;

use super::share::{FileShares, Reservation, WRITE};
use super::{Closed, FileKey, IoKind, OpenArguments, Opened, RemoveDecision};
use crate::clients::ClientKey;
use crate::config::OPENS_LIMIT;

/// The number of bits of a slot's index in a state id. The layout of a state id: boot epoch,
/// generation of the slot, index of the slot.
const INDEX_BITS: u32 = 20;
const GENERATION_BITS: u32 = 20;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;
const EPOCH_SHIFT: u32 = INDEX_BITS + GENERATION_BITS;
const _: () = assert!(OPENS_LIMIT as u64 <= INDEX_MASK + 1);

/// The index that means "no slot".
const NONE: u32 = u32::MAX;

/// The name of an owner. Short names, which are the most common, are stored without an allocation.
type Owner = SmallVec<[u8; 16]>;

/// The opens of all clients.
#[derive(Debug)]
pub(crate) struct OpenTable {
    epoch: u64,
    opens_max: u32,
    per_client_max: u32,
    hot: Vec<HotOpen>,
    cold: Vec<ColdOpen>,
    /// The first slot in the list of free slots. The slot that has been free longest is reused
    /// first, so that generations wrap around as late as possible.
    free_first: u32,
    free_last: u32,
    count: u32,
    /// The number of opens with a deny mode. While it is zero, reads and writes with the anonymous
    /// state id need no search.
    denying: u32,
    files: QuickMap<FileKey, FileOpens>,
    owners: Owners,
}

/// An index that finds the open of a file by its owner.
///
/// Clients choose the names of owners, so the hash is SipHash with a secret key. One hash takes a
/// tenth of the time of an OPEN and a CLOSE, so the open stores its hash, which CLOSE uses again.
#[derive(Debug, Default)]
struct Owners {
    secret: RandomState,
    /// The slots of opens, by the hash of file, client and owner.
    slots: HashTable<u32>,
}

impl Owners {
    fn hash(&self, file: FileKey, client: ClientKey, owner: &[u8]) -> u64 {
        let mut hasher = self.secret.build_hasher();
        // Both words are hashed in one call, because a call costs more than the bytes.
        let mut both = [0; 16];
        both[..8].copy_from_slice(&file.0.to_le_bytes());
        both[8..].copy_from_slice(&client.to_bits().to_le_bytes());
        hasher.write(&both);
        hasher.write(owner);
        hasher.finish()
    }
}

/// The opens of one file.
#[derive(Debug)]
struct FileOpens {
    shares: FileShares,
    first: u32,
}

/// The fields of an open that READ and WRITE use.
#[derive(Debug)]
struct HotOpen {
    file: FileKey,
    client: ClientKey,
    generation: u32,
    held: Reservation,
}

/// The fields of an open that READ and WRITE do not use. `of_client` links the opens of one client,
/// `of_file` the opens of one file. In a free slot `of_client.next` links the free slots.
#[derive(Debug)]
struct ColdOpen {
    owner: Owner,
    /// The hash under which the open is in [`Owners`].
    owner_hash: u64,
    of_client: Links,
    of_file: Links,
}

/// The indexes of the neighbours of an open in a list.
#[derive(Clone, Copy, Debug)]
struct Links {
    next: u32,
    previous: u32,
}

/// The links of an open that has no neighbours.
const ALONE: Links = Links { next: NONE, previous: NONE };

/// Selects one of the two lists to which an open belongs: its client's or its file's.
type List = fn(&mut ColdOpen) -> &mut Links;

const OF_CLIENT: List = |open| &mut open.of_client;
const OF_FILE: List = |open| &mut open.of_file;

/// Puts an open at the front of a list.
#[inline(always)]
fn link(cold: &mut [ColdOpen], list: List, first: &mut u32, index: u32) {
    list(&mut cold[index as usize]).next = *first;
    if *first != NONE {
        list(&mut cold[*first as usize]).previous = index;
    }
    *first = index;
}

/// Removes an open from a list.
#[inline(always)]
fn unlink(cold: &mut [ColdOpen], list: List, first: &mut u32, index: u32) {
    let Links { next, previous } = *list(&mut cold[index as usize]);
    match previous {
        NONE => *first = next,
        _ => list(&mut cold[previous as usize]).next = next,
    }
    if next != NONE {
        list(&mut cold[next as usize]).previous = previous;
    }
}

/// The opens of one client, stored in the client's record.
#[derive(Debug)]
pub(crate) struct ClientOpens {
    first: u32,
    /// The number of opens.
    pub count: u32,
}

impl Default for ClientOpens {
    fn default() -> Self {
        Self { first: NONE, count: 0 }
    }
}

impl OpenTable {
    /// Creates an empty table. State ids contain 24 bits derived from `boot_seed`, which are never
    /// all zero, so that no state id equals [`StateId::ANONYMOUS`].
    pub(crate) fn new(boot_seed: u64, opens_max: u32, per_client_max: u32) -> Self {
        let folded = boot_seed ^ (boot_seed >> 24) ^ (boot_seed >> 48);
        Self {
            epoch: (folded & 0xff_ffff).max(1),
            opens_max,
            per_client_max,
            hot: Vec::new(),
            cold: Vec::new(),
            free_first: NONE,
            free_last: NONE,
            count: 0,
            denying: 0,
            files: QuickMap::default(),
            owners: Owners::default(),
        }
    }

    /// Returns the number of opens.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the number of files with an open.
    pub(crate) fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Handles OPEN: creates an open, or extends the open that the owner already has (draft
    /// 6.5.24).
    pub(crate) fn open(
        &mut self,
        client: ClientKey,
        opens: &mut ClientOpens,
        arguments: &OpenArguments<'_>,
    ) -> Result<Opened, Fault> {
        // The server puts a byte in front of the owners that clients of other protocols choose.
        if arguments.owner.len() > limits::OWNER_BYTES_MAX + 1 {
            return Err(Fault::Invalid);
        }
        let wanted = Reservation {
            access: arguments.access.number() as u8,
            deny: arguments.deny.number() as u8,
            deny_remove: arguments.disposition == DeleteDisposition::Deny,
            key: arguments.key,
        };
        let OpenArguments { file, owner, .. } = *arguments;
        let owner_hash = self.owners.hash(file, client, owner);
        let is_it = |&index: &u32| {
            let (hot, cold) = (&self.hot[index as usize], &self.cold[index as usize]);
            hot.file == file && hot.client == client && *cold.owner == *owner
        };
        if let Some(&index) = self.owners.slots.find(owner_hash, is_it) {
            return self.reopen(index, wanted);
        }
        if let Some(opens) = self.files.get(&arguments.file) {
            opens.shares.check(&wanted)?;
        }
        if self.count >= self.opens_max || opens.count >= self.per_client_max {
            return Err(Fault::Limit);
        }
        let owner = Owner::from_slice(owner);
        let index = self.occupy(file, client, wanted, (owner, owner_hash));
        let hash_of = |index: &u32| self.cold[*index as usize].owner_hash;
        self.owners.slots.insert_unique(owner_hash, index, hash_of);
        link(&mut self.cold, OF_CLIENT, &mut opens.first, index);
        opens.count += 1;
        let none = || FileOpens { shares: FileShares::default(), first: NONE };
        let FileOpens { shares, first } = self.files.entry(arguments.file).or_insert_with(none);
        link(&mut self.cold, OF_FILE, first, index);
        let first_of_file = shares.opens == 0;
        shares.add(&wanted);
        shares.unlinked |= arguments.unlinked;
        self.denying += u32::from(wanted.deny != 0);
        Ok(Opened { state_id: self.state_id(index), first_of_file, reopened: false })
    }

    /// Extends the open that the owner already has. The owner's own reservation never conflicts
    /// with its request: OPEN in RFC 3010 combines both with "or", and one CLOSE ends both.
    fn reopen(&mut self, index: u32, wanted: Reservation) -> Result<Opened, Fault> {
        let open = &mut self.hot[index as usize];
        let shares = shares_of(&mut self.files, open.file);
        shares.remove(&open.held);
        let joined = open.held.join(&wanted);
        // The key in force is checked before the owner's own key, because the owner may not present
        // a second key.
        let verdict = match (open.held.key, wanted.key) {
            (Some(held), Some(shown)) if held != shown => Err(Fault::KeyMismatch),
            _ => Ok(()),
        };
        if let Err(status) = shares.check(&joined).and(verdict) {
            shares.add(&open.held);
            return Err(status);
        }
        self.denying -= u32::from(open.held.deny != 0);
        self.denying += u32::from(joined.deny != 0);
        shares.add(&joined);
        open.held = joined;
        Ok(Opened { state_id: self.state_id(index), first_of_file: false, reopened: true })
    }

    /// Handles OPEN_DOWNGRADE (draft 6.5.26).
    pub(crate) fn downgrade(
        &mut self,
        client: ClientKey,
        state_id: StateId,
        file: FileKey,
        access: ShareAccess,
        deny: ShareDeny,
        key: Option<ShareKey>,
    ) -> Result<(), Fault> {
        let index = self.find(client, state_id, file)?;
        let open = &mut self.hot[index];
        let wanted = Reservation {
            access: access.number() as u8,
            deny: deny.number() as u8,
            deny_remove: open.held.deny_remove,
            key,
        };
        let more = wanted.access & !open.held.access | wanted.deny & !open.held.deny;
        if more != 0 || (key.is_some() && key != open.held.key) {
            return Err(Fault::Invalid);
        }
        let shares = shares_of(&mut self.files, file);
        shares.remove(&open.held);
        shares.add(&wanted);
        self.denying -= u32::from(open.held.deny != 0);
        self.denying += u32::from(wanted.deny != 0);
        open.held = wanted;
        Ok(())
    }

    /// Returns true if a CLOSE of this open would only end the open, and would not also delete the
    /// file.
    pub(crate) fn closes_alone(
        &self,
        client: ClientKey,
        state_id: StateId,
        file: FileKey,
    ) -> Result<bool, Fault> {
        self.find(client, state_id, file)?;
        Ok(self.files.get(&file).is_some_and(|opens| !opens.shares.unlinked))
    }

    /// Handles CLOSE. Returns the open that has ended.
    pub(crate) fn close(
        &mut self,
        client: ClientKey,
        opens: &mut ClientOpens,
        state_id: StateId,
        file: FileKey,
    ) -> Result<Closed, Fault> {
        let index = self.find(client, state_id, file)?;
        Ok(self.end(index as u32, opens))
    }

    /// Ends every open of a client.
    pub(crate) fn release(&mut self, opens: &mut ClientOpens, released: &mut Vec<Closed>) {
        while opens.first != NONE {
            let closed = self.end(opens.first, opens);
            released.push(closed);
        }
        debug_assert_eq!(opens.count, 0);
    }

    /// Checks whether a client may read or write under a state id.
    #[inline]
    pub(crate) fn check_io(
        &self,
        client: ClientKey,
        state_id: StateId,
        file: FileKey,
        kind: IoKind,
    ) -> Result<(), Fault> {
        let wanted = kind.access_bit();
        if state_id == StateId::ANONYMOUS {
            return self.check_anonymous(file, wanted);
        }
        let index = self.find(client, state_id, file)?;
        // Other opens need no check, because OPEN has refused conflicting deny modes.
        if self.hot[index].held.access & wanted == 0 { Err(Fault::OpenLacksAccess) } else { Ok(()) }
    }

    /// Returns two flags: the first is true if other clients have the file open, the second if they
    /// have it open for writing.
    pub(crate) fn others(&self, client: ClientKey, file: FileKey) -> (bool, bool) {
        let mut others = self.opens_of(file).filter(|&index| !self.is_of(index, client));
        let is_writing = |index: u32| self.hot[index as usize].held.access & WRITE != 0;
        match others.next() {
            None => (false, false),
            Some(first) => (true, is_writing(first) || others.any(is_writing)),
        }
    }

    /// Returns true if a client has the file open. Searches the shorter of two lists: the opens of
    /// the client and the opens of the file.
    pub(crate) fn is_open_by(&self, client: ClientKey, opens: &ClientOpens, file: FileKey) -> bool {
        let some = |index: u32| (index != NONE).then_some(index);
        let next = |&index: &u32| some(self.cold[index as usize].of_client.next);
        let of_client = std::iter::successors(some(opens.first), next);
        self.opens_of(file).zip(of_client).any(|(of_file, of_client)| {
            self.is_of(of_file, client) || self.hot[of_client as usize].file == file
        })
    }

    /// Returns the state ids under which a client has the file open. Searches the shorter of two
    /// lists, like [`OpenTable::is_open_by`].
    pub(crate) fn opens_by(
        &self,
        client: ClientKey,
        opens: &ClientOpens,
        file: FileKey,
    ) -> Vec<StateId> {
        let is_wanted = |index: &u32| {
            let open = &self.hot[*index as usize];
            open.client == client && open.file == file
        };
        let of_file = self.files.get(&file).map_or(0, |opens| opens.shares.opens);
        let found: Vec<u32> = if of_file < opens.count {
            self.opens_of(file).filter(is_wanted).collect()
        } else {
            let some = |index: u32| (index != NONE).then_some(index);
            let next = |&index: &u32| some(self.cold[index as usize].of_client.next);
            std::iter::successors(some(opens.first), next).filter(is_wanted).collect()
        };
        found.into_iter().map(|index| self.state_id(index)).collect()
    }

    fn opens_of(&self, file: FileKey) -> impl Iterator<Item = u32> + '_ {
        let some = |index: u32| (index != NONE).then_some(index);
        let first = self.files.get(&file).and_then(|opens| some(opens.first));
        std::iter::successors(first, move |&index| some(self.cold[index as usize].of_file.next))
    }

    fn is_of(&self, index: u32, client: ClientKey) -> bool {
        self.hot[index as usize].client == client
    }

    /// Returns the client and the lock owner of an open, and the access that the open allows.
    pub(crate) fn owner(
        &self,
        client: ClientKey,
        state_id: StateId,
        file: FileKey,
    ) -> Result<(&[u8], ShareAccess), Fault> {
        let index = self.find(client, state_id, file)?;
        let access = match self.hot[index].held.access {
            super::share::READ => ShareAccess::Read,
            super::share::WRITE => ShareAccess::Write,
            _ => ShareAccess::Both,
        };
        Ok((&self.cold[index].owner, access))
    }

    fn check_anonymous(&self, file: FileKey, wanted: u8) -> Result<(), Fault> {
        if self.denying == 0 {
            return Ok(());
        }
        match self.files.get(&file) {
            Some(opens) if opens.shares.denies(wanted) => Err(Fault::RangeLocked),
            _ => Ok(()),
        }
    }

    /// Returns the slot of a state id if the slot's open belongs to this client and this file.
    #[inline]
    fn find(&self, client: ClientKey, state_id: StateId, file: FileKey) -> Result<usize, Fault> {
        let index = (state_id.0 & INDEX_MASK) as usize;
        let generation = (state_id.0 >> INDEX_BITS) as u32 & GENERATION_MASK;
        match self.hot.get(index) {
            Some(open)
                if state_id.0 >> EPOCH_SHIFT == self.epoch
                    && open.generation == generation
                    && open.client == client
                    && open.file == file =>
            {
                Ok(index)
            }
            _ => Err(self.why_not(state_id)),
        }
    }

    /// Returns the fault that describes why a state id is invalid (draft 4.4.1.2, RFC 3010 8.1.3).
    /// In DAFS the state id of an open never changes, so OLD_STATEID means that the open has ended.
    #[cold]
    fn why_not(&self, state_id: StateId) -> Fault {
        let generation = (state_id.0 >> INDEX_BITS) as u32 & GENERATION_MASK;
        if state_id.0 >> EPOCH_SHIFT != self.epoch {
            return Fault::StaleState;
        }
        match self.hot.get((state_id.0 & INDEX_MASK) as usize) {
            Some(open) => {
                let behind = open.generation.wrapping_sub(generation) & GENERATION_MASK;
                let was_issued = behind != 0 && behind <= GENERATION_MASK / 2;
                if was_issued { Fault::OldState } else { Fault::BadState }
            }
            None => Fault::BadState,
        }
    }

    /// Checks whether a name of the file may be removed, given the file's opens (draft 6.5.33).
    pub(crate) fn remove_check(
        &self,
        file: FileKey,
        mode: RemoveMode,
    ) -> Result<RemoveDecision, Fault> {
        match (self.files.get(&file), mode) {
            (None, _) => Ok(RemoveDecision::Now),
            (Some(_), RemoveMode::CheckOpen) => Err(Fault::NameHeldOpen),
            (Some(opens), RemoveMode::Unchecked) if opens.shares.denies_remove() => {
                Err(Fault::NameHeldOpen)
            }
            (Some(_), RemoveMode::Unchecked) => Ok(RemoveDecision::KeepDataUntilLastClose),
        }
    }

    /// Records whether an open file has no name. Returns false if the file is not open.
    pub(crate) fn set_unlinked(&mut self, file: FileKey, unlinked: bool) -> bool {
        match self.files.get_mut(&file) {
            Some(opens) => {
                opens.shares.unlinked = unlinked;
                true
            }
            None => false,
        }
    }

    /// Returns true if any client has the file open.
    pub(crate) fn is_open(&self, file: FileKey) -> bool {
        self.files.contains_key(&file)
    }

    fn state_id(&self, index: u32) -> StateId {
        let generation = u64::from(self.hot[index as usize].generation);
        StateId(self.epoch << EPOCH_SHIFT | generation << INDEX_BITS | u64::from(index))
    }

    fn occupy(
        &mut self,
        file: FileKey,
        client: ClientKey,
        held: Reservation,
        (owner, owner_hash): (Owner, u64),
    ) -> u32 {
        self.count += 1;
        let open = ColdOpen { owner, owner_hash, of_client: ALONE, of_file: ALONE };
        let index = self.free_first;
        if index == NONE {
            self.hot.push(HotOpen { file, client, generation: 0, held });
            self.cold.push(open);
            return (self.hot.len() - 1) as u32;
        }
        let cold = &mut self.cold[index as usize];
        self.free_first = cold.of_client.next;
        if self.free_first == NONE {
            self.free_last = NONE;
        }
        *cold = open;
        let generation = self.hot[index as usize].generation;
        self.hot[index as usize] = HotOpen { file, client, generation, held };
        index
    }

    fn end(&mut self, index: u32, opens: &mut ClientOpens) -> Closed {
        let state_id = self.state_id(index);
        unlink(&mut self.cold, OF_CLIENT, &mut opens.first, index);
        opens.count -= 1;
        let open = &mut self.cold[index as usize];
        // A long name has an allocation, which is freed here.
        open.owner = Owner::new();
        match self.owners.slots.find_entry(open.owner_hash, |slot| *slot == index) {
            Ok(entry) => drop(entry.remove()),
            Err(_) => debug_assert!(false, "an open has an owner"),
        }
        let open = &self.hot[index as usize];
        let (file, held) = (open.file, open.held);
        self.denying -= u32::from(held.deny != 0);
        debug_assert!(self.count > 1 || (self.denying == 0 && self.owners.slots.is_empty()));
        let opens = self.files.get_mut(&file).expect("an open file has opens");
        opens.shares.remove(&held);
        let last_of_file = opens.shares.opens == 0;
        let delete = last_of_file && opens.shares.unlinked;
        if last_of_file {
            self.files.remove(&file);
        } else {
            unlink(&mut self.cold, OF_FILE, &mut opens.first, index);
        }
        self.vacate(index);
        Closed { file, state_id, last_of_file, delete }
    }

    fn vacate(&mut self, index: u32) {
        let open = &mut self.hot[index as usize];
        open.client = ClientKey::FREE_OPEN;
        open.generation = open.generation.wrapping_add(1) & GENERATION_MASK;
        self.cold[index as usize].of_client.next = NONE;
        match self.free_last {
            NONE => self.free_first = index,
            last => self.cold[last as usize].of_client.next = index,
        }
        self.free_last = index;
        self.count -= 1;
    }
}

fn shares_of(files: &mut QuickMap<FileKey, FileOpens>, file: FileKey) -> &mut FileShares {
    &mut files.get_mut(&file).expect("an open file has opens").shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_knows_who_has_it_open_whatever_order_they_end_in() {
        let file = FileKey(7);
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut table = OpenTable::new(1, 8, 8);
            let mut opens: Vec<ClientOpens> = (0..3).map(|_| ClientOpens::default()).collect();
            let mut states = Vec::new();
            for (client, opens) in (0..).map(ClientKey::of_test).zip(&mut opens) {
                let access = if client == ClientKey::of_test(1) {
                    ShareAccess::Write
                } else {
                    ShareAccess::Read
                };
                let arguments = OpenArguments::plain(file, b"owner", access);
                states.push(table.open(client, opens, &arguments).unwrap().state_id);
            }
            let mut left = vec![0, 1, 2];
            for ended in order {
                let (client, opens) = (ClientKey::of_test(ended), &mut opens[ended as usize]);
                table.close(client, opens, states[ended as usize], file).unwrap();
                left.retain(|client| *client != ended);
                for asker in 0..4 {
                    let others: Vec<_> = left.iter().filter(|client| **client != asker).collect();
                    let wanted = (!others.is_empty(), others.contains(&&1));
                    assert_eq!(table.others(ClientKey::of_test(asker), file), wanted, "{order:?}");
                }
            }
            assert_eq!((table.count(), table.file_count()), (0, 0));
        }
    }
}
