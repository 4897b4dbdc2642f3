//! The procedures on names: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME and LINK.

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
        /// The file with this name, and attributes.
        Ok => Ok(LookupOk<'b>),
        /// The status of a failed LOOKUP, and the attributes of the directory.
        _ => Fail(Option<Attributes>),
    }

    /// The behavior of CREATE if the name already exists.
    enum CreateMode {
        /// CREATE uses the existing file.
        Unchecked = 0,
        /// CREATE fails with EXIST.
        Guarded = 1,
        /// CREATE fails, unless the existing file was created with the same verifier.
        Exclusive = 2,
    }

    /// The way in which CREATE creates a file.
    #[derive(Copy)]
    union CreateHow on CreateMode {
        /// If the file exists, it is used, and only its size is set.
        Unchecked => Unchecked(SetAttributes),
        /// If the file exists, CREATE fails.
        Guarded => Guarded(SetAttributes),
        /// If the file exists, CREATE fails, unless the file was created with this verifier.
        Exclusive => Exclusive(Verifier),
    }

    /// The arguments of CREATE.
    #[derive(Copy)]
    struct CreateArgs<'b> {
        /// The directory and the new name.
        at: DirectoryOp<'b>,
        /// The way in which the file is created.
        how: CreateHow,
    }

    /// The results of a procedure that has created an object.
    #[derive(Copy)]
    struct CreateOk<'b> {
        /// The handle of the new object.
        file: Option<Handle<'b>>,
        /// The attributes of the new object.
        attributes: Option<Attributes>,
        /// The attributes of the directory before and after the procedure.
        directory: WccData,
    }

    /// The results of CREATE, MKDIR, SYMLINK and MKNOD.
    #[derive(Copy)]
    union CreateResult<'b> on Status {
        /// The object that was created.
        Ok => Ok(CreateOk<'b>),
        /// The status of a failed procedure, and the attributes of the directory.
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

    /// The attributes and the device number of a new special file.
    #[derive(Copy)]
    struct NodeDevice {
        /// The attributes of the special file.
        attributes: SetAttributes,
        /// The number of the device.
        device: DeviceNumber,
    }

    /// The type of a new special file, with its attributes.
    #[derive(Copy)]
    union MkNodData on FileType {
        /// A special file for a character device.
        Character => Character(NodeDevice),
        /// A special file for a block device.
        Block => Block(NodeDevice),
        /// A Unix domain socket, as a special file.
        Socket => Socket(SetAttributes),
        /// A named pipe (FIFO), as a special file.
        Fifo => Fifo(SetAttributes),
        /// A type that MKNOD cannot make.
        _ => Other,
    }

    /// The arguments of MKNOD.
    #[derive(Copy)]
    struct MkNodArgs<'b> {
        /// The directory and the new name.
        at: DirectoryOp<'b>,
        /// The type of the file, with its attributes.
        what: MkNodData,
    }

    /// The arguments of RENAME.
    #[derive(Copy)]
    struct RenameArgs<'b> {
        /// The old directory and the old name.
        from: DirectoryOp<'b>,
        /// The new directory and the new name.
        to: DirectoryOp<'b>,
    }

    /// The attributes of both directories before and after a RENAME.
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
        /// The status of a failed RENAME, and the attributes of both directories.
        _ => Fail(RenameOk),
    }

    /// The arguments of LINK.
    #[derive(Copy)]
    struct LinkArgs<'b> {
        /// The handle of the file.
        file: Handle<'b>,
        /// The directory and the new name of the file.
        at: DirectoryOp<'b>,
    }

    /// The attributes of the file and of the directory after a LINK.
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
        /// The attributes of the file and of the directory.
        Ok => Ok(LinkOk),
        /// The status of a failed LINK, and the attributes of file and directory.
        _ => Fail(LinkOk),
    }
}
