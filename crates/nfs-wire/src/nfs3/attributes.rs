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
        /// A socket of the local domain.
        Socket = 6,
        /// A named pipe, first in first out.
        Fifo = 7,
    }

    /// The two numbers of a device.
    #[derive(Copy)]
    struct DeviceNumber {
        /// The first number, which names the driver.
        major: u32,
        /// The second number, which the driver understands.
        minor: u32,
    }

    /// A time since the start of 1970.
    #[derive(Copy, Default)]
    struct Time {
        /// The whole seconds of the time.
        seconds: u32,
        /// The nanoseconds after the second.
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
        /// The number of the owner.
        uid: u32,
        /// The number of the owner's group.
        gid: u32,
        /// The size of the file in bytes.
        size: u64,
        /// The number of bytes that the file occupies in storage.
        used: u64,
        /// The device, if the file is a special file.
        device: DeviceNumber,
        /// The number of the file system.
        fs_id: u64,
        /// The number of the file in its file system.
        file_id: u64,
        /// The time of the last access.
        access_time: Time,
        /// The time of the last change of the content.
        modify_time: Time,
        /// The time of the last change of attributes or content.
        change_time: Time,
    }

    /// The attributes that show a change of a file, as they were before an operation.
    #[derive(Copy)]
    struct WccAttributes {
        /// The size of the file in bytes.
        size: u64,
        /// The time of the last change of the content.
        modify_time: Time,
        /// The time of the last change of attributes or content.
        change_time: Time,
    }

    /// Attributes before and after an operation, as far as the server knows them.
    #[derive(Copy, Default)]
    struct WccData {
        /// Some attributes before the operation.
        before: Option<WccAttributes>,
        /// The attributes after the operation.
        after: Option<Attributes>,
    }

    /// How a time is set.
    enum SetTimeHow {
        /// The time stays as it is.
        DontChange = 0,
        /// The time becomes that of the server's clock.
        ToServerTime = 1,
        /// The time becomes the one that follows.
        ToClientTime = 2,
    }

    /// A change of a time.
    #[derive(Copy, Default)]
    union SetTime on SetTimeHow {
        /// The time stays as it is.
        #[default]
        DontChange => DontChange,
        /// The time becomes that of the server's clock.
        ToServerTime => ToServerTime,
        /// The time becomes this one.
        ToClientTime => ToClientTime(Time),
    }

    /// The attributes to set; `None` leaves one as it is.
    #[derive(Copy, Default)]
    struct SetAttributes {
        /// The permission bits to set.
        mode: Option<u32>,
        /// The number of the new owner.
        uid: Option<u32>,
        /// The number of the new group.
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
        /// The reason of the failure.
        _ => Fail,
    }

    /// The arguments of SETATTR.
    #[derive(Copy)]
    struct SetAttrArgs<'b> {
        /// The handle of the file.
        file: Handle<'b>,
        /// The attributes to set.
        attributes: SetAttributes,
        /// If given, the change time that the file must have, or nothing is set.
        guard: Option<Time>,
    }

    /// The results of a procedure that returns only the attributes before and after.
    #[derive(Copy)]
    union WccResult on Status {
        /// The attributes before and after.
        Ok => Ok(WccData),
        /// The reason of the failure, and the attributes.
        _ => Fail(WccData),
    }

    /// The rights that ACCESS asks about.
    flags AccessRights: u32 {
        /// The right to read data or list a directory.
        READ = 0x01,
        /// The right to look up a name in a directory.
        LOOKUP = 0x02,
        /// The right to change data or entries that exist.
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
        /// Those of the rights that the caller has.
        rights: AccessRights,
    }

    /// The results of ACCESS.
    #[derive(Copy)]
    union AccessResult on Status {
        /// The rights that the caller has.
        Ok => Ok(AccessOk),
        /// The reason of the failure, and the attributes.
        _ => Fail(Option<Attributes>),
    }
}
