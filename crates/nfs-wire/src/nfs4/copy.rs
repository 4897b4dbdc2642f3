//! Operations that copy within a server or between servers (RFC 7862 sections 15.2, 15.3, 15.8,
//! 15.9 and 15.13), on extended attributes (RFC 8276) and on security flavors (RFC 8881 sections
//! 18.29 and 18.45).
//!
//! Invariant: every list in these messages has a named bound.

use crate::rpc::gss::GssService;
use crate::xdr::{List, Opaque, xdr};

use super::limits::{FLAVORS_MAX, LOCATIONS_MAX, XATTR_BYTES_MAX, XATTR_NAMES_MAX};
use super::session::ObjectIdentifier;
use super::status::Status;
use super::types::{Name, NetworkAddress, StateId, Text, Time, WriteResponse};

/// The value of an extended attribute.
pub type XattrValue<'b> = Opaque<'b, XATTR_BYTES_MAX>;

xdr! {
    /// Arguments of COPY: from the saved file to the current one.
    #[derive(Default)]
    struct CopyArgs<'b> {
        /// The state id of the open, lock or delegation of the source.
        source_state: StateId,
        /// The state id of the open, lock or delegation of the target.
        target_state: StateId,
        /// The offset of the first byte in the source.
        source_offset: u64,
        /// The offset of the first byte in the target.
        target_offset: u64,
        /// The number of bytes; 0 means up to the end of the file.
        count: u64,
        /// True if the bytes must be copied in ascending order.
        consecutive: bool,
        /// True if the copy must be complete before the reply.
        synchronous: bool,
        /// The servers that have the source; empty if the source is on this server.
        source_servers: List<CopyServer<'b>, LOCATIONS_MAX>,
    }
    /// A server that takes part in a copy between servers.
    #[derive(Copy)]
    union CopyServer<'b> on u32 {
        /// The name of the server.
        1 => Name(Text<'b>),
        /// The URL of the server.
        2 => Url(Text<'b>),
        /// The address of the server.
        3 => Address(NetworkAddress<'b>),
    }
    /// Results of COPY.
    #[derive(Copy)]
    union CopyResult on Status {
        /// The copy is complete, or continues after the reply.
        Ok => Started(CopyDone),
        /// The requirements that the server can fulfil instead.
        OffloadNoReqs => Requirements(CopyRequirements),
        /// The copy failed for another reason.
        _ => Failed,
    }
    /// A copy that is complete or continues after the reply.
    #[derive(Copy, Default)]
    struct CopyDone {
        /// The id of a copy that continues, and the number of bytes copied.
        response: WriteResponse,
        /// The way in which the server copies.
        requirements: CopyRequirements,
    }
    /// The way in which a server copies.
    #[derive(Copy, Default)]
    struct CopyRequirements {
        /// True if the bytes are copied in ascending order.
        consecutive: bool,
        /// True if the copy is complete before the reply.
        synchronous: bool,
    }
    /// Arguments of COPY_NOTIFY.
    #[derive(Copy)]
    struct CopyNotifyArgs<'b> {
        /// The open, lock or delegation of the source.
        state: StateId,
        /// The server that will read the source.
        target: CopyServer<'b>,
    }
    /// Results of COPY_NOTIFY.
    #[derive(Default)]
    struct CopyNotifyDone<'b> {
        /// The duration within which the other server must begin to read.
        lease: Time,
        /// The state id with which the other server reads the source.
        state: StateId,
        /// The addresses from which the other server can read the source.
        sources: List<CopyServer<'b>, LOCATIONS_MAX>,
    }
    /// Results of OFFLOAD_STATUS.
    #[derive(Copy, Default)]
    struct OffloadStatusDone {
        /// The number of bytes that were copied.
        count: u64,
        /// The final status of the copy; `None` if the copy continues.
        complete: Option<Status>,
    }
    /// Arguments of CLONE: from the saved file to the current one.
    #[derive(Copy, Default)]
    struct CloneArgs {
        /// The open, lock or delegation of the source.
        source_state: StateId,
        /// The open, lock or delegation of the target.
        target_state: StateId,
        /// The offset of the first byte in the source.
        source_offset: u64,
        /// The offset of the first byte in the target.
        target_offset: u64,
        /// The number of bytes; 0 means up to the end of the file.
        count: u64,
    }
    /// Arguments of SETXATTR.
    #[derive(Copy)]
    struct SetXattrArgs<'b> {
        /// The condition on the existence of the attribute.
        mode: SetXattrMode,
        /// The name of the attribute, without the prefix `user.`.
        name: Name<'b>,
        /// The value of the attribute.
        value: XattrValue<'b>,
    }
    /// The condition on the existence of an extended attribute.
    enum SetXattrMode {
        /// The attribute may or may not exist.
        Either = 0,
        /// The attribute must not exist.
        Create = 1,
        /// The attribute must exist.
        Replace = 2,
    }
    /// Arguments of LISTXATTRS.
    #[derive(Copy, Default)]
    struct ListXattrsArgs {
        /// The cookie after which the list continues; 0 for the first name.
        cookie: u64,
        /// The maximum length of the results in bytes.
        bytes_max: u32,
    }
    /// Results of LISTXATTRS.
    #[derive(Default)]
    struct ListXattrsDone<'b> {
        /// The cookie by which the client asks for the names after these.
        cookie: u64,
        /// The names of the attributes, without the prefix `user.`.
        names: List<Name<'b>, XATTR_NAMES_MAX>,
        /// True if the list is complete.
        is_end: bool,
    }
    /// Results of SECINFO and SECINFO_NO_NAME.
    #[derive(Default)]
    struct SecInfoDone<'b> {
        /// The flavors, in the order of the server's preference.
        flavors: List<Flavor<'b>, FLAVORS_MAX>,
    }
    /// A security flavor that a client may use.
    #[derive(Copy)]
    union Flavor<'b> on u32 {
        /// RPCSEC_GSS with a mechanism and a protection.
        6 => Gss(GssFlavor<'b>),
        /// Another flavor, such as AUTH_SYS.
        _ => Other,
    }
    /// A mechanism of RPCSEC_GSS and the protection of messages.
    #[derive(Copy)]
    struct GssFlavor<'b> {
        /// The identifier of the mechanism.
        mechanism: ObjectIdentifier<'b>,
        /// The quality of protection; 0 for the default.
        quality: u32,
        /// The protection of calls and replies.
        service: GssService,
    }
    /// The object about which SECINFO_NO_NAME asks.
    enum SecInfoStyle {
        /// The object of the current file handle.
        CurrentHandle = 0,
        /// The parent of the current directory.
        Parent = 1,
    }
}
