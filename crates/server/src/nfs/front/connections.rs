//! The connections of NFS clients and their limits.

use std::io;
use std::time::Duration;

use dafs_dat::records::{Records, RecordsConfig};

/// Returns the connections, without a listener.
pub(super) fn connections() -> io::Result<Records> {
    Records::new(RecordsConfig {
        record_bytes_max: RECORD_BYTES_MAX,
        connections_max: CONNECTIONS_MAX,
        connections_per_address_max: CONNECTIONS_PER_ADDRESS_MAX,
        patience: PATIENCE,
        handshake_patience: HANDSHAKE_PATIENCE,
        handshakes_per_address_max: HANDSHAKES_PER_ADDRESS_MAX,
    })
}

/// The maximum length of a call in bytes: a WRITE of 1 MiB and its header.
pub(super) const RECORD_BYTES_MAX: usize = (1 << 20) + (64 << 10);
/// The number of bytes that are kept of a call of a client that no rule lets in: enough for the
/// header and the credential of a call, which is refused, and for the calls without arguments that
/// such a client may make.
pub(super) const STRANGER_BYTES_MAX: usize = 4 << 10;
/// The maximum number of connections of NFS clients.
const CONNECTIONS_MAX: usize = 4096;
/// The maximum number of connections of one client machine.
const CONNECTIONS_PER_ADDRESS_MAX: usize = 1024;
/// The time for which a client may read replies too slowly or leave a call incomplete.
const PATIENCE: Duration = Duration::from_secs(20);
/// The maximum time of a TLS handshake.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// The maximum number of TLS handshakes of one client machine that are in progress.
const HANDSHAKES_PER_ADDRESS_MAX: usize = 64;
