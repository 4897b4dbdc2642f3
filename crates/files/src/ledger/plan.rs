//! Plans: each lists the names and objects that an operation will change, and says whether its
//! intent must be journaled.
//!
//! Invariant: planning changes no state.

use arrayvec::ArrayVec;
use dafs_filer::FileOperation;
use dafs_ops::{Claim, Creation, Open, Operation, SetAttributes, SetXattr, Xattr};
use dafs_store::StoreError;
use dafs_types::{FileHandle, ObjectType, SetAttributes as Settings, Status};
use smallvec::SmallVec;

use crate::Files;
use crate::caller::Caller;
use crate::outcome::NotDone;
use crate::settings::changes_in;

/// What a request will change: a name (the directory's handle and the name), or an object (its
/// handle and an empty name).
pub type Place = (FileHandle, Box<[u8]>);

/// The names and objects that a request will change: at most two names, or one object.
pub type Places = ArrayVec<Place, 2>;

/// The handles of the objects that must be synced before an outcome is final.
pub type Touched = ArrayVec<FileHandle, 2>;

/// The part of the file system's state, just before a request is executed, that shows after a crash
/// whether the request was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The name to be created was free.
    NameFree,
    /// The file to be truncated existed.
    Truncates,
    /// The name to be removed belonged to this object.
    Target(FileHandle),
    /// The old name belonged to an object, and the new name may have belonged to another object.
    Renames {
        /// The object with the old name.
        object: FileHandle,
        /// The object with the new name. `None` if the new name was free.
        replaced: Option<FileHandle>,
    },
    /// Attributes are to be set. No state is needed to decide whether they were set.
    Attributes,
    /// An append has reserved the end of its file, which was at this offset.
    Appends {
        /// The file to append to.
        file: FileHandle,
        /// The offset of the first appended byte.
        offset: u64,
        /// The number of bytes to append.
        length: u32,
    },
}

/// The plan of a request, which waits for other requests that change the same names or objects.
pub struct Plan {
    /// The state of the file system before the request.
    pub precondition: Precondition,
    /// The names and objects that no other request may change until this request has ended.
    pub places: Places,
    /// The objects that must be synced before the outcome of the request is final.
    pub touched: Touched,
    /// True if an intent must be journaled before the execution.
    pub needs_intent: bool,
}

