//! The handles that C programs hold: numbers with pointer types.
//!
//! Invariant: a handle is looked up in a table and never dereferenced. It encodes its index in the
//! table, the number of earlier uses of that slot, and the number of forks before its process. So
//! the library recognizes and refuses a handle that was closed, has another kind, belongs to a
//! parent process, or is not a handle at all.
//!
//! While the table is locked, no other lock is taken. A child of `fork` starts with an empty table,
//! because a thread that does not exist in the child may have locked the parent's table.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, RwLock};

use crate::client::ClientObject;
use crate::connect::SessionObject;
use crate::directory::DirectoryObject;
use crate::failure::{Failure, Result};
use crate::file::FileObject;
use crate::groups::GroupObject;
use crate::memory::RegionObject;

/// The object that a handle refers to.
#[derive(Clone)]
pub(crate) enum Object {
    Client(Arc<ClientObject>),
    Session(Arc<SessionObject>),
    File(Arc<FileObject>),
    Region(Arc<RegionObject>),
    Group(Arc<GroupObject>),
    Directory(Arc<DirectoryObject>),
}

impl Object {
    fn name(&self) -> &'static str {
        match self {
            Self::Client(_) => ClientObject::NAME,
            Self::Session(_) => SessionObject::NAME,
            Self::File(_) => FileObject::NAME,
            Self::Region(_) => RegionObject::NAME,
            Self::Group(_) => GroupObject::NAME,
            Self::Directory(_) => DirectoryObject::NAME,
        }
    }
}

/// A type of object that handles refer to.
pub(crate) trait Kind: Sized {
    const NAME: &'static str;
    fn wrap(object: Arc<Self>) -> Object;
    fn unwrap(object: &Object) -> Option<&Arc<Self>>;
}

macro_rules! kinds {
    ($($object:ident $variant:ident $name:literal,)*) => {$(
        impl Kind for $object {
            const NAME: &'static str = $name;
            fn wrap(object: Arc<Self>) -> Object {
                Object::$variant(object)
            }
            fn unwrap(object: &Object) -> Option<&Arc<Self>> {
                match object {
                    Object::$variant(object) => Some(object),
                    _ => None,
                }
            }
        }
    )*};
}

kinds! {
    ClientObject Client "dap_client",
    SessionObject Session "dap_session",
    FileObject File "dap_file",
    RegionObject Region "dap_region",
    GroupObject Group "dap_group",
    DirectoryObject Directory "dap_directory",
}

#[derive(Default)]
struct Table {
    slots: RwLock<Slots>,
    default_client: Mutex<Option<Arc<ClientObject>>>,
    /// The table of the parent process. It is unused; the pointer keeps leak checkers from
    /// reporting that table.
    _parent: AtomicPtr<Table>,
}

#[derive(Default)]
struct Slots {
    all: Vec<Slot>,
    free: Vec<usize>,
}

struct Slot {
    generation: usize,
    object: Option<Object>,
}

/// The table of this process.
static TABLE: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());
/// The table of the closest ancestor process that had one.
static PARENT: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());
/// The number of forks between the first process with a table and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    // Leave the parent's table as it is: its objects belong to the parent.
    let parent = TABLE.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if !parent.is_null() {
        PARENT.store(parent, Ordering::Release);
    }
}

fn table() -> &'static Table {
    static WATCH: Once = Once::new();
    let mut table = TABLE.load(Ordering::Acquire);
    if table.is_null() {
        WATCH.call_once(|| {
            // SAFETY: the handler only changes atomic values, which is safe at any point in a
            // child.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        let _parent = AtomicPtr::new(PARENT.load(Ordering::Acquire));
        let new = Box::into_raw(Box::new(Table { _parent, ..Table::default() }));
        let (is, order) = (std::ptr::null_mut(), Ordering::AcqRel);
        match TABLE.compare_exchange(is, new, order, Ordering::Acquire) {
            Ok(_) => table = new,
            Err(other) => {
                // SAFETY: no other thread has seen the new table.
                drop(unsafe { Box::from_raw(new) });
                table = other;
            }
        }
    }
    // SAFETY: a table is never dropped, and is accessed only through shared references.
    unsafe { &*table }
}

/// Creates a handle for an object.
pub(crate) fn insert<K: Kind, H>(object: Arc<K>) -> Result<*mut H> {
    let mut slots = table().slots.write().unwrap_or_else(PoisonError::into_inner);
    let index = match slots.free.pop() {
        Some(index) => index,
        None if slots.all.len() >= 1 << INDEX_BITS => {
            return Err(Failure::new(libc::EMFILE, "too many handles"));
        }
        None => {
            slots.all.push(Slot { generation: 0, object: None });
            slots.all.len() - 1
        }
    };
    let slot = &mut slots.all[index];
    slot.object = Some(K::wrap(object));
    let name = Name { index, generation: slot.generation, forks: forks() };
    Ok(std::ptr::without_provenance_mut(name.number()))
}

/// Returns the object of a handle.
pub(crate) fn get<K: Kind, H>(handle: *mut H) -> Result<Arc<K>> {
    let name = Name::read::<K>(handle.cast())?;
    let slots = table().slots.read().unwrap_or_else(PoisonError::into_inner);
    name.find::<K>(&slots).cloned()
}

/// Removes a handle and returns its object.
pub(crate) fn remove<K: Kind, H>(handle: *mut H) -> Result<Arc<K>> {
    remove_if(handle, |_| Ok(()))
}

/// Removes a handle and returns its object, unless `allows` returns an error for that object. No
/// other thread can use the handle meanwhile.
pub(crate) fn remove_if<K: Kind, H>(
    handle: *mut H,
    allows: impl FnOnce(&Arc<K>) -> Result<()>,
) -> Result<Arc<K>> {
    let name = Name::read::<K>(handle.cast())?;
    let mut slots = table().slots.write().unwrap_or_else(PoisonError::into_inner);
    allows(name.find::<K>(&slots)?)?;
    let object = name.find::<K>(&slots)?.clone();
    let slot = &mut slots.all[name.index];
    slot.object = None;
    slot.generation = (slot.generation + 1) % (1 << GENERATION_BITS);
    slots.free.push(name.index);
    Ok(object)
}

/// Returns the client of a handle. NULL means the default client of the process.
pub(crate) fn client<H>(handle: *mut H) -> Result<Arc<ClientObject>> {
    if !handle.is_null() {
        return get(handle);
    }
    let mut own = table().default_client.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(client) = &*own {
        return Ok(client.clone());
    }
    let client = Arc::new(ClientObject::plain()?);
    Ok(own.insert(client).clone())
}

fn forks() -> usize {
    FORKS.load(Ordering::Relaxed) as usize % (1 << FORK_BITS)
}

/// The components of a handle, which [`Name::number`] combines to an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    index: usize,
    generation: usize,
    forks: usize,
}

