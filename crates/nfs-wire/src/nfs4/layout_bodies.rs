//! The bodies of layouts and devices whose type this crate knows: file layouts (RFC 8881 section
//! 13) and flexible file layouts (RFC 8435).
//!
//! Invariant: a body is encoded by itself, and then carried as an opaque value: see
//! [`Body`](super::layout::Body).

use crate::xdr::{List, xdr};

use super::layout::{DeviceError, IoCount};
use super::limits::{DEVICES_MAX, LOCATIONS_MAX, MIRRORS_MAX, STRIPES_MAX, VERSIONS_MAX};
use super::types::{DeviceId, FileHandle, NetworkAddress, StateId, Text, Time};

/// The addresses of one server, which are equally good.
pub type Addresses<'b> = List<NetworkAddress<'b>, LOCATIONS_MAX>;

xdr! {
    /// The device of a file layout.
    #[derive(Default)]
    struct FileDevice<'b> {
        /// For each stripe, the position of its server in the list.
        stripes: List<u32, STRIPES_MAX>,
        /// The addresses of each server.
        servers: List<Addresses<'b>, DEVICES_MAX>,
    }
    /// A file layout.
    #[derive(Default)]
    struct FileLayout<'b> {
        /// The device with the servers.
        device: DeviceId,
        /// Flags, and the size of a stripe in bytes as a multiple of 64.
        utility: FileLayoutUtility,
        /// The position of the first stripe in the list of the device.
        first_stripe: u32,
        /// The offset of the file at which the pattern starts.
        pattern_offset: u64,
        /// The file handles: none, one for all servers, or one for each.
        handles: List<FileHandle<'b>, DEVICES_MAX>,
    }
    /// Flags of a file layout, and the size of a stripe.
    flags FileLayoutUtility: u32 {
        /// The stripes of a server follow each other without holes.
        DENSE = 1,
        /// COMMIT goes to the metadata server.
        COMMIT_THROUGH_METADATA = 2,
        /// IO_ADVISE goes to the metadata server.
        ADVISE_THROUGH_METADATA = 4,
    }
    /// The device of a flexible file layout.
    #[derive(Default)]
    struct FlexibleDevice<'b> {
        /// The addresses of the server.
        addresses: Addresses<'b>,
        /// The protocols of the server, in the order of preference.
        versions: List<DeviceVersion, VERSIONS_MAX>,
    }
    /// A protocol that a data server speaks.
    #[derive(Copy, Default)]
    struct DeviceVersion {
        /// The version of NFS: 3 or 4.
        version: u32,
        /// The minor version of version 4.
        minor_version: u32,
        /// The maximum number of bytes in one READ.
        read_bytes_max: u32,
        /// The maximum number of bytes in one WRITE.
        write_bytes_max: u32,
        /// Whether the data server knows the state ids of the metadata server.
        tightly_coupled: bool,
    }
    /// A flexible file layout.
    #[derive(Default)]
    struct FlexibleLayout<'b> {
        /// The size of a stripe in bytes; 0 for one stripe.
        stripe_bytes: u64,
        /// The copies of the file.
        mirrors: List<Mirror<'b>, MIRRORS_MAX>,
        /// What the client need not or must not do.
        flags: FlexibleFlags,
        /// The number of seconds between two reports of statistics; 0 for no wish.
        statistics_seconds: u32,
    }
    /// What a client with a flexible file layout need not or must not do.
    flags FlexibleFlags: u32 {
        /// LAYOUTCOMMIT is not needed.
        NO_LAYOUTCOMMIT = 1,
        /// The metadata server does not read or write.
        NO_IO_THROUGH_METADATA = 2,
        /// A layout for writing does not serve reads: the client asks for one for reading.
        NO_READ_IO = 4,
        /// The client writes one mirror only.
        WRITE_ONE_MIRROR = 8,
    }
    /// A copy of a file.
    #[derive(Default)]
    struct Mirror<'b> {
        /// The servers of the stripes.
        servers: List<DataServer<'b>, STRIPES_MAX>,
    }
    /// A server of a stripe.
    #[derive(Default)]
    struct DataServer<'b> {
        /// The device with the addresses of the server.
        device: DeviceId,
        /// The preference for reads: a higher number is better.
        efficiency: u32,
        /// The state id for this server.
        state: StateId,
        /// A file handle for each protocol of the device.
        handles: List<FileHandle<'b>, VERSIONS_MAX>,
        /// The user for this server, if it is not tightly coupled.
        user: Text<'b>,
        /// The group for this server, if it is not tightly coupled.
        group: Text<'b>,
    }
    /// What a client tells when it returns flexible file layouts.
    #[derive(Default)]
    struct FlexibleReturn<'b> {
        /// The errors of data servers.
        errors: List<FlexibleError, DEVICES_MAX>,
        /// The use of data servers.
        statistics: List<FlexibleStatistics<'b>, DEVICES_MAX>,
    }
    /// Errors in a range of a file.
    #[derive(Default)]
    struct FlexibleError {
        /// The offset of the first byte.
        offset: u64,
        /// The number of bytes; all ones for all that follow.
        length: u64,
        /// The id of the layout.
        state: StateId,
        /// The errors of devices.
        errors: List<DeviceError, DEVICES_MAX>,
    }
    /// The use of a data server for a range of a file.
    #[derive(Copy, Default)]
    struct FlexibleStatistics<'b> {
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
        /// The latencies of the requests.
        update: FlexibleUpdate<'b>,
    }
    /// The latencies of a data server: the body of LAYOUTSTATS.
    #[derive(Copy, Default)]
    struct FlexibleUpdate<'b> {
        /// The address that was used.
        address: NetworkAddress<'b>,
        /// The file handle that was used.
        handle: FileHandle<'b>,
        /// The latencies of reads.
        reads: Latency,
        /// The latencies of writes.
        writes: Latency,
        /// The time that the report is about.
        duration: Time,
        /// Whether the data server is on the client's machine.
        is_local: bool,
    }
    /// The latencies of requests.
    #[derive(Copy, Default)]
    struct Latency {
        /// The number of requests.
        requests: u64,
        /// The number of bytes that were asked for.
        bytes: u64,
        /// The number of requests that were answered.
        completed_requests: u64,
        /// The number of bytes that were transferred.
        completed_bytes: u64,
        /// The number of bytes that were asked for and not transferred.
        missing_bytes: u64,
        /// The time during which there was a request.
        busy: Time,
        /// The sum of the times of all requests.
        total: Time,
    }
}

impl FileLayoutUtility {
    /// The bits of the size of a stripe.
    const STRIPE_MASK: u32 = !0x3f;

    /// Returns the size of a stripe in bytes.
    #[must_use]
    pub const fn stripe_bytes(self) -> u32 {
        self.0 & Self::STRIPE_MASK
    }

    /// Returns the flags with this size of a stripe, which is rounded down to a multiple of 64.
    #[must_use]
    pub const fn with_stripe_bytes(self, bytes: u32) -> Self {
        Self(self.0 & !Self::STRIPE_MASK | bytes & Self::STRIPE_MASK)
    }
}
