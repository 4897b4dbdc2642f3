//! The model that checks operations on names. It is a set of possible worlds; each world is a name
//! space that agrees with every reply so far.
//!
//! Invariant: a world records for each change in flight whether the change has been executed and,
//! if it has, what its reply must be. For each read in flight it records the possible results so
//! far. Each operation takes effect at one moment between its beginning and its end. The set of
//! worlds is empty only if no order of these moments explains the replies.

use std::collections::{BTreeMap, BTreeSet};

use dafs_types::Status;

use crate::operation::{Answer, FileNumber, Name, NameOperation, OperationNumber};

/// The identity of a file in a world: the number of the operation that made it.
type Origin = OperationNumber;

/// One possible state of the name space.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    names: BTreeMap<Name, Origin>,
    /// The files whose handles are known, each by the operation that made it.
    files: BTreeMap<Origin, FileNumber>,
    /// Changes in flight that have been executed, each with the reply that it must get.
    done: BTreeMap<OperationNumber, Expected>,
    /// The results that each read in flight may return because it was executed before a later
    /// change.
    seen: BTreeMap<OperationNumber, BTreeSet<Expected>>,
}

/// The reply that an operation must get in a world.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Expected {
    Status(u32),
    Done,
    File(Origin),
    Names(Vec<(Name, Origin)>),
    Links(u32),
}

impl Expected {
    fn is_failure(&self) -> bool {
        matches!(self, Self::Status(_))
    }
}

/// All possible worlds.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    worlds: BTreeSet<World>,
    pending: BTreeMap<OperationNumber, NameOperation>,
}

impl Names {
    pub(crate) fn new() -> Self {
        Self { worlds: BTreeSet::from([World::default()]), pending: BTreeMap::new() }
    }

    pub(crate) fn begin(&mut self, number: OperationNumber, operation: NameOperation) {
        self.pending.insert(number, operation);
    }

    /// Checks a reply.
    pub(crate) fn end(&mut self, number: OperationNumber, answer: &Answer) -> Result<(), String> {
        let operation = self.pending.get(&number).cloned();
        let before = self.worlds.len();
        let worlds = self.after(number, |world, expected| world.agree(expected, answer));
        self.pending.remove(&number);
        if worlds.is_empty() {
            return Err(format!(
                "{operation:?} was answered {answer:?}, which none of {before} possible name \
                 spaces explains; one of them: {:?}; under way: {:?}",
                self.worlds.first().map(|world| (&world.names, &world.files)),
                self.pending
            ));
        }
        self.keep(worlds)
    }

    /// Records that an operation can no longer be executed, and that it is unknown whether it was.
    pub(crate) fn settle(&mut self, number: OperationNumber) -> Result<(), String> {
        let mut worlds = self.after(number, |world, _| Some(world));
        let not_done = self.worlds.iter().filter(|world| !world.done.contains_key(&number));
        worlds.extend(not_done.cloned().map(|mut world| {
            world.seen.remove(&number);
            world
        }));
        self.pending.remove(&number);
        self.keep(worlds)
    }

    /// Records that an operation was not executed and can no longer be executed.
    pub(crate) fn cancel(&mut self, number: OperationNumber) -> Result<(), String> {
        let operation = self.pending.remove(&number);
        let before = self.worlds.len();
        let not_done = self.worlds.iter().filter(|world| !world.done.contains_key(&number));
        let worlds: BTreeSet<World> = not_done
            .cloned()
            .map(|mut world| {
                world.seen.remove(&number);
                world
            })
            .collect();
        if worlds.is_empty() {
            return Err(format!(
                "{operation:?} was not carried out, it says, and was in all of {before} possible \
                 name spaces; one of them: {:?}",
                self.worlds.first().map(|world| (&world.names, &world.files))
            ));
        }
        self.keep(worlds)
    }

