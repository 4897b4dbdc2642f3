//! The C functions for completion groups: create a group, wait for it and release it; cancel and
//! expedite operations.
//!
//! Invariant: each completion is returned once, to one of the waiting threads.

use std::cell::RefCell;
use std::ffi::{CString, c_int};
use std::sync::Arc;
use std::time::Duration;

use crate::check;
use crate::failure::{Failure, c_text, counted, done};
use crate::groups::GroupObject;
use crate::handles;
use crate::operations::Ended;
use crate::types::{DAP_END_OF_FILE, dap_client, dap_completion, dap_group};

/// Creates a completion group. The group can collect operations of all sessions of the client.
/// `client` may be NULL.
///
/// Returns 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_group_create(
    client: *mut dap_client,
    group: *mut *mut dap_group,
) -> c_int {
    done(|| {
        check::place(group, "group")?;
        let object = GroupObject::new(handles::client(client)?)?;
        let handle = handles::insert(Arc::new(object))?;
        // SAFETY: the caller guarantees that its pointers are valid.
        unsafe { check::put(group, handle, "group") }
    })
}

/// Releases a completion group.
///
/// Returns 0, or a negative error number: -EBUSY if completions were not returned yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_group_release(group: *mut dap_group) -> c_int {
    done(|| {
        let is_free =
            |object: &Arc<GroupObject>| match Arc::strong_count(object) == 1 && object.is_idle() {
                true => Ok(()),
                false => {
                    let text = "the group still has operations; collect their completions first";
                    Err(Failure::new(libc::EBUSY, text))
                }
            };
        handles::remove_if::<GroupObject, _>(group, is_free).map(drop)
    })
}

/// Waits until `count` operations of a group have completed, or until all operations in the group
/// have, or until `timeout_ms` milliseconds have passed. The timeout may be 0 or DAP_FOREVER.
/// Stores at most `capacity` completions, in the order in which the library has noticed them;
/// `capacity` must be at least `count`. Signals do not end the wait.
///
/// Returns the number of completions, which is smaller than `count` if the time has passed or no
/// more operations are in flight, or a negative error number. A failed operation is not a failure
/// of this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_wait(
    group: *mut dap_group,
    count: usize,
    timeout_ms: i64,
    completions: *mut dap_completion,
    capacity: usize,
) -> i64 {
    counted(|| {
        if count > capacity {
            let text = format!("there is no room for {count} completions, only for {capacity}");
            return Err(Failure::invalid(text));
        }
        if capacity > 0 {
            check::place(completions, "completions")?;
        }
        let timeout = check::timeout(timeout_ms, "timeout_ms")?;
        let group: Arc<GroupObject> = handles::get(group)?;
        let ended = take(&group, count, timeout, capacity)?;
        let told = ended.len();
        TEXTS.with(|texts| {
            let mut texts = texts.borrow_mut();
            texts.clear();
            for (place, ended) in ended.into_iter().enumerate() {
                let completion = completion(ended, &mut texts);
                // SAFETY: there is room for `capacity` completions, and `place` is below that.
                unsafe { completions.add(place).write(completion) };
            }
        });
        group.note_taken(told);
        Ok(told as u64)
    })
}

fn take(
    group: &GroupObject,
    count: usize,
    timeout: Option<Duration>,
    capacity: usize,
) -> Result<Vec<Ended>, Failure> {
    // SAFETY: completions consist of numbers and texts, not of client objects.
    unsafe {
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            group.client.within(|entered| {
                entered.process_pending_events();
                Ok(())
            })?;
        }
        group.client.shared.wait_until(timeout, |entered| {
            let mut state = group.state(entered);
            state.collect();
            state.has(count).then_some(())
        })?;
        group.client.within(|entered| {
            let mut state = group.state(entered);
            Ok(std::iter::from_fn(|| state.take()).take(capacity).collect())
        })
    }
}

thread_local! {
    /// The texts that the most recently returned completions point to.
    static TEXTS: RefCell<Vec<CString>> = const { RefCell::new(Vec::new()) };
}

fn completion(ended: Ended, texts: &mut Vec<CString>) -> dap_completion {
    let (result, text) = match ended.result {
        Ok(count) => (i64::try_from(count).unwrap_or(i64::MAX), std::ptr::null()),
        Err(failure) => {
            // The vector may move, but its texts on the heap stay.
            texts.push(c_text(&failure.text));
            let text = texts.last().map_or(std::ptr::null(), |text| text.as_ptr());
            (-i64::from(failure.errno), text)
        }
    };
    dap_completion {
        operation: ended.number,
        context: std::ptr::with_exposed_provenance_mut(ended.context),
        result,
        flags: if ended.end_of_file { DAP_END_OF_FILE } else { 0 },
        reserved: 0,
        text,
    }
}

/// Cancels an operation. An operation that was not sent yet ends with -ECANCELED. An operation in
/// flight first runs to its end, and then also reports -ECANCELED. The completion must be collected
/// as usual.
///
/// Returns 0, or a negative error number: -ENOENT if the operation has already ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_cancel(group: *mut dap_group, operation: u64) -> c_int {
    done(|| {
        let group: Arc<GroupObject> = handles::get(group)?;
        // SAFETY: no client object leaves the closure.
        let is_found =
            unsafe { group.client.within(|entered| Ok(group.state(entered).cancel(operation)))? };
        require_in_flight(is_found, operation)
    })
}

/// Makes the server immediately execute a request that was submitted in a batch with a latency.
/// Other operations are never delayed.
///
/// Returns 0, or a negative error number: -ENOENT if the operation has already ended, or if the
/// server has not received it yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_expedite(group: *mut dap_group, operation: u64) -> c_int {
    done(|| {
        let group: Arc<GroupObject> = handles::get(group)?;
        // SAFETY: no client object leaves the closure.
        let is_found =
            unsafe { group.client.within(|entered| group.state(entered).expedite(operation))? };
        require_in_flight(is_found, operation)
    })
}

fn require_in_flight(is_found: bool, operation: u64) -> Result<(), Failure> {
    match is_found {
        true => Ok(()),
        false => {
            let text = format!("operation {operation} is not in flight in this group");
            Err(Failure::new(libc::ENOENT, text))
        }
    }
}