impl Files<'_> {
    /// Looks up the names that a request will change. `None` if the request needs no plan.
    ///
    /// # Errors
    /// The error that the operation itself would return.
    pub fn plan(
        &mut self,
        by: &Caller,
        operation: &Operation<'_>,
    ) -> Result<Option<Plan>, NotDone> {
        if matches!(operation, Operation::Remove(_) | Operation::Rename(_) | Operation::Open(_)) {
            self.filer.check_grace(by.party.client, self.now)?;
        }
        let lookup =
            |directory: &FileHandle, name: &[u8]| match by.store().lookup(by, directory, name) {
                Ok(object) => Ok(Some(object)),
                Err(StoreError::NotFound) => Ok(None),
                Err(error) => Err(Status::from(error)),
            };
        let plan = match operation {
            Operation::CreateNode(asked) => match lookup(&asked.directory, asked.name)? {
                Some(_) => return Err(Status::Exist.into()),
                None => {
                    let places = [place(&asked.directory, asked.name)];
                    Plan::new(Precondition::NameFree, places, [asked.directory])
                }
            },
            Operation::Link(asked) => match lookup(&asked.directory, asked.name)? {
                Some(_) => return Err(Status::Exist.into()),
                None => {
                    self.check_delegations(by, &asked.source, FileOperation::Link)?;
                    let touched = [asked.directory, asked.source];
                    Plan::new(
                        Precondition::NameFree,
                        [place(&asked.directory, asked.name)],
                        touched,
                    )
                }
            },
            Operation::Remove(asked) => {
                let object = lookup(&asked.directory, asked.name)?.ok_or(Status::NoEnt)?;
                self.check_delegations(by, &object.handle, FileOperation::Remove)?;
                let precondition = Precondition::Target(object.handle);
                Plan::new(precondition, [place(&asked.directory, asked.name)], [asked.directory])
            }
            Operation::Rename(asked) => {
                let object = lookup(&asked.source, asked.old_name)?.ok_or(Status::NoEnt)?.handle;
                let replaced = lookup(&asked.target, asked.new_name)?.map(|object| object.handle);
                self.check_delegations(by, &object, FileOperation::Rename)?;
                if let Some(replaced) = &replaced {
                    self.check_delegations(by, replaced, FileOperation::Remove)?;
                }
                let places =
                    [place(&asked.source, asked.old_name), place(&asked.target, asked.new_name)];
                let touched = [asked.source, asked.target];
                Plan::new(Precondition::Renames { object, replaced }, places, touched)
            }
            Operation::SetAttributes(asked) => {
                let truncate = changes_in(&asked.attributes)?.0.size == Some(0);
                self.check_delegations(by, &asked.file, FileOperation::SetAttributes { truncate })?;
                let plan = Plan::new(Precondition::Attributes, [itself(&asked.file)], [asked.file]);
                Plan { needs_intent: !is_asked_anew(asked), ..plan }
            }
            Operation::SetXattr(SetXattr { file, .. })
            | Operation::RemoveXattr(Xattr { file, .. }) => {
                let touch = FileOperation::SetAttributes { truncate: false };
                self.check_delegations(by, file, touch)?;
                Plan::new(Precondition::Attributes, [itself(file)], [*file])
            }
            Operation::Open(asked) => return self.plan_open(by, asked),
            _ => return Ok(None),
        };
        Ok(Some(plan))
    }

    /// Plans an OPEN, which is journaled if it creates or truncates a file.
    fn plan_open(&mut self, by: &Caller, asked: &Open<'_>) -> Result<Option<Plan>, NotDone> {
        let Claim::Null { path } = &asked.claim else { return Ok(None) };
        let names: SmallVec<[&[u8]; 8]> = path.iter().collect();
        let Some((last, way)) = names.split_last() else { return Ok(None) };
        if !asked.creation.is_any() {
            return Ok(None);
        }
        let walked = self.walk(by, &asked.from, way);
        if walked.error.is_some() {
            // The execution will return the error, with the number of components that were found.
            return Ok(None);
        }
        match by.store().lookup(by, &walked.handle, last) {
            Err(StoreError::NotFound) => {
                let places = [(walked.handle, Box::from(*last))];
                Ok(Some(Plan::new(Precondition::NameFree, places, [walked.handle])))
            }
            Ok(object) => {
                let changes = asked.creation.attributes().map(changes_in).transpose()?;
                let truncates = changes.is_some_and(|(changes, _)| changes.size == Some(0))
                    && matches!(asked.creation, Creation::Unchecked { .. })
                    && object.attributes.kind == ObjectType::Regular;
                let handle = object.handle;
                if truncates {
                    let (access, deny) = (asked.access, asked.deny);
                    self.check_delegations(
                        by,
                        &handle,
                        FileOperation::Open { access, deny, truncate: true },
                    )?;
                }
                let plan = || Plan::new(Precondition::Truncates, [itself(&handle)], [handle]);
                Ok(truncates.then(plan))
            }
            Err(_) => Ok(None),
        }
    }
}

impl Plan {
    fn new<const N: usize, const M: usize>(
        precondition: Precondition,
        places: [Place; N],
        touched: [FileHandle; M],
    ) -> Self {
        let (places, touched) = (places.into_iter().collect(), touched.into_iter().collect());
        Self { precondition, places, touched, needs_intent: true }
    }
}

/// Returns the place of a name in a directory.
fn place(directory: &FileHandle, name: &[u8]) -> Place {
    (*directory, name.into())
}

/// Returns the place that stands for an object itself, independent of its names.
fn itself(object: &FileHandle) -> Place {
    (*object, Box::default())
}

/// Returns true if a change of attributes needs no verdict after a crash, because the client simply
/// repeats the change. That is the case if it sets only times: times do not show whether they were
/// set, and setting them again has the same effect. A change of the mode, owner or access control
/// list is journaled instead, because repeating it could restore a right that another client has
/// since removed.
pub fn is_asked_anew(asked: &SetAttributes) -> bool {
    let Settings { time_access, time_modify, mode, size, acl, mime_type, owner, owner_group } =
        &asked.attributes;
    let sets_times = time_access.is_some() || time_modify.is_some();
    let sets_rights = mode.is_some() || acl.is_some() || owner.is_some() || owner_group.is_some();
    sets_times && !sets_rights && size.is_none() && mime_type.is_none()
}