    /// Ends a failed change or a read. The reply to such an operation does not show that any other
    /// operation was executed.
    pub(crate) fn end_without_trace(&mut self, number: OperationNumber) -> Result<(), String> {
        // In a world in which it was executed, it has changed nothing, or it would not have failed.
        let worlds = self.worlds.iter().cloned().map(|mut world| {
            world.seen.remove(&number);
            (world.done.remove(&number), world)
        });
        let failed = |done: &Option<Expected>| done.as_ref().is_none_or(Expected::is_failure);
        let worlds = worlds.filter(|(done, _)| failed(done)).map(|(_, world)| world).collect();
        self.pending.remove(&number);
        self.keep(worlds)
    }

    /// Returns the number of operations in flight that may change something.
    pub(crate) fn changes_under_way(&self) -> usize {
        self.pending.values().filter(|operation| operation.changes()).count()
    }

    /// Returns the names, if only one state of them is possible. Worlds that differ only in the
    /// operations that made the files count as one state.
    pub(crate) fn certain(&self) -> Option<Vec<(Name, Option<FileNumber>)>> {
        let mut ways = self.worlds.iter().map(|world| {
            let file = |origin| world.files.get(origin).copied();
            world.names.iter().map(|(name, origin)| (*name, file(origin))).collect::<Vec<_>>()
        });
        let first = ways.next()?;
        ways.all(|way| way == first).then_some(first)
    }

    fn keep(&mut self, worlds: BTreeSet<World>) -> Result<(), String> {
        if worlds.is_empty() || worlds.len() > WORLDS_MAX {
            return Err(format!("{} possible name spaces are left", worlds.len()));
        }
        self.worlds = worlds;
        Ok(())
    }

    /// Returns the worlds in which an operation has been executed by now and which `accept`
    /// permits. Changes in flight may have been executed before it. The returned worlds no longer
    /// have a record of the operation.
    fn after(
        &self,
        number: OperationNumber,
        accept: impl Fn(World, &Expected) -> Option<World>,
    ) -> BTreeSet<World> {
        let mut found = BTreeSet::new();
        let mut tried = BTreeSet::new();
        let mut open: Vec<World> = self.worlds.iter().cloned().collect();
        while let Some(mut world) = open.pop() {
            if let Some(expected) = world.done.remove(&number) {
                found.extend(accept(world, &expected));
                continue;
            }
            if !tried.insert(world.clone()) {
                continue;
            }
            if let Some(look) = self.pending.get(&number).filter(|o| !o.changes()) {
                let looked = world.look(number, look, &accept);
                // A world with more changes follows from this one at any later time, unless the
                // reply has identified a file here that would be a different one there.
                let follows = looked.iter().any(|after| after.files == world.files);
                found.extend(looked);
                if follows {
                    continue;
                }
            }
            for (other, operation) in self.pending.iter().filter(|(_, o)| o.changes()) {
                if !world.done.contains_key(other) {
                    open.extend(self.change(&world, *other, operation));
                }
            }
        }
        found
    }

    /// Returns the worlds after the execution of a change. Reads in flight may have been executed
    /// before it.
    fn change(
        &self,
        world: &World,
        number: OperationNumber,
        operation: &NameOperation,
    ) -> Vec<World> {
        let mut seen = world.seen.clone();
        for (look, operation) in self.pending.iter().filter(|(_, o)| !o.changes()) {
            let answers = world.outcomes(*look, operation).into_iter().map(|(_, answer)| answer);
            seen.entry(*look).or_default().extend(answers);
        }
        let outcomes = world.outcomes(number, operation).into_iter();
        outcomes
            .map(|(mut after, expected)| {
                after.seen.clone_from(&seen);
                after.done.insert(number, expected);
                after
            })
            .collect()
    }
}

impl World {
    /// Returns the worlds that `accept` permits, in which a read was executed now or earlier.
    fn look(
        &self,
        number: OperationNumber,
        operation: &NameOperation,
        accept: impl Fn(World, &Expected) -> Option<World>,
    ) -> Vec<World> {
        let mut after = self.clone();
        let mut answers = after.seen.remove(&number).unwrap_or_default();
        answers.extend(self.outcomes(number, operation).into_iter().map(|(_, answer)| answer));
        answers.iter().filter_map(|expected| accept(after.clone(), expected)).collect()
    }