impl Name {
    fn number(self) -> usize {
        let Self { index, generation, forks } = self;
        MARK << MARK_AT | forks << FORK_AT | generation << GENERATION_AT | index << INDEX_AT | 1
    }

    fn parse(number: usize) -> Option<Self> {
        let part = |at: u32, bits: u32| number >> at & ((1 << bits) - 1);
        let is_one = number & 1 == 1 && number >> MARK_AT == MARK;
        is_one.then(|| Self {
            index: part(INDEX_AT, INDEX_BITS),
            generation: part(GENERATION_AT, GENERATION_BITS),
            forks: part(FORK_AT, FORK_BITS),
        })
    }

    fn read<K: Kind>(handle: *mut c_void) -> Result<Self> {
        if handle.is_null() {
            return Err(Failure::new(libc::EBADF, format!("the {} is NULL", K::NAME)));
        }
        let name = Self::parse(handle.addr()).ok_or_else(|| none::<K>())?;
        if name.forks != forks() {
            return Err(dafs_share::Forked.into());
        }
        Ok(name)
    }

    fn find<'t, K: Kind>(&self, slots: &'t Slots) -> Result<&'t Arc<K>> {
        let slot = slots.all.get(self.index).filter(|slot| slot.generation == self.generation);
        let object = slot.and_then(|slot| slot.object.as_ref()).ok_or_else(|| none::<K>())?;
        let wrong = || {
            let text = format!("this is a {}, and not a {}", object.name(), K::NAME);
            Failure::new(libc::EBADF, text)
        };
        K::unwrap(object).ok_or_else(wrong)
    }
}

fn none<K: Kind>() -> Failure {
    Failure::new(libc::EBADF, format!("this {} is closed or invalid", K::NAME))
}

const INDEX_BITS: u32 = 24;
const GENERATION_BITS: u32 = 24;
const FORK_BITS: u32 = 12;
const INDEX_AT: u32 = 1;
const GENERATION_AT: u32 = INDEX_AT + INDEX_BITS;
const FORK_AT: u32 = GENERATION_AT + GENERATION_BITS;
const MARK_AT: u32 = FORK_AT + FORK_BITS;
/// The bits that mark a number as a handle. No valid address in a program has this combination of
/// bits.
const MARK: usize = 0b101;

const _: () = assert!(MARK_AT + 3 == usize::BITS, "handles need pointers of 64 bits");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{dap_client, dap_file};

    #[test]
    fn handles_are_refused_as_what_they_are() {
        let object = Arc::new(ClientObject::plain().unwrap());
        let handle: *mut dap_client = insert(object).unwrap();
        assert!(get::<ClientObject, _>(handle).is_ok());
        let said = |failure: Failure| (failure.errno, failure.text);
        let other = get::<FileObject, _>(handle.cast::<dap_file>());
        let text = "this is a dap_client, and not a dap_file".to_owned();
        assert_eq!(other.err().map(said), Some((libc::EBADF, text)));
        remove::<ClientObject, _>(handle).unwrap();
        for gone in [handle, std::ptr::without_provenance_mut(0x1000), std::ptr::null_mut()] {
            assert_eq!(get::<ClientObject, _>(gone).err().map(|f| f.errno), Some(libc::EBADF));
        }
        let again: *mut dap_client = insert(Arc::new(ClientObject::plain().unwrap())).unwrap();
        assert_ne!(handle, again, "the same place, and another handle");
        remove::<ClientObject, _>(again).unwrap();
    }

    #[test]
    fn a_handle_says_all_of_its_name() {
        let name = Name { index: 0xabcdef, generation: 0x123456, forks: 0x789 };
        assert_eq!(Name::parse(name.number()), Some(name));
        let other = Name { forks: 0x78a, ..name };
        let handle = std::ptr::without_provenance_mut(other.number());
        let failure = Name::read::<ClientObject>(handle).unwrap_err();
        assert_eq!(failure.errno, libc::EOWNERDEAD);
    }
}
