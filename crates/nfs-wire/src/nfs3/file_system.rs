//! Properties of file systems: FSSTAT, FSINFO and PATHCONF.

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
        /// The number of bytes that the caller may use.
        available_bytes: u64,
        /// The number of files that the file system can have.
        total_files: u64,
        /// The number of files that can still be made.
        free_files: u64,
        /// The number of files that the caller may make.
        available_files: u64,
        /// The seconds in which nothing of this is expected to change.
        invariant_seconds: u32,
    }

    /// The results of FSSTAT.
    #[derive(Copy)]
    union FsStatResult on Status {
        /// The space of the file system.
        Ok => Ok(FsStatOk),
        /// The reason of the failure, and the attributes.
        _ => Fail(Option<Attributes>),
    }

    /// What a file system can do.
    flags FsProperties: u32 {
        /// Files can have several names.
        LINK = 0x01,
        /// Symbolic links can be made.
        SYMLINK = 0x02,
        /// PATHCONF is the same for all files.
        HOMOGENEOUS = 0x08,
        /// Times can be set to any value.
        CANSETTIME = 0x10,
    }

    /// The results of a successful FSINFO.
    #[derive(Copy)]
    struct FsInfoOk {
        /// The attributes of the root of the file system.
        attributes: Option<Attributes>,
        /// The maximum count of a READ.
        read_max: u32,
        /// The preferred count of a READ.
        read_preferred: u32,
        /// The number that the count of a READ should be a multiple of.
        read_multiple: u32,
        /// The maximum count of a WRITE.
        write_max: u32,
        /// The preferred count of a WRITE.
        write_preferred: u32,
        /// The number that the count of a WRITE should be a multiple of.
        write_multiple: u32,
        /// The preferred count of a READDIR.
        directory_preferred: u32,
        /// The maximum size of a file in bytes.
        file_bytes_max: u64,
        /// The smallest difference between two times.
        time_delta: Time,
        /// What the file system can do.
        properties: FsProperties,
    }

    /// The results of FSINFO.
    #[derive(Copy)]
    union FsInfoResult on Status {
        /// Limits and properties of the file system.
        Ok => Ok(FsInfoOk),
        /// The reason of the failure, and the attributes.
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
        /// Whether a name that is too long is an error.
        no_trunc: bool,
        /// Whether only a privileged user may change the owner.
        chown_restricted: bool,
        /// Whether upper and lower case are the same.
        case_insensitive: bool,
        /// Whether the case of a name is kept.
        case_preserving: bool,
    }

    /// The results of PATHCONF.
    #[derive(Copy)]
    union PathConfResult on Status {
        /// Limits and properties of names.
        Ok => Ok(PathConfOk),
        /// The reason of the failure, and the attributes.
        _ => Fail(Option<Attributes>),
    }
}