    /// Returns the possible effects of an operation that is executed now, each with the reply.
    fn outcomes(
        &self,
        number: OperationNumber,
        operation: &NameOperation,
    ) -> Vec<(World, Expected)> {
        let mut after = self.clone();
        let expected = match operation {
            NameOperation::Create { name, guarded } => match self.names.get(name) {
                Some(_) if *guarded => EXISTS,
                Some(origin) => Expected::File(*origin),
                None => {
                    after.names.insert(*name, number);
                    Expected::File(number)
                }
            },
            NameOperation::Open { name } | NameOperation::Lookup { name } => {
                self.names.get(name).map_or(NOT_THERE, |origin| Expected::File(*origin))
            }
            NameOperation::Remove { name } => {
                after.names.remove(name).map_or(NOT_THERE, |_| Expected::Done)
            }
            NameOperation::Rename { from, to } => after.rename(*from, *to),
            NameOperation::Link { file, name } => return self.link(*file, *name),
            NameOperation::List { directory } => {
                let inside = self.names.iter().filter(|(name, _)| name.directory == *directory);
                Expected::Names(inside.map(|(name, origin)| (*name, *origin)).collect())
            }
            NameOperation::Links { file } => return self.links(*file),
        };
        vec![(after, expected)]
    }

    fn rename(&mut self, from: Name, to: Name) -> Expected {
        let Some(origin) = self.names.get(&from).copied() else { return NOT_THERE };
        // Both names belong to one file: POSIX requires that nothing happens.
        if self.names.get(&to) != Some(&origin) {
            self.names.remove(&from);
            self.names.insert(to, origin);
        }
        Expected::Done
    }

    /// Returns the possible outcomes of a link. A file without a name may still exist because it is
    /// open.
    fn link(&self, file: FileNumber, name: Name) -> Vec<(World, Expected)> {
        let mut outcomes = Vec::new();
        let origin = self.origin(file);
        if self.count(origin) == 0 {
            outcomes.push((self.clone(), STALE));
        }
        if self.names.contains_key(&name) {
            outcomes.push((self.clone(), EXISTS));
        } else if let Some(origin) = origin {
            let mut after = self.clone();
            after.names.insert(name, origin);
            outcomes.push((after, Expected::Done));
        }
        outcomes
    }

    fn links(&self, file: FileNumber) -> Vec<(World, Expected)> {
        let count = self.count(self.origin(file));
        let mut outcomes = vec![(self.clone(), Expected::Links(count))];
        if count == 0 {
            outcomes.push((self.clone(), STALE));
        }
        outcomes
    }

    fn origin(&self, file: FileNumber) -> Option<Origin> {
        self.files.iter().find(|(_, known)| **known == file).map(|(origin, _)| *origin)
    }

    fn count(&self, origin: Option<Origin>) -> u32 {
        let count = self.names.values().filter(|named| Some(**named) == origin).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Returns the world if `answer` agrees with the reply that is expected in it. Otherwise
    /// returns `None`.
    fn agree(mut self, expected: &Expected, answer: &Answer) -> Option<World> {
        let is_so = match (expected, answer) {
            (Expected::Status(expected), Answer::Status(status)) => *expected == status.number(),
            (Expected::Done, Answer::Done) => true,
            (Expected::File(origin), Answer::File(file)) => self.bind(*origin, *file),
            (Expected::Links(expected), Answer::Links(count)) => expected == count,
            (Expected::Names(expected), Answer::Names(names)) => {
                expected.len() == names.len()
                    && expected.iter().zip(names).all(|((name, origin), (listed, file))| {
                        name == listed && self.bind(*origin, *file)
                    })
            }
            _ => false,
        };
        is_so.then_some(self)
    }

    /// Records which file an operation has made. Returns false if that contradicts
    /// an earlier record.
    fn bind(&mut self, origin: Origin, file: FileNumber) -> bool {
        match self.files.get(&origin) {
            Some(known) => *known == file,
            None if self.origin(file).is_some() => false,
            None => {
                self.files.insert(origin, file);
                true
            }
        }
    }
}

const NOT_THERE: Expected = Expected::Status(Status::NoEnt.number());
const EXISTS: Expected = Expected::Status(Status::Exist.number());
const STALE: Expected = Expected::Status(Status::Stale.number());
/// The maximum number of worlds. If there are more, too many operations are undecided, and the run
/// fails.
const WORLDS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    const A: Name = Name { directory: 0, index: 0 };
    const B: Name = Name { directory: 0, index: 1 };

