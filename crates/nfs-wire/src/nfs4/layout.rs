//! Operations on layouts and devices (RFC 8881 sections 18.40 to 18.44, RFC 7862 sections 15.6 and
//! 15.7).
//!
//! Invariant: the body of a layout, device or update is opaque here; the layout type defines its
//! encoding.

use crate::xdr::{List, Opaque, xdr};

use super::bitmap::Bitmap;
use super::limits::{BODY_BYTES_MAX, DEVICES_MAX};
use super::status::Status;
use super::types::{DeviceId, LayoutMode, LayoutType, StateId, Time, Verifier};

/// Bytes whose encoding the layout type defines.
pub type Body<'b> = Opaque<'b, BODY_BYTES_MAX>;

xdr! {
    /// Arguments of GETDEVICEINFO.
    #[derive(Copy, Default)]
    struct GetDeviceInfoArgs {
        /// The device that a layout refers to.
        device: DeviceId,
        /// The type of the layout.
        kind: LayoutType,
        /// The maximum length of the results in bytes.
        bytes_max: u32,
        /// The kinds of notifications about the device that the client wants.
        notifications: Bitmap,
    }
    /// Results of GETDEVICEINFO.
    #[derive(Copy)]
    union GetDeviceInfoResult<'b> on Status {
        /// The device and the notifications about it.
        Ok => Found(GetDeviceInfoDone<'b>),
        /// The length in bytes that the results need.
        TooSmall => TooSmall(u32),
        /// The operation failed with this status.
        _ => Failed,
    }
    /// A device and the notifications about it.
    #[derive(Copy, Default)]
    struct GetDeviceInfoDone<'b> {
        /// The type of the layout.
        kind: LayoutType,
        /// The addresses and properties of the device.
        body: Body<'b>,
        /// The kinds of notifications that the server will send.
        notifications: Bitmap,
    }
    /// Arguments of GETDEVICELIST.
    #[derive(Copy, Default)]
    struct GetDeviceListArgs {
        /// The type of the layouts.
        kind: LayoutType,
        /// The maximum number of devices in the results.
        devices_max: u32,
        /// The cookie after which the list continues; 0 for the first device.
        cookie: u64,
        /// The verifier of the reply that contained the cookie.
        verifier: Verifier,
    }
    /// Results of GETDEVICELIST.
    #[derive(Default)]
    struct GetDeviceListDone {
        /// The cookie by which the client asks for the devices after these.
        cookie: u64,
        /// The verifier that the client sends with the cookie.
        verifier: Verifier,
        /// The ids of the devices.
        devices: List<DeviceId, DEVICES_MAX>,
        /// True if the list is complete.
        is_end: bool,
    }
    /// Arguments of LAYOUTCOMMIT.
    #[derive(Copy, Default)]
    struct LayoutCommitArgs<'b> {
        /// The offset of the first byte that was written.
        offset: u64,
        /// The number of bytes that were written.
        length: u64,
        /// True if the layout was granted before a restart of the server.
        reclaim: bool,
        /// The id of the layout.
        state: StateId,
        /// The offset of the last byte that was written; `None` if the file has not grown.
        last_offset: Option<u64>,
        /// The time of the last write, if the client knows it.
        time: Option<Time>,
        /// The type of the layout.
        kind: LayoutType,
        /// Additional arguments, whose encoding the layout type defines.
        body: Body<'b>,
    }
    /// Arguments of LAYOUTGET.
    #[derive(Copy, Default)]
    struct LayoutGetArgs {
        /// True if the server must notify the client when a layout becomes available.
        signal: bool,
        /// The type of the layout.
        kind: LayoutType,
        /// The access that the client needs.
        mode: LayoutMode,
        /// The offset in the file of the first byte.
        offset: u64,
        /// The wanted number of bytes; all ones for all that follow.
        length: u64,
        /// The minimum number of bytes that the layout must cover.
        length_min: u64,
        /// The state id of the open, lock, delegation or layout that allows the access.
        state: StateId,
        /// The maximum length of the results in bytes.
        bytes_max: u32,
    }
    /// Results of LAYOUTGET.
    union LayoutGetResult<'b> on Status {
        /// The layouts of the range.
        Ok => Granted(LayoutGetDone<'b>),
        /// No layout is available now; the value is true if the server will notify the client
        /// later.
        LayoutTryLater => TryLater(bool),
        /// The operation failed with this status.
        _ => Failed,
    }
    /// The layouts of a range.
    #[derive(Default)]
    struct LayoutGetDone<'b> {
        /// True if the client must return the layouts with the last CLOSE.
        return_on_close: bool,
        /// The id of the layouts.
        state: StateId,
        /// The layouts, each of which covers a part of the range.
        layouts: List<Layout<'b>, DEVICES_MAX>,
    }
    /// The layout of one range of a file.
    #[derive(Copy, Default)]
    struct Layout<'b> {
        /// The offset in the file of the first byte.
        offset: u64,
        /// The number of bytes; all bits set means up to the end of the file.
        length: u64,
        /// The access mode of the layout.
        mode: LayoutMode,
        /// The type of the layout.
        kind: LayoutType,
        /// The devices and handles, in the encoding of the layout type.
        body: Body<'b>,
    }
    /// Arguments of LAYOUTRETURN.
    #[derive(Copy)]
    struct LayoutReturnArgs<'b> {
        /// True if the layouts were granted before a restart of the server.
        reclaim: bool,
        /// The type of the layouts.
        kind: LayoutType,
        /// The access mode of the layouts.
        mode: LayoutMode,
        /// The layouts that are returned.
        what: LayoutReturn<'b>,
    }
    /// The layouts that are returned.
    #[derive(Copy)]
    union LayoutReturn<'b> on u32 {
        /// Layouts of a range of the current file.
        1 => File(ReturnedRange<'b>),
        /// All layouts of the current file system.
        2 => FileSystem,
        /// All layouts of the client.
        3 => All,
    }
    /// A range of a file whose layouts are returned.
    #[derive(Copy, Default)]
    struct ReturnedRange<'b> {
        /// The offset in the file of the first byte.
        offset: u64,
        /// The number of bytes; all bits set means up to the end of the file.
        length: u64,
        /// The id of the layouts.
        state: StateId,
        /// Additional arguments, whose encoding the layout type defines.
        body: Body<'b>,
    }
    /// Arguments of LAYOUTERROR.
    #[derive(Default)]
    struct LayoutErrorArgs {
        /// The offset in the file of the first byte.
        offset: u64,
        /// The number of bytes; all bits set means up to the end of the file.
        length: u64,
        /// The id of the layout.
        state: StateId,
        /// The errors that the client got from devices.
        errors: List<DeviceError, DEVICES_MAX>,
    }
    /// An error that a client got from a device.
    #[derive(Copy)]
    struct DeviceError {
        /// The device that returned the error.
        device: DeviceId,
        /// The status that the device returned.
        status: Status,
        /// The number of the operation that the device refused.
        operation: u32,
    }
    /// Arguments of LAYOUTSTATS.
    #[derive(Copy, Default)]
    struct LayoutStatsArgs<'b> {
        /// The offset in the file of the first byte.
        offset: u64,
        /// The number of bytes; all bits set means up to the end of the file.
        length: u64,
        /// The id of the layout.
        state: StateId,
        /// The number of reads since the last report, and of their bytes.
        reads: IoCount,
        /// The number of writes since the last report, and of their bytes.
        writes: IoCount,
        /// The device that the client used.
        device: DeviceId,
        /// The type of the layout.
        kind: LayoutType,
        /// Additional statistics, whose encoding the layout type defines.
        body: Body<'b>,
    }
    /// A number of requests and of bytes.
    #[derive(Copy, Default)]
    struct IoCount {
        /// The number of requests.
        count: u64,
        /// The number of bytes.
        bytes: u64,
    }
}
