//! Plans: the names and objects that an operation will change, and whether its intent must be
//! journaled.
//!
//! Invariant: planning changes nothing.

use arrayvec::ArrayVec;
use dafs_filer::FileOperation;
use dafs_ops::{Claim, Creation, Open, Operation, SetAttributes};
use dafs_store::StoreError;
use dafs_types::{FileHandle, ObjectType, SetAttributes as Settings, Status};
use smallvec::SmallVec;

use crate::Files;
use crate::caller::Caller;
use crate::outcome::NotDone;
use crate::settings::changes_in;

/// Something that a request will change: a name in a directory, or (with an empty name) an object.
pub type Place = (FileHandle, Box<[u8]>);

/// At most two names, or one object.
pub type Places = ArrayVec<Place, 2>;

/// The objects to sync before an outcome is final.
pub type Touched = ArrayVec<FileHandle, 2>;

/// The state of the file system just before a request is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The name to be created was free.
    NameFree,
    /// The file to be truncated existed.
    Truncates,
    /// The name to be removed named this object.
    Target(FileHandle),
    /// The old name named an object, and the new one perhaps another.
    Renames {
        /// The object with the old name.
        object: FileHandle,
        /// The object with the new name.
        replaced: Option<FileHandle>,
    },
    /// Attributes will be set.
    Attributes,
    /// An append owns the end of its file, which was at this offset.
    Appends {
        /// The file to append to.
        file: FileHandle,
        /// The offset at which the append begins.
        offset: u64,
        /// The number of bytes.
        length: u32,
    },
}

/// The plan of a request. The request waits for others that change the same names or objects.
pub struct Plan {
    /// The state of the file system before the request.
    pub precondition: Precondition,
    /// The names and objects that no other request may change meanwhile.
    pub places: Places,
    /// The objects to sync before the request counts as done.
    pub touched: Touched,
    /// True if an intent must be journaled first.
    pub needs_intent: bool,
}

impl Files<'_> {
    /// Looks up the names that a request will change. `None` if no plan is needed.
    ///
    /// # Errors
    /// The error that the operation itself would report.
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
            // The execution will report how far the walk gets.
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

/// A name in a directory, as a place.
fn place(directory: &FileHandle, name: &[u8]) -> Place {
    (*directory, name.into())
}

/// An object, independent of its names, as a place.
fn itself(object: &FileHandle) -> Place {
    (*object, Box::default())
}

/// Returns true if a change of attributes is repeated after a crash, whatever the file says. Times
/// do not show whether they were set, so no verdict could say that it was done, and repeating it
/// sets the same times again. This holds only if it sets nothing else. A change of mode, owner or
/// list is journaled, because repeating it could restore a right that another client has removed
/// meanwhile.
pub fn is_asked_anew(asked: &SetAttributes) -> bool {
    let Settings { time_access, time_modify, mode, size, acl, mime_type, owner, owner_group } =
        &asked.attributes;
    let sets_times = time_access.is_some() || time_modify.is_some();
    let sets_rights = mode.is_some() || acl.is_some() || owner.is_some() || owner_group.is_some();
    sets_times && !sets_rights && size.is_none() && mime_type.is_none()
}
