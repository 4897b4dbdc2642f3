//! Clients, to which sessions, memory and completion groups belong.
//!
//! Invariant: a client exists as long as anything that belongs to it, even after its handle was
//! released.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use dafs_client::{ClientConfig, OwnMemory};
use dafs_share::{Entered, SharedClient};

use crate::check;
use crate::failure::{Result, done};
use crate::handles;
use crate::types::{dap_client, dap_client_options};

/// A client, with the lock that its threads share.
pub(crate) struct ClientObject {
    pub shared: SharedClient,
    /// True if unregistered memory of the program is lent to RDMA devices during a call. Only
    /// synchronous calls that hold the lock can do that.
    pub lends: bool,
}

impl ClientObject {
    /// Makes a client with default options.
    pub(crate) fn plain() -> Result<Self> {
        Self::new(ClientConfig::default())
    }

    fn new(config: ClientConfig) -> Result<Self> {
        let lends = config.own_memory != OwnMemory::Copied;
        Ok(Self { shared: SharedClient::new(config)?, lends })
    }

    /// Holds the client's lock while `visit` runs.
    ///
    /// # Safety
    /// Every client object that exists after `visit` is in a [`dafs_share::Held`] of this client.
    pub(crate) unsafe fn within<T>(
        &self,
        visit: impl FnOnce(&Entered<'_>) -> Result<T>,
    ) -> Result<T> {
        // SAFETY: objects that `visit` makes are dropped when it ends, or held.
        let entered = unsafe { self.shared.enter()? };
        visit(&entered)
    }
}

/// Creates a client. Sessions of different clients share no lock, and each client has its own
/// protection domain. Use one client per server if no server may access memory meant for another,
/// or one per thread. `options` may be NULL.
///
/// Returns 0, or a negative error number: -EINVAL, -EMFILE, -ENOMEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_client_create(
    options: *const dap_client_options,
    client: *mut *mut dap_client,
) -> c_int {
    done(|| {
        check::place(client, "client")?;
        // SAFETY: the caller guarantees that its pointers are valid.
        let options = unsafe { check::options(options)? };
        let mut config = ClientConfig::default();
        if let Some(spin_us) = options.spin_us_plus_1.checked_sub(1) {
            config.wait.spin_max = Duration::from_micros(u64::from(spin_us));
        }
        if options.lend != 0 {
            config.own_memory = OwnMemory::Registered;
        }
        let handle = handles::insert(Arc::new(ClientObject::new(config)?))?;
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { check::put(client, handle, "client") }
    })
}

/// Releases a client. Objects that belong to it remain valid until they are released themselves.
///
/// Returns 0, or -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_client_release(client: *mut dap_client) -> c_int {
    done(|| handles::remove::<ClientObject, _>(client).map(drop))
}
