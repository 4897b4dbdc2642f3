//! Operations on layouts and devices (RFC 8881 sections 18.40 to 18.44, RFC 7862 sections 15.6 and
//! 15.7).
//!
//! Invariant: the body of a layout, device or update is opaque here; its type describes it.

use crate::xdr::{List, Opaque, xdr};

use super::bitmap::Bitmap;
use super::limits::{BODY_BYTES_MAX, DEVICES_MAX};
use super::status::Status;
use super::types::{DeviceId, LayoutMode, LayoutType, StateId, Time, Verifier};

/// A body that a layout type describes.
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
        /// The notifications about the device that the client wants.
        notifications: Bitmap,
    }
    /// Results of GETDEVICEINFO.
    #[derive(Copy)]
    union GetDeviceInfoResult<'b> on Status {
        /// The device and the notifications about it.
        Ok => Found(GetDeviceInfoDone<'b>),
        /// The length in bytes that the results need.
        TooSmall => TooSmall(u32),
        /// The operation failed for another reason.
        _ => Failed,
    }
    /// A device and the notifications about it.
    #[derive(Copy, Default)]
    struct GetDeviceInfoDone<'b> {
        /// The type of the layout.
        kind: LayoutType,
        /// The addresses and properties of the device.
        body: Body<'b>,
        /// The notifications that the server will send.
        notifications: Bitmap,
    }
    /// Arguments of GETDEVICELIST.
    #[derive(Copy, Default)]
    struct GetDeviceListArgs {
        /// The type of the layouts.
        kind: LayoutType,
        /// The limit for devices in the results.
        devices_max: u32,
        /// The position to continue at.
        cookie: u64,
        /// The verifier of the reply that the cookie is from.
        verifier: Verifier,
    }
    /// Results of GETDEVICELIST.
    #[derive(Default)]
    struct GetDeviceListDone {
        /// The position after these devices.
        cookie: u64,
        /// The verifier for the cookie.
        verifier: Verifier,
        /// The ids of the devices.
        devices: List<DeviceId, DEVICES_MAX>,
        /// Whether the list is complete.
        is_end: bool,
    }
    /// Arguments of LAYOUTCOMMIT.
    #[derive(Copy, Default)]
    struct LayoutCommitArgs<'b> {
        /// The offset of the first byte that was written.
        offset: u64,
        /// The number of bytes that were written.
        length: u64,
        /// Whether the layout is from before the restart.
        reclaim: bool,
        /// The id of the layout.
        state: StateId,
        /// The offset of the last byte that was written, if it is new.
        last_offset: Option<u64>,
        /// The time of the change, if the client knows it.
        time: Option<Time>,
        /// The type of the layout.
        kind: LayoutType,
        /// What else the type asks for.
        body: Body<'b>,
    }
    /// Arguments of LAYOUTGET.
    #[derive(Copy, Default)]
    struct LayoutGetArgs {
        /// Whether the server is to signal when a layout becomes available.
        signal: bool,
        /// The type of the layout.
        kind: LayoutType,
        /// The access that the client needs.
        mode: LayoutMode,
        /// The offset of the first byte.
        offset: u64,
        /// The wanted number of bytes; all ones for all that follow.
        length: u64,
        /// The number of bytes that the layout must have at least.
        length_min: u64,
        /// The open, lock, delegation or layout that allows the access.
        state: StateId,
        /// The maximum length of the results in bytes.
        bytes_max: u32,
    }
    /// Results of LAYOUTGET.
    union LayoutGetResult<'b> on Status {
        /// The layouts of the range.
        Ok => Granted(LayoutGetDone<'b>),
        /// There is no layout now; the value tells whether the server will signal.
        LayoutTryLater => TryLater(bool),
        /// The operation failed for another reason.
        _ => Failed,
    }
    /// The layouts of a range.
    #[derive(Default)]
    struct LayoutGetDone<'b> {
        /// Whether the client is to return the layouts with the last CLOSE.
        return_on_close: bool,
        /// The id of the layouts.
        state: StateId,
        /// The parts of the range.
        layouts: List<Layout<'b>, DEVICES_MAX>,
    }
    /// The layout of a range.
    #[derive(Copy, Default)]
    struct Layout<'b> {
        /// The offset of the first byte.
        offset: u64,
        /// The number of bytes; all ones for all that follow.
        length: u64,
        /// The access that the layout allows.
        mode: LayoutMode,
        /// The type of the layout.
        kind: LayoutType,
        /// The devices and handles, as the type describes them.
        body: Body<'b>,
    }
    /// Arguments of LAYOUTRETURN.
    #[derive(Copy)]
    struct LayoutReturnArgs<'b> {
        /// Whether the layouts are from before the restart.
        reclaim: bool,
        /// The type of the layouts.
        kind: LayoutType,
        /// The access of the layouts.
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
        /// The offset of the first byte.
        offset: u64,
        /// The number of bytes; all ones for all that follow.
        length: u64,
        /// The id of the layouts.
        state: StateId,
        /// What else the type asks for.
        body: Body<'b>,
    }
    /// Arguments of LAYOUTERROR.
    #[derive(Default)]
    struct LayoutErrorArgs {
        /// The offset of the first byte.
        offset: u64,
        /// The number of bytes; all ones for all that follow.
        length: u64,
        /// The id of the layout.
        state: StateId,
        /// The errors of devices.
        errors: List<DeviceError, DEVICES_MAX>,
    }
    /// An error of a device.
    #[derive(Copy)]
    struct DeviceError {
        /// The device that had the error.
        device: DeviceId,
        /// The status that the device returned.
        status: Status,
        /// The number of the operation that failed.
        operation: u32,
    }
    /// Arguments of LAYOUTSTATS.
    #[derive(Copy, Default)]
    struct LayoutStatsArgs<'b> {
        /// The offset of the first byte.
        offset: u64,
        /// The number of bytes; all ones for all that follow.
        length: u64,
        /// The id of the layout.
        state: StateId,
        /// The reads since the last report.
        reads: IoCount,
        /// The writes since the last report.
        writes: IoCount,
        /// The device that was used.
        device: DeviceId,
        /// The type of the layout.
        kind: LayoutType,
        /// What else the type counts.
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
