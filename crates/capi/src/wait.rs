//! Groups as C has them: made, waited for, given back; and operations given up or hurried.
//!
//! Invariant: an end is told once, to one of those who wait.

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

/// Makes a completion group. Operations of any session of the client can be collected in it.
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
        // SAFETY: the caller's promise.
        unsafe { check::put(group, handle, "group") }
    })
}

/// Gives a group back.
///
/// Returns 0, or a negative error number: -EBUSY if ends of operations were not taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_group_release(group: *mut dap_group) -> c_int {
    done(|| {
        let is_free =
            |object: &Arc<GroupObject>| match Arc::strong_count(object) == 1 && object.is_idle() {
                true => Ok(()),
                false => {
                    let text = "take the ends of the group's operations first";
                    Err(Failure::new(libc::EBUSY, text))
                }
            };
        handles::remove_if::<GroupObject, _>(group, is_free).map(drop)
    })
}

/// Waits until `count` operations of a group have ended, or all that were submitted to it, or
/// `timeout_ms` milliseconds are over, which may be 0 or DAP_FOREVER. Takes the ends of up to
/// `capacity` operations, which is at least `count`, in the order in which they were noticed.
/// Signals do not end it.
///
/// Returns how many were taken, fewer than `count` if the time was over or there were no more, or
/// a negative error number. An operation that has failed is not a failure of this call.
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
            let text = format!("there is no room for {count} completions, but for {capacity}");
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
                // SAFETY: there is room for `capacity` of them, and `place` is below that.
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
    // SAFETY: what is told of the ends are numbers and texts.
    unsafe {
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            group.client.within(|entered| {
                entered.progress();
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
    /// What the completions that were taken last point to.
    static TEXTS: RefCell<Vec<CString>> = const { RefCell::new(Vec::new()) };
}

fn completion(ended: Ended, texts: &mut Vec<CString>) -> dap_completion {
    let (result, text) = match ended.result {
        Ok(count) => (i64::try_from(count).unwrap_or(i64::MAX), std::ptr::null()),
        Err(failure) => {
            // The vector may move, and what is on the heap stays.
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

/// Gives an operation up. One that has not gone out ends with -ECANCELED; one that is under way
/// goes on, and then ends so. Its end is taken as any other.
///
/// Returns 0, or a negative error number: -ENOENT if it has ended already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_cancel(group: *mut dap_group, operation: u64) -> c_int {
    done(|| {
        let group: Arc<GroupObject> = handles::get(group)?;
        // SAFETY: nothing comes of it.
        let is_found =
            unsafe { group.client.within(|entered| Ok(group.state(entered).cancel(operation)))? };
        found(is_found, operation)
    })
}

/// Has a request of a batch that was submitted with a latency done at once. Other operations are
/// never held up.
///
/// Returns 0, or a negative error number: -ENOENT if it has ended already, or the server has not
/// taken it yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dap_expedite(group: *mut dap_group, operation: u64) -> c_int {
    done(|| {
        let group: Arc<GroupObject> = handles::get(group)?;
        // SAFETY: nothing comes of it.
        let is_found =
            unsafe { group.client.within(|entered| group.state(entered).expedite(operation))? };
        found(is_found, operation)
    })
}

fn found(is_found: bool, operation: u64) -> Result<(), Failure> {
    match is_found {
        true => Ok(()),
        false => {
            let text = format!("operation {operation} is not under way in this group");
            Err(Failure::new(libc::ENOENT, text))
        }
    }
}
