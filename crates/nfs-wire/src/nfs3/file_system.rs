//! The procedures on file systems: FSSTAT, FSINFO and PATHCONF.

use super::{Attributes, Status, Time};
use crate::xdr::xdr;

xdr! {
    /// The results of a successful FSSTAT.
    #[derive(Copy)]
    struct FsStatOk {
        /// The attributes of the file.
        attributes: Option<Attributes>,
        /// The size of the file system in bytes.
        total_bytes: u64,
        /// The number of free bytes.
        free_bytes: u64,
        /// The number of free bytes that the caller may use.
        available_bytes: u64,
        /// The number of files that the file system can have.
        total_files: u64,
        /// The number of files that can still be created.
        free_files: u64,
        /// The number of files that the caller may create.
        available_files: u64,
        /// The number of seconds for which these values will probably not change.
        invariant_seconds: u32,
    }

    /// The results of FSSTAT.
    #[derive(Copy)]
    union FsStatResult on Status {
        /// The space of the file system and the attributes of the file.
        Ok => Ok(FsStatOk),
        /// The status of a failed procedure, and attributes if the server has any.
        _ => Fail(Option<Attributes>),
    }

    /// The properties of a file system.
    flags FsProperties: u32 {
        /// A file can have several hard links.
        LINK = 0x01,
        /// The file system supports symbolic links.
        SYMLINK = 0x02,
        /// PATHCONF has the same results for all files.
        HOMOGENEOUS = 0x08,
        /// SETATTR can set times exactly.
        CANSETTIME = 0x10,
    }

    /// The results of a successful FSINFO.
    #[derive(Copy)]
    struct FsInfoOk {
        /// The attributes of the root of the file system.
        attributes: Option<Attributes>,
        /// The maximum number of bytes of a READ.
        read_max: u32,
        /// The preferred number of bytes of a READ.
        read_preferred: u32,
        /// The number of which the size of a READ should be a multiple.
        read_multiple: u32,
        /// The maximum number of bytes of a WRITE.
        write_max: u32,
        /// The preferred number of bytes of a WRITE.
        write_preferred: u32,
        /// The number of which the size of a WRITE should be a multiple.
        write_multiple: u32,
        /// The preferred number of bytes of a READDIR.
        directory_preferred: u32,
        /// The maximum size of a file in bytes.
        file_bytes_max: u64,
        /// The resolution of times in the file system.
        time_delta: Time,
        /// The properties of the file system.
        properties: FsProperties,
    }

    /// The results of FSINFO.
    #[derive(Copy)]
    union FsInfoResult on Status {
        /// Limits and properties of the file system.
        Ok => Ok(FsInfoOk),
        /// The status of a failed procedure, and attributes if the server has any.
        _ => Fail(Option<Attributes>),
    }

    /// The results of a successful PATHCONF.
    #[derive(Copy)]
    struct PathConfOk {
        /// The attributes of the file.
        attributes: Option<Attributes>,
        /// The maximum number of hard links to a file.
        link_max: u32,
        /// The maximum length of a name in bytes.
        name_bytes_max: u32,
        /// True if a name that is too long is refused; false if it is shortened.
        no_trunc: bool,
        /// True if only a privileged user may change the owner.
        chown_restricted: bool,
        /// True if names that differ only in case are the same name.
        case_insensitive: bool,
        /// True if the file system stores the case of names.
        case_preserving: bool,
    }

    /// The results of PATHCONF.
    #[derive(Copy)]
    union PathConfResult on Status {
        /// Limits and properties of names.
        Ok => Ok(PathConfOk),
        /// The status of a failed procedure, and attributes if the server has any.
        _ => Fail(Option<Attributes>),
    }
}