    fn number(number: u64) -> OperationNumber {
        OperationNumber(number)
    }

    fn create(names: &mut Names, at: u64, name: Name, file: u32) {
        names.begin(number(at), NameOperation::Create { name, guarded: true });
        names.end(number(at), &Answer::File(FileNumber(file))).unwrap();
    }

    #[test]
    fn racing_creations_have_one_winner() {
        let mut names = Names::new();
        names.begin(number(1), NameOperation::Create { name: A, guarded: true });
        names.begin(number(2), NameOperation::Create { name: A, guarded: true });
        names.end(number(2), &Answer::Status(Status::Exist)).unwrap();
        assert!(names.end(number(1), &Answer::Status(Status::Exist)).is_err());
    }

    #[test]
    fn a_lost_operation_is_decided_by_the_next_read() {
        let mut names = Names::new();
        create(&mut names, 1, A, 7);
        names.begin(number(2), NameOperation::Rename { from: A, to: B });
        names.settle(number(2)).unwrap();
        assert!(names.certain().is_none());
        names.begin(number(3), NameOperation::List { directory: 0 });
        names.end(number(3), &Answer::Names(vec![(B, FileNumber(7))])).unwrap();
        assert_eq!(names.certain(), Some(vec![(B, Some(FileNumber(7)))]));
        names.begin(number(4), NameOperation::Lookup { name: A });
        assert!(names.end(number(4), &Answer::File(FileNumber(7))).is_err());
    }

    #[test]
    fn an_operation_in_flight_may_have_been_seen_already() {
        let mut names = Names::new();
        create(&mut names, 1, A, 7);
        names.begin(number(2), NameOperation::Remove { name: A });
        names.begin(number(3), NameOperation::Lookup { name: A });
        names.end(number(3), &Answer::Status(Status::NoEnt)).unwrap();
        assert!(names.end(number(2), &Answer::Status(Status::NoEnt)).is_err());
    }

    #[test]
    fn a_read_may_precede_a_change_whose_reply_came_first() {
        let mut names = Names::new();
        names.begin(number(1), NameOperation::List { directory: 0 });
        create(&mut names, 2, A, 7);
        names.end(number(1), &Answer::Names(Vec::new())).unwrap();
        names.begin(number(3), NameOperation::List { directory: 0 });
        assert!(names.end(number(3), &Answer::Names(Vec::new())).is_err());
    }

    #[test]
    fn a_name_may_have_belonged_to_another_file_before() {
        let mut names = Names::new();
        names.begin(number(1), NameOperation::Create { name: A, guarded: true });
        names.begin(number(2), NameOperation::Remove { name: A });
        names.begin(number(3), NameOperation::Create { name: A, guarded: true });
        names.begin(number(4), NameOperation::Lookup { name: A });
        names.end(number(4), &Answer::File(FileNumber(7))).unwrap();
        names.end(number(1), &Answer::File(FileNumber(8))).unwrap();
        names.end(number(2), &Answer::Done).unwrap();
        names.end(number(3), &Answer::File(FileNumber(7))).unwrap();
        names.begin(number(5), NameOperation::Lookup { name: A });
        names.end(number(5), &Answer::File(FileNumber(7))).unwrap();
    }

    #[test]
    fn a_file_is_known_by_its_handle() {
        let mut names = Names::new();
        create(&mut names, 1, A, 7);
        names.begin(number(2), NameOperation::Link { file: FileNumber(7), name: B });
        names.end(number(2), &Answer::Done).unwrap();
        names.begin(number(3), NameOperation::Links { file: FileNumber(7) });
        names.end(number(3), &Answer::Links(2)).unwrap();
        names.begin(number(4), NameOperation::Lookup { name: B });
        assert!(names.end(number(4), &Answer::File(FileNumber(8))).is_err());
    }
}
