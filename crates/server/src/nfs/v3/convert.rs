//! Converts attributes and statuses between operations on files and NFS version 3.

use dafs_files::outcome::Outcome;
use dafs_nfs_wire::nfs3::{
    Attributes as Shown, DeviceNumber, FileType, Handle, SetAttributes as Asked,
    SetTime as AskedTime, Status, Time, WccAttributes, WccData,
};
use dafs_ops::Fault;
use dafs_store::Attributes;
use dafs_types::{FileHandle, ObjectType, SetAttributes, SetTime, Timestamp};

use super::Service;
use super::suspended::Before;

/// Returns the NFS status for a fault. After the status `Jukebox` a client sends its call again
/// later.
pub(super) fn status_of(fault: impl Into<Fault>) -> Status {
    match fault.into() {
        Fault::NotPermitted => Status::Perm,
        Fault::NotFound | Fault::NoXattr => Status::NoEnt,
        Fault::Io | Fault::LockBroken => Status::Io,
        Fault::NoDevice => Status::NxIo,
        // A program gets an error immediately if its request conflicts with a lock or share
        // reservation of another client. If the client retried the call, the program would hang as
        // long as the file is open.
        Fault::Access
        | Fault::OpenLacksAccess
        | Fault::ShareDenied
        | Fault::KeyMismatch
        | Fault::NameHeldOpen
        | Fault::RangeLocked
        | Fault::Fenced
        | Fault::NotAuthorized => Status::Acces,
        Fault::Exists => Status::Exist,
        Fault::CrossDevice => Status::XDev,
        Fault::NotDirectory => Status::NotDir,
        Fault::IsDirectory => Status::IsDir,
        Fault::Invalid | Fault::IsSymlink | Fault::LockRange | Fault::TransferTooBig => {
            Status::Inval
        }
        Fault::TooBig | Fault::XattrTooBig => Status::FBig,
        Fault::NoSpace => Status::NoSpc,
        Fault::ReadOnly => Status::RoFs,
        Fault::TooManyLinks => Status::MLink,
        Fault::NameTooLong => Status::NameTooLong,
        Fault::NotEmpty => Status::NotEmpty,
        Fault::Quota => Status::DQuot,
        Fault::Stale => Status::Stale,
        Fault::BadHandle => Status::BadHandle,
        Fault::BadCookie => Status::BadCookie,
        Fault::NotSupported => Status::NotSupp,
        Fault::BadType => Status::BadType,
        Fault::TooSmall | Fault::EntryTooLong => Status::TooSmall,
        // During the grace period, the filer refuses a caller without state as an unknown client.
        Fault::Busy
        | Fault::Resource
        | Fault::Denied
        | Fault::Deadlock
        | Fault::Grace
        | Fault::NoClient
        | Fault::WouldWait
        | Fault::Limit
        | Fault::Unavailable(_) => Status::Jukebox,
        Fault::Broken
        | Fault::NoGrace
        | Fault::Expired
        | Fault::StaleState
        | Fault::OldState
        | Fault::BadState
        | Fault::StaleClient
        | Fault::Front(_) => Status::ServerFault,
    }
}

/// Returns the NFS status for a DAFS status.
pub(super) fn status_of_protocol(status: dafs_types::Status) -> Status {
    status_of(Fault::from(status))
}

/// Returns the NFS status for a failed outcome.
pub(super) fn failure_of(outcome: &Outcome) -> Status {
    match &outcome.result {
        Ok(_) => Status::ServerFault,
        Err(refusal) => status_of(refusal.fault),
    }
}

/// Converts the attributes of an object to their form in NFS replies.
pub(super) fn shown(handle: &FileHandle, attributes: &Attributes) -> Shown {
    Shown {
        file_type: match attributes.kind {
            ObjectType::Regular | ObjectType::NamedAttribute => FileType::Regular,
            ObjectType::Directory | ObjectType::AttributeDirectory => FileType::Directory,
            ObjectType::BlockDevice => FileType::Block,
            ObjectType::CharacterDevice => FileType::Character,
            ObjectType::SymbolicLink => FileType::SymbolicLink,
            ObjectType::Socket => FileType::Socket,
            ObjectType::Fifo => FileType::Fifo,
        },
        mode: attributes.mode,
        link_count: attributes.link_count,
        uid: attributes.uid,
        gid: attributes.gid,
        size: attributes.size,
        used: attributes.space_used,
        device: DeviceNumber {
            major: u32::try_from(attributes.device.major).unwrap_or(0),
            minor: u32::try_from(attributes.device.minor).unwrap_or(0),
        },
        fs_id: file_system_of(handle),
        file_id: attributes.file_id,
        access_time: time(attributes.time_access),
        modify_time: time(attributes.time_modify),
        change_time: time(attributes.time_metadata),
    }
}

