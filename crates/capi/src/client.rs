//! Clients: what sessions, memory and groups belong to.
//!
//! Invariant: a client lives as long as anything of it does, whatever becomes of its handle.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use dafs_client::{ClientConfig, OwnMemory};
use dafs_share::{Entered, SharedClient};

use crate::check;
use crate::failure::{Result, done};
use crate::handles;
use crate::types::{dap_client, dap_client_options};

/// A client.
pub(crate) struct ClientObject {
    pub shared: SharedClient,
    /// Memory is lent to devices, which only calls that keep others out can do.
    pub lends: bool,
}

impl ClientObject {
    /// One without habits of its own.
    pub fn plain() -> Result<Self> {
        Self::new(ClientConfig::default())
    }

    fn new(config: ClientConfig) -> Result<Self> {
        let lends = config.own_memory != OwnMemory::Copied;
        Ok(Self { shared: SharedClient::new(config)?, lends })
    }

    /// Takes the client for this thread, for the time of `visit`.
    ///
    /// # Safety
    /// What `visit` leaves behind of the client's is in a [`dafs_share::Held`] of this client.
    pub unsafe fn within<T>(&self, visit: impl FnOnce(&Entered<'_>) -> Result<T>) -> Result<T> {
        // SAFETY: what the visitor makes is dropped by its end, or held.
        let entered = unsafe { self.shared.enter()? };
        visit(&entered)
    }
}

/// Makes a client. Sessions of different clients have no lock in common, and each client has a
/// protection domain of its own: use one for each server that must not be able to name memory
/// meant for another, or one for each thread. `options` may be NULL.
///
/// Returns 0, or a negative error number: -EINVAL, -EMFILE, -ENOMEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_client_create(
    options: *const dap_client_options,
    client: *mut *mut dap_client,
) -> c_int {
    done(|| {
        check::place(client, "client")?;
        // SAFETY: the caller's promise.
        let options = unsafe { check::options(options)? };
        let mut config = ClientConfig::default();
        if let Some(spin_us) = options.spin_us_plus_1.checked_sub(1) {
            config.wait.spin_max = Duration::from_micros(u64::from(spin_us));
        }
        if options.lend != 0 {
            config.own_memory = OwnMemory::Registered;
        }
        let handle = handles::insert(Arc::new(ClientObject::new(config)?))?;
        // SAFETY: the caller's promise.
        unsafe { check::put(client, handle, "client") }
    })
}

/// Gives a client back. What belongs to it goes on until it is given back itself.
///
/// Returns 0, or -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_client_release(client: *mut dap_client) -> c_int {
    done(|| handles::remove::<ClientObject, _>(client).map(drop))
}
