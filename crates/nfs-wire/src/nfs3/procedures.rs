//! The table of the procedures of NFS version 3 (RFC 1813 section 3).

use super::*;
use crate::table::program;

program! {
    /// The table of NFS version 3.
    NFS3 = "NFS version 3", 100003 version 3;
    Procedure, Arguments<'b>, Results<'b>;
    Null = 0 "NULL" (()) -> (()) Reads;
    GetAttr = 1 "GETATTR" (FileArgs<'b>) -> (GetAttrResult) Reads;
    SetAttr = 2 "SETATTR" (SetAttrArgs<'b>) -> (WccResult) Once;
    Lookup = 3 "LOOKUP" (DirectoryOp<'b>) -> (LookupResult<'b>) Reads;
    Access = 4 "ACCESS" (AccessArgs<'b>) -> (AccessResult) Reads;
    ReadLink = 5 "READLINK" (FileArgs<'b>) -> (ReadLinkResult<'b>) Reads;
    Read = 6 "READ" (ReadArgs<'b>) -> (ReadResult<'b>) Reads;
    Write = 7 "WRITE" (WriteArgs<'b>) -> (WriteResult) Repeats;
    Create = 8 "CREATE" (CreateArgs<'b>) -> (CreateResult<'b>) Once;
    MkDir = 9 "MKDIR" (MkDirArgs<'b>) -> (CreateResult<'b>) Once;
    SymLink = 10 "SYMLINK" (SymLinkArgs<'b>) -> (CreateResult<'b>) Once;
    MkNod = 11 "MKNOD" (MkNodArgs<'b>) -> (CreateResult<'b>) Once;
    Remove = 12 "REMOVE" (DirectoryOp<'b>) -> (WccResult) Once;
    RmDir = 13 "RMDIR" (DirectoryOp<'b>) -> (WccResult) Once;
    Rename = 14 "RENAME" (RenameArgs<'b>) -> (RenameResult) Once;
    Link = 15 "LINK" (LinkArgs<'b>) -> (LinkResult) Once;
    ReadDir = 16 "READDIR" (ReadDirArgs<'b>) -> (ReadDirResult<'b>) Reads;
    ReadDirPlus = 17 "READDIRPLUS" (ReadDirPlusArgs<'b>) -> (ReadDirPlusResult<'b>) Reads;
    FsStat = 18 "FSSTAT" (FileArgs<'b>) -> (FsStatResult) Reads;
    FsInfo = 19 "FSINFO" (FileArgs<'b>) -> (FsInfoResult) Reads;
    PathConf = 20 "PATHCONF" (FileArgs<'b>) -> (PathConfResult) Reads;
    Commit = 21 "COMMIT" (CommitArgs<'b>) -> (CommitResult) Repeats;
}
