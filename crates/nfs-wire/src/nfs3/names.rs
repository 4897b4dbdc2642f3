//! Names in directories: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME and LINK.

use super::{
    Attributes, DeviceNumber, DirectoryOp, FileType, Handle, LinkText, SetAttributes, Status,
    Verifier, WccData,
};
use crate::xdr::xdr;

xdr! {
    /// The results of a successful LOOKUP.
    #[derive(Copy)]
    struct LookupOk<'b> {
        /// The handle of the file.
        file: Handle<'b>,
        /// The attributes of the file.
        attributes: Option<Attributes>,
        /// The attributes of the directory.
        directory: Option<Attributes>,
    }

    /// The results of LOOKUP.
    #[derive(Copy)]
    union LookupResult<'b> on Status {
        /// The file of this name.
        Ok => Ok(LookupOk<'b>),
        /// The reason of the failure, and the directory's attributes.
        _ => Fail(Option<Attributes>),
    }

    /// What CREATE does if the name exists already.
    enum CreateMode {
        /// The file that exists is used.
        Unchecked = 0,
        /// The procedure fails.
        Guarded = 1,
        /// The procedure fails, unless the file has the same verifier.
        Exclusive = 2,
    }

    /// How a file is made.
    #[derive(Copy)]
    union CreateHow on CreateMode {
        /// A file that exists is used, and its size may be set.
        Unchecked => Unchecked(SetAttributes),
        /// A file that exists is an error.
        Guarded => Guarded(SetAttributes),
        /// A file that exists is an error, unless it was made with this verifier.
        Exclusive => Exclusive(Verifier),
    }

    /// The arguments of CREATE.
    #[derive(Copy)]
    struct CreateArgs<'b> {
        /// The directory and the new name.
        at: DirectoryOp<'b>,
        /// How the file is made.
        how: CreateHow,
    }

    /// The results of a procedure that made a file.
    #[derive(Copy)]
    struct CreateOk<'b> {
        /// The handle of the new file.
        file: Option<Handle<'b>>,
        /// The attributes of the new file.
        attributes: Option<Attributes>,
        /// The attributes of the directory before and after.
        directory: WccData,
    }

    /// The results of CREATE, MKDIR, SYMLINK and MKNOD.
    #[derive(Copy)]
    union CreateResult<'b> on Status {
        /// The file that was made.
        Ok => Ok(CreateOk<'b>),
        /// The reason of the failure, and the directory's attributes.
        _ => Fail(WccData),
    }

    /// The arguments of MKDIR.
    #[derive(Copy)]
    struct MkDirArgs<'b> {
        /// The directory and the new name.
        at: DirectoryOp<'b>,
        /// The attributes of the new directory.
        attributes: SetAttributes,
    }

    /// The content of a new symbolic link.
    #[derive(Copy)]
    struct SymLinkData<'b> {
        /// The attributes of the link.
        attributes: SetAttributes,
        /// The target of the link.
        target: LinkText<'b>,
    }

    /// The arguments of SYMLINK.
    #[derive(Copy)]
    struct SymLinkArgs<'b> {
        /// The directory and the new name.
        at: DirectoryOp<'b>,
        /// The content of the link.
        link: SymLinkData<'b>,
    }

    /// The attributes and the number of a new special file.
    #[derive(Copy)]
    struct NodeDevice {
        /// The attributes of the special file.
        attributes: SetAttributes,
        /// The numbers of the device.
        device: DeviceNumber,
    }

    /// The type of a new special file, and what it needs.
    #[derive(Copy)]
    union MkNodData on FileType {
        /// A special file for a character device.
        Character => Character(NodeDevice),
        /// A special file for a block device.
        Block => Block(NodeDevice),
        /// A socket of the local domain.
        Socket => Socket(SetAttributes),
        /// A named pipe, first in first out.
        Fifo => Fifo(SetAttributes),
        /// A type that MKNOD cannot make.
        _ => Other,
    }

    /// The arguments of MKNOD.
    #[derive(Copy)]
    struct MkNodArgs<'b> {
        /// The directory and the new name.
        at: DirectoryOp<'b>,
        /// The type of the file, and what it needs.
        what: MkNodData,
    }

    /// The arguments of RENAME.
    #[derive(Copy)]
    struct RenameArgs<'b> {
        /// The old directory and name.
        from: DirectoryOp<'b>,
        /// The new directory and name.
        to: DirectoryOp<'b>,
    }

    /// The attributes of both directories of a RENAME.
    #[derive(Copy)]
    struct RenameOk {
        /// The old directory's attributes before and after.
        from: WccData,
        /// The new directory's attributes before and after.
        to: WccData,
    }

    /// The results of RENAME.
    #[derive(Copy)]
    union RenameResult on Status {
        /// The attributes of both directories.
        Ok => Ok(RenameOk),
        /// The reason of the failure, and the attributes.
        _ => Fail(RenameOk),
    }

    /// The arguments of LINK.
    #[derive(Copy)]
    struct LinkArgs<'b> {
        /// The handle of the file.
        file: Handle<'b>,
        /// The directory and the new name.
        at: DirectoryOp<'b>,
    }

    /// The attributes of file and directory after a LINK.
    #[derive(Copy)]
    struct LinkOk {
        /// The attributes of the file.
        attributes: Option<Attributes>,
        /// The attributes of the directory before and after.
        directory: WccData,
    }

    /// The results of LINK.
    #[derive(Copy)]
    union LinkResult on Status {
        /// The attributes of file and directory.
        Ok => Ok(LinkOk),
        /// The reason of the failure, and the attributes.
        _ => Fail(LinkOk),
    }
}
