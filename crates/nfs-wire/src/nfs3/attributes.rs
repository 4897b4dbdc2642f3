//! Attributes of files, and the procedures GETATTR, SETATTR and ACCESS.

use super::{Handle, Status};
use crate::xdr::xdr;

xdr! {
    /// The type of a file.
    enum FileType {
        /// A regular file with bytes.
        Regular = 1,
        /// A directory with entries.
        Directory = 2,
        /// A special file for a block device.
        Block = 3,
        /// A special file for a character device.
        Character = 4,
        /// A symbolic link to a path.
        SymbolicLink = 5,
        /// A Unix domain socket, as a special file.
        Socket = 6,
        /// A named pipe (FIFO), as a special file.
        Fifo = 7,
    }

    /// The number of a device: major and minor.
    #[derive(Copy)]
    struct DeviceNumber {
        /// The major number, which identifies the driver.
        major: u32,
        /// The minor number, which the driver interprets.
        minor: u32,
    }

    /// A point in time, counted from the start of 1970 (UTC).
    #[derive(Copy, Default)]
    struct Time {
        /// The whole seconds of the time.
        seconds: u32,
        /// The nanoseconds after the whole second.
        nanoseconds: u32,
    }

    /// The attributes of a file.
    #[derive(Copy)]
    struct Attributes {
        /// The type of the file.
        file_type: FileType,
        /// The permission bits of the file.
        mode: u32,
        /// The number of hard links to the file.
        link_count: u32,
        /// The user id of the owner.
        uid: u32,
        /// The group id of the file.
        gid: u32,
        /// The size of the file in bytes.
        size: u64,
        /// The number of bytes that the file occupies in storage.
        used: u64,
        /// The number of the device, if the file is a special file for a device.
        device: DeviceNumber,
        /// The id of the file system.
        fs_id: u64,
        /// The inode number: identifies the file in its file system.
        file_id: u64,
        /// The time of the last access.
        access_time: Time,
        /// The time of the last change of the content.
        modify_time: Time,
        /// The time of the last change of attributes or content.
        change_time: Time,
    }

    /// The attributes of a file that show whether it has changed, as they were before an operation.
    #[derive(Copy)]
    struct WccAttributes {
        /// The size of the file in bytes.
        size: u64,
        /// The time of the last change of the content.
        modify_time: Time,
        /// The time of the last change of attributes or content.
        change_time: Time,
    }

    /// The attributes of a file before and after an operation, as far as the server knows them.
    #[derive(Copy, Default)]
    struct WccData {
        /// The attributes before the operation that show whether another client changed the file.
        before: Option<WccAttributes>,
        /// The attributes after the operation.
        after: Option<Attributes>,
    }

    /// The way in which SETATTR sets a time.
    enum SetTimeHow {
        /// The time is not changed.
        DontChange = 0,
        /// The time is set to the server's present time.
        ToServerTime = 1,
        /// The time is set to the value in the message.
        ToClientTime = 2,
    }

    /// The change of a time by SETATTR.
    #[derive(Copy, Default)]
    union SetTime on SetTimeHow {
        /// The time is not changed.
        #[default]
        DontChange => DontChange,
        /// The time is set to the server's present time.
        ToServerTime => ToServerTime,
        /// The time is set to this value.
        ToClientTime => ToClientTime(Time),
    }

    /// The attributes to set; an attribute that is `None` is not changed.
    #[derive(Copy, Default)]
    struct SetAttributes {
        /// The permission bits to set.
        mode: Option<u32>,
        /// The user id of the new owner.
        uid: Option<u32>,
        /// The group id of the new group.
        gid: Option<u32>,
        /// The new size in bytes.
        size: Option<u64>,
        /// The change of the time of the last access.
        access_time: SetTime,
        /// The change of the time of the last change of the content.
        modify_time: SetTime,
    }

    /// The results of GETATTR.
    #[derive(Copy)]
    union GetAttrResult on Status {
        /// The attributes of the file.
        Ok => Ok(Attributes),
        /// The procedure failed with this status.
        _ => Fail,
    }

    /// The arguments of SETATTR.
    #[derive(Copy)]
    struct SetAttrArgs<'b> {
        /// The handle of the file.
        file: Handle<'b>,
        /// The attributes to set.
        attributes: SetAttributes,
        /// If present, the change time that the file must have; otherwise SETATTR fails.
        guard: Option<Time>,
    }

    /// The results of a procedure that returns only attributes before and after the operation.
    #[derive(Copy)]
    union WccResult on Status {
        /// The attributes of the file before and after the operation.
        Ok => Ok(WccData),
        /// The status of a failed procedure, and the attributes before and after it.
        _ => Fail(WccData),
    }

    /// The access rights that ACCESS checks.
    flags AccessRights: u32 {
        /// The right to read a file or list a directory.
        READ = 0x01,
        /// The right to look up a name in a directory.
        LOOKUP = 0x02,
        /// The right to change existing data or directory entries.
        MODIFY = 0x04,
        /// The right to append data or add entries.
        EXTEND = 0x08,
        /// The right to remove an entry of a directory.
        DELETE = 0x10,
        /// The right to execute a file.
        EXECUTE = 0x20,
    }

    /// The arguments of ACCESS.
    #[derive(Copy)]
    struct AccessArgs<'b> {
        /// The handle of the file.
        file: Handle<'b>,
        /// The rights that the client asks about.
        rights: AccessRights,
    }

    /// The results of a successful ACCESS.
    #[derive(Copy)]
    struct AccessOk {
        /// The attributes of the file.
        attributes: Option<Attributes>,
        /// The rights, of those that the client asked about, that the caller has.
        rights: AccessRights,
    }

    /// The results of ACCESS.
    #[derive(Copy)]
    union AccessResult on Status {
        /// The rights that the caller has, and the attributes of the file.
        Ok => Ok(AccessOk),
        /// The status of a failed procedure, and attributes if the server has any.
        _ => Fail(Option<Attributes>),
    }
}