/// Returns a number for the file system of an object, computed from the part of the handle that
/// identifies the file system.
fn file_system_of(handle: &FileHandle) -> u64 {
    let half = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&handle.0[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    half(0) ^ half(8)
}

/// Converts a time. NFS version 3 cannot express a time before 1970 or after 2106, so such a time
/// becomes the nearest time that it can express.
fn time(time: Timestamp) -> Time {
    match u32::try_from(time.seconds) {
        Ok(seconds) => Time { seconds, nanoseconds: time.nanoseconds },
        Err(_) if time.seconds < 0 => Time { seconds: 0, nanoseconds: 0 },
        Err(_) => Time { seconds: u32::MAX, nanoseconds: 999_999_999 },
    }
}

/// Returns the attributes that a client compares to find out whether another client has changed an
/// object.
pub(super) fn before(attributes: &Attributes) -> WccAttributes {
    WccAttributes {
        size: attributes.size,
        modify_time: time(attributes.time_modify),
        change_time: time(attributes.time_metadata),
    }
}

/// Converts the attributes that a call sets. Fails if a time has an invalid value.
pub(super) fn settings(asked: &Asked) -> Result<SetAttributes, Status> {
    Ok(SetAttributes {
        mode: asked.mode.map(|mode| mode & 0o7777),
        size: asked.size,
        time_access: set_time(&asked.access_time)?,
        time_modify: set_time(&asked.modify_time)?,
        owner: asked.uid.map(|uid| uid.to_string()),
        owner_group: asked.gid.map(|gid| gid.to_string()),
        ..SetAttributes::default()
    })
}

fn set_time(asked: &AskedTime) -> Result<Option<SetTime>, Status> {
    Ok(match asked {
        AskedTime::DontChange => None,
        AskedTime::ToServerTime => Some(SetTime::Server),
        AskedTime::ToClientTime(time) if time.nanoseconds >= 1_000_000_000 => {
            return Err(Status::Inval);
        }
        AskedTime::ToClientTime(Time { seconds, nanoseconds }) => {
            Some(SetTime::Client(Timestamp {
                seconds: i64::from(*seconds),
                nanoseconds: *nanoseconds,
            }))
        }
    })
}

impl Service<'_, '_, '_> {
    /// Returns the attributes of an object for a reply. `None` if they cannot be read, which most
    /// replies allow.
    pub(super) fn attributes(&mut self, handle: &FileHandle) -> Option<Shown> {
        let by = self.by.clone();
        let found = self.reactor.files().attributes_of(&by, handle);
        found.ok().map(|found| shown(handle, &found))
    }

    /// Returns the attributes of the object of a call, for its reply. `None` also if a fence blocks
    /// the caller's access to the object.
    pub(super) fn attributes_of_object(&mut self, given: Handle<'_>) -> Option<Shown> {
        let handle = self.object(given).ok()?;
        self.attributes(&handle)
    }

    /// Returns the attributes of a file that was read just now.
    pub(super) fn recent_attributes(&mut self, handle: &FileHandle) -> Option<Shown> {
        let user = self.id.user;
        if let Some(found) = self.desk.recent.attributes(self.reactor, user, handle) {
            return Some(shown(handle, &found));
        }
        let by = self.by.clone();
        let found = self.reactor.files().attributes_of(&by, handle).ok()?;
        self.desk.recent.note_attributes(user, handle, found);
        Some(shown(handle, &found))
    }

    /// Returns the attributes of an object before an operation.
    pub(super) fn before(&mut self, handle: &FileHandle) -> Before {
        let by = self.by.clone();
        let found = self.reactor.files().attributes_of(&by, handle);
        found.ok().map(|found| before(&found))
    }

    /// Returns the attributes of an object before and after an operation.
    pub(super) fn changes(&mut self, handle: &FileHandle, before: Before) -> WccData {
        WccData { before, after: self.attributes(handle) }
    }
}
