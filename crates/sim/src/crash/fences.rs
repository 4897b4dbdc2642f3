//! The checker of fencing lists. The server must refuse a member that the list has excluded during
//! the whole request, and must not refuse a member that the list has admitted during the whole
//! request.
//!
//! Invariant: while a change of the list is in flight, both results are allowed.

use std::collections::BTreeMap;

use super::cells::Tick;
use super::requests::{File, MemberIndex};

#[derive(Debug, Default)]
struct Fence {
    /// The members that the list admits. If it is empty, the list admits all members.
    members: Vec<MemberIndex>,
    /// The moment since which this list has been in force.
    since: Tick,
    /// The moment at which the most recent change began.
    begun: Tick,
    is_changing: bool,
}

/// The fencing lists of all files.
#[derive(Debug, Default)]
pub(super) struct Fences {
    fences: BTreeMap<File, Fence>,
}

impl Fences {
    pub(super) fn begin(&mut self, file: File, now: Tick) {
        let fence = self.fences.entry(file).or_default();
        (fence.begun, fence.is_changing) = (now, true);
    }

    pub(super) fn end(&mut self, file: File, members: Vec<MemberIndex>, now: Tick) {
        let is_changing = false;
        let begun = self.fences.get(&file).map_or(0, |fence| fence.begun);
        self.fences.insert(file, Fence { members, since: now, begun, is_changing });
    }

    /// Returns true if a change of the file's list is in flight.
    pub(super) fn is_changing(&self, file: File) -> bool {
        self.fences.get(&file).is_some_and(|fence| fence.is_changing)
    }

    /// Returns true if the list has admitted a member since the moment `begin`, false if it has
    /// excluded the member since then, and `None` if neither is certain.
    pub(super) fn was_in(&self, file: File, member: MemberIndex, begin: Tick) -> Option<bool> {
        let Some(fence) = self.fences.get(&file) else { return Some(true) };
        let is_certain = !fence.is_changing && fence.since < begin && fence.begun < begin;
        is_certain.then(|| fence.members.is_empty() || fence.members.contains(&member))
    }

    /// Checks that the server was right to admit or to refuse a member.
    pub(super) fn judge(
        &self,
        file: File,
        member: MemberIndex,
        begin: Tick,
        was_let_in: bool,
    ) -> Result<(), String> {
        match self.was_in(file, member, begin) {
            Some(is_in) if is_in != was_let_in => Err(format!(
                "member {member} was {} {file:?}: {:?}",
                if was_let_in { "admitted to" } else { "refused by" },
                self.fences.get(&file)
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lists_in_force_all_along_count() {
        let mut fences = Fences::default();
        assert!(fences.judge(File::Data, 1, 5, false).is_err());
        fences.begin(File::Data, 10);
        assert!(fences.judge(File::Data, 1, 5, false).is_ok());
        fences.end(File::Data, vec![0], 12);
        assert!(fences.judge(File::Data, 1, 11, true).is_ok());
        assert!(fences.judge(File::Data, 1, 13, true).is_err());
        assert!(fences.judge(File::Data, 0, 13, false).is_err());
        assert!(fences.judge(File::Log, 1, 13, true).is_ok());
    }
}
