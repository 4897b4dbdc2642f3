//! The bodies of layouts and devices for the layout types that this crate knows: file layouts (RFC
//! 8881 section 13) and flexible file layouts (RFC 8435).
//!
//! Invariant: a body is encoded separately, and the message contains it as an opaque value: see
//! [`Body`](super::layout::Body).

use crate::xdr::{List, xdr};

use super::layout::{DeviceError, IoCount};
use super::limits::{DEVICES_MAX, LOCATIONS_MAX, MIRRORS_MAX, STRIPES_MAX, VERSIONS_MAX};
use super::types::{DeviceId, FileHandle, NetworkAddress, StateId, Text, Time};

/// The addresses of one server. A client may use any of them.
pub type Addresses<'b> = List<NetworkAddress<'b>, LOCATIONS_MAX>;

xdr! {
    /// The device of a file layout: the servers that store the stripes.
    #[derive(Default)]
    struct FileDevice<'b> {
        /// For each stripe, the index of its server in the list `servers`.
        stripes: List<u32, STRIPES_MAX>,
        /// The addresses of each server.
        servers: List<Addresses<'b>, DEVICES_MAX>,
    }
    /// A file layout: the way in which a file is striped over servers.
    #[derive(Default)]
    struct FileLayout<'b> {
        /// The device with the servers.
        device: DeviceId,
        /// Flags, and the size of a stripe in bytes as a multiple of 64.
        utility: FileLayoutUtility,
        /// The index in the device's list of stripes at which the file's first stripe is.
        first_stripe: u32,
        /// The offset in the file at which the pattern of stripes starts.
        pattern_offset: u64,
        /// The file handles on the servers: none, one for all servers, or one for each server.
        handles: List<FileHandle<'b>, DEVICES_MAX>,
    }
    /// Flags of a file layout, combined with the size of a stripe.
    flags FileLayoutUtility: u32 {
        /// A server stores its stripes without holes between them.
        DENSE = 1,
        /// The client must send COMMIT to the metadata server.
        COMMIT_THROUGH_METADATA = 2,
        /// The client must send IO_ADVISE to the metadata server.
        ADVISE_THROUGH_METADATA = 4,
    }
    /// The device of a flexible file layout.
    #[derive(Default)]
    struct FlexibleDevice<'b> {
        /// The addresses of the server.
        addresses: Addresses<'b>,
        /// The protocols that the server supports, in the order of preference.
        versions: List<DeviceVersion, VERSIONS_MAX>,
    }
    /// A protocol that a data server supports.
    #[derive(Copy, Default)]
    struct DeviceVersion {
        /// The version of NFS: 3 or 4.
        version: u32,
        /// The minor version, if the version is 4.
        minor_version: u32,
        /// The maximum number of bytes in one READ.
        read_bytes_max: u32,
        /// The maximum number of bytes in one WRITE.
        write_bytes_max: u32,
        /// True if the data server accepts the state ids of the metadata server.
        tightly_coupled: bool,
    }
    /// A flexible file layout: the copies of a file and their servers.
    #[derive(Default)]
    struct FlexibleLayout<'b> {
        /// The size of a stripe in bytes; 0 if there is only one stripe.
        stripe_bytes: u64,
        /// The copies of the file.
        mirrors: List<Mirror<'b>, MIRRORS_MAX>,
        /// Restrictions and simplifications for the client.
        flags: FlexibleFlags,
        /// The number of seconds between two reports of statistics; 0 if the server wants no
        /// reports.
        statistics_seconds: u32,
    }
    /// Restrictions and simplifications for a client with a flexible file layout.
    flags FlexibleFlags: u32 {
        /// The client need not send LAYOUTCOMMIT.
        NO_LAYOUTCOMMIT = 1,
        /// The client should not read or write through the metadata server.
        NO_IO_THROUGH_METADATA = 2,
        /// The client should not read with a layout for writing, but ask for a layout for reading.
        NO_READ_IO = 4,
        /// The client writes only one mirror; the servers update the others.
        WRITE_ONE_MIRROR = 8,
    }
    /// A copy of a file, in one or several stripes.
    #[derive(Default)]
    struct Mirror<'b> {
        /// The servers of the stripes of this copy.
        servers: List<DataServer<'b>, STRIPES_MAX>,
    }
    /// A server of a stripe.
    #[derive(Default)]
    struct DataServer<'b> {
        /// The device with the addresses of the server.
        device: DeviceId,
        /// The preference for reads. Clients prefer servers with higher numbers.
        efficiency: u32,
        /// The state id that the client uses at this server.
        state: StateId,
        /// A file handle for each protocol in the list of the device.
        handles: List<FileHandle<'b>, VERSIONS_MAX>,
        /// The user as whom the client accesses this server, if it is not tightly coupled.
        user: Text<'b>,
        /// The group as which the client accesses this server, if it is not tightly coupled.
        group: Text<'b>,
    }
    /// The report of a client that returns flexible file layouts.
    #[derive(Default)]
    struct FlexibleReturn<'b> {
        /// The errors that the client got from data servers.
        errors: List<FlexibleError, DEVICES_MAX>,
        /// The statistics of the client's use of data servers.
        statistics: List<FlexibleStatistics<'b>, DEVICES_MAX>,
    }
    /// The errors in one range of a file.
    #[derive(Default)]
    struct FlexibleError {
        /// The offset in the file of the first byte.
        offset: u64,
        /// The number of bytes; all bits set means up to the end of the file.
        length: u64,
        /// The id of the layout.
        state: StateId,
        /// The errors that the client got from devices.
        errors: List<DeviceError, DEVICES_MAX>,
    }
    /// The statistics of the use of a data server for one range of a file.
    #[derive(Copy, Default)]
    struct FlexibleStatistics<'b> {
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
        /// The latencies of the client's requests.
        update: FlexibleUpdate<'b>,
    }
    /// The latencies of a data server: the body of LAYOUTSTATS.
    #[derive(Copy, Default)]
    struct FlexibleUpdate<'b> {
        /// The address of the data server that the client used.
        address: NetworkAddress<'b>,
        /// The file handle that the client used.
        handle: FileHandle<'b>,
        /// The latencies of reads.
        reads: Latency,
        /// The latencies of writes.
        writes: Latency,
        /// The duration that the report covers.
        duration: Time,
        /// True if the data server runs on the client's machine.
        is_local: bool,
    }
    /// The latencies of requests.
    #[derive(Copy, Default)]
    struct Latency {
        /// The number of requests.
        requests: u64,
        /// The number of bytes that the client requested.
        bytes: u64,
        /// The number of requests that received a reply.
        completed_requests: u64,
        /// The number of bytes that were transferred.
        completed_bytes: u64,
        /// The number of bytes that the client requested and that were not transferred.
        missing_bytes: u64,
        /// The time during which at least one request was in flight.
        busy: Time,
        /// The sum of the durations of all requests.
        total: Time,
    }
}

impl FileLayoutUtility {
    /// The bits that contain the size of a stripe.
    const STRIPE_MASK: u32 = !0x3f;

    /// Returns the size of a stripe in bytes.
    #[must_use]
    pub const fn stripe_bytes(self) -> u32 {
        self.0 & Self::STRIPE_MASK
    }

    /// Returns the flags with the size of a stripe set to `bytes`, rounded down to a multiple of
    /// 64.
    #[must_use]
    pub const fn with_stripe_bytes(self, bytes: u32) -> Self {
        Self(self.0 & !Self::STRIPE_MASK | bytes & Self::STRIPE_MASK)
    }
}
