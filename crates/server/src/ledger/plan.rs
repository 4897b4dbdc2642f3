//! What an operation is about to do to names and objects, and whether that must be written down
//! first.
//!
//! Invariant: planning changes nothing.

use dafs_filer::Touch;
use dafs_ops::{Claim, Creation, Open, Operation};
use dafs_store::StoreError;
use dafs_types::{FileHandle, ObjectType, Status};
use smallvec::SmallVec;

use super::record::Facts;
use super::requests::{Place, Places, Touched};
use super::verdict::is_asked_anew;
use crate::caller::Caller;
use crate::files::Files;
use crate::outcome::NotDone;
use crate::requests::settings::changes_in;

/// What a request is about to do: it waits for whoever is about to change the same.
pub(super) struct Plan {
    pub facts: Facts,
    pub places: Places,
    pub touched: Touched,
    /// Whether it must be written down first.
    pub is_written: bool,
}

impl Files<'_> {
    /// Looks at the names a request is about.
    ///
    /// # Errors
    /// What the operation would say of them.
    pub(super) fn plan(
        &mut self,
        by: &Caller,
        operation: &Operation<'_>,
    ) -> Result<Option<Plan>, NotDone> {
        if matches!(operation, Operation::Remove(_) | Operation::Rename(_) | Operation::Open(_)) {
            self.filer.may_take(by.party.client, self.now)?;
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
                    Plan::new(Facts::NameFree, places, [asked.directory])
                }
            },
            Operation::Link(asked) => match lookup(&asked.directory, asked.name)? {
                Some(_) => return Err(Status::Exist.into()),
                None => {
                    self.touch(by, &asked.source, Touch::Link)?;
                    let touched = [asked.directory, asked.source];
                    Plan::new(Facts::NameFree, [place(&asked.directory, asked.name)], touched)
                }
            },
            Operation::Remove(asked) => {
                let object = lookup(&asked.directory, asked.name)?.ok_or(Status::NoEnt)?;
                self.touch(by, &object.handle, Touch::Remove)?;
                let facts = Facts::Victim(object.handle);
                Plan::new(facts, [place(&asked.directory, asked.name)], [asked.directory])
            }
            Operation::Rename(asked) => {
                let object = lookup(&asked.source, asked.old_name)?.ok_or(Status::NoEnt)?.handle;
                let replaced = lookup(&asked.target, asked.new_name)?.map(|object| object.handle);
                self.touch(by, &object, Touch::Rename)?;
                if let Some(replaced) = &replaced {
                    self.touch(by, replaced, Touch::Remove)?;
                }
                let places =
                    [place(&asked.source, asked.old_name), place(&asked.target, asked.new_name)];
                let touched = [asked.source, asked.target];
                Plan::new(Facts::Renames { object, replaced }, places, touched)
            }
            Operation::SetAttributes(asked) => {
                let truncate = changes_in(&asked.attributes)?.0.size == Some(0);
                self.touch(by, &asked.file, Touch::SetAttributes { truncate })?;
                let plan = Plan::new(Facts::Attributes, [itself(&asked.file)], [asked.file]);
                Plan { is_written: !is_asked_anew(asked), ..plan }
            }
            Operation::Open(asked) => return self.plan_open(by, asked),
            _ => return Ok(None),
        };
        Ok(Some(plan))
    }

    /// An OPEN is written down if it makes or truncates a file.
    fn plan_open(&mut self, by: &Caller, asked: &Open<'_>) -> Result<Option<Plan>, NotDone> {
        let Claim::Null { path } = &asked.claim else { return Ok(None) };
        let names: SmallVec<[&[u8]; 8]> = path.iter().collect();
        let Some((last, way)) = names.split_last() else { return Ok(None) };
        if !asked.creation.is_any() {
            return Ok(None);
        }
        let walked = self.walk(by, &asked.from, way);
        if walked.error.is_some() {
            // Carrying it out will say how far it got.
            return Ok(None);
        }
        match by.store().lookup(by, &walked.handle, last) {
            Err(StoreError::NotFound) => {
                let places = [(walked.handle, Box::from(*last))];
                Ok(Some(Plan::new(Facts::NameFree, places, [walked.handle])))
            }
            Ok(object) => {
                let changes = asked.creation.attributes().map(changes_in).transpose()?;
                let truncates = changes.is_some_and(|(changes, _)| changes.size == Some(0))
                    && matches!(asked.creation, Creation::Unchecked { .. })
                    && object.attributes.kind == ObjectType::Regular;
                let handle = object.handle;
                if truncates {
                    let (access, deny) = (asked.access, asked.deny);
                    self.touch(by, &handle, Touch::Open { access, deny, truncate: true })?;
                }
                let plan = || Plan::new(Facts::Truncates, [itself(&handle)], [handle]);
                Ok(truncates.then(plan))
            }
            Err(_) => Ok(None),
        }
    }
}

impl Plan {
    fn new<const N: usize, const M: usize>(
        facts: Facts,
        places: [Place; N],
        touched: [FileHandle; M],
    ) -> Self {
        let (places, touched) = (places.into_iter().collect(), touched.into_iter().collect());
        Self { facts, places, touched, is_written: true }
    }
}

/// A name in its directory.
fn place(directory: &FileHandle, name: &[u8]) -> Place {
    (*directory, name.into())
}

/// An object, under whatever name.
fn itself(object: &FileHandle) -> Place {
    (*object, Box::default())
}
