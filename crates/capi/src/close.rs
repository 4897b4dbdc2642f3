//! Closing files.
//!
//! Invariant: the handle is gone at once; the file is closed when nothing uses it any more.

use std::ffi::c_int;
use std::sync::Arc;

use dafs_share::Entered;

use crate::failure::done;
use crate::file::FileObject;
use crate::handles;
use crate::types::dap_file;

/// Closes a file: local processes on the server see what was written. The handle is gone whatever
/// is returned. While another thread is in a call with the file, or operations with it are under
/// way, it is closed behind them, and nobody is told how that went.
///
/// Returns 0, or a negative error number: -EIO if the server has lost what was written and not
/// brought to stable storage, and what the last write failed with if it came back short.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_close(file: *mut dap_file) -> c_int {
    done(|| {
        let object = handles::remove::<FileObject, _>(file)?;
        let owed = object.pay();
        let Ok(FileObject { session, file, .. }) = Arc::try_unwrap(object) else { return owed };
        let client = session.client.shared.clone();
        let closing = async |entered: &Entered<'_>| file.take(entered).close_async().await;
        // SAFETY: nothing comes of it.
        let closed = unsafe { client.run(closing)? };
        owed.and(closed.map_err(Into::into))
    })
}
