//! Closes files.
//!
//! Invariant: the handle becomes invalid immediately. The file is closed when no call or operation
//! uses it any more.

use std::ffi::c_int;
use std::sync::Arc;

use dafs_share::Entered;

use crate::failure::done;
use crate::file::FileObject;
use crate::handles;
use crate::types::dap_file;

/// Closes a file. Local processes on the server's host then see the written data. The handle
/// becomes invalid whatever is returned. If another thread is in a call with the file, or
/// operations with the file are in flight, the file is closed after they end, and errors of that
/// close are not reported.
///
/// Returns 0, or a negative error number: -EIO if the server has lost written data that was not on
/// stable storage, or the error of the most recent write if that write was short.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_close(file: *mut dap_file) -> c_int {
    done(|| {
        let object = handles::remove::<FileObject, _>(file)?;
        let kept = object.take_failure();
        let Ok(FileObject { session, file, .. }) = Arc::try_unwrap(object) else { return kept };
        let client = session.client.shared.clone();
        let closing = async |entered: &Entered<'_>| file.take(entered).close_async().await;
        // SAFETY: no client object leaves the closure.
        let closed = unsafe { client.run(closing)? };
        kept.and(closed.map_err(Into::into))
    })
}
