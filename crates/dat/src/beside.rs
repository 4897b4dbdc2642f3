//! What else a thread waits for while its interface waits for peers.
//!
//! Invariant: the interface sleeps only if [`Beside::may_sleep`] has allowed it, and calls
//! [`Beside::awake`] as soon as it is awake again, before it does anything else.

/// A second thing to wait for: the messages of other threads, say.
/// [`crate::Interface::wait_beside`] looks at it while it spins, and asks it before it sleeps.
/// Whoever brings such a message to a sleeping thread ends its sleep with a [`crate::Waker`] of the
/// interface.
///
/// A thread that has nothing else to wait for uses `()`, which costs nothing: the compiler leaves
/// all of it out.
pub trait Beside {
    /// Whether there is anything at all to look at. If not, nothing is ever called.
    const EXISTS: bool = true;

    /// Whether something is there, which ends the wait. It is called for every look at the peers'
    /// memory, so it makes no system call and takes nothing.
    fn has_any(&mut self) -> bool;

    /// The interface is about to sleep, with all of its peers told to wake it. Whoever brings
    /// something from now on must call the waker. This has the last look; false keeps the interface
    /// awake and ends the wait.
    fn may_sleep(&mut self) -> bool;

    /// The sleep that [`Beside::may_sleep`] has allowed is over: nobody needs to call the waker.
    fn awake(&mut self);
}

impl Beside for () {
    const EXISTS: bool = false;

    #[inline(always)]
    fn has_any(&mut self) -> bool {
        false
    }

    #[inline(always)]
    fn may_sleep(&mut self) -> bool {
        true
    }

    #[inline(always)]
    fn awake(&mut self) {}
}
