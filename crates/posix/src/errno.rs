//! Error numbers that programs expect of a file system.
//!
//! Invariant: a program is told of the file, not of the connection: it sees EIO where a local
//! disk would have failed, and never a number that no file call has, such as ECONNRESET.

use dafs_client::{ClientError, Status, SystemCause};

/// The number a program sees for a failed call.
#[must_use]
pub fn errno(error: &ClientError) -> i32 {
    match error {
        ClientError::Status { status, .. } => of_status(*status),
        ClientError::TooManyLinks(_) => ELOOP,
        ClientError::Kept { .. } => EBUSY,
        ClientError::TimedOut => ETIMEDOUT,
        ClientError::Cancelled => EINTR,
        ClientError::Range { .. } | ClientError::Foreign { .. } => EINVAL,
        ClientError::Login { .. } | ClientError::Kerberos { .. } | ClientError::NoLogin { .. } => {
            EACCES
        }
        ClientError::Connect { .. }
        | ClientError::SessionEnded { .. }
        | ClientError::OutcomeUnknown { .. }
        | ClientError::Protocol { .. }
        | ClientError::DataLost { .. }
        | ClientError::OutOfReach { .. } => EIO,
        ClientError::System { source, .. } => of_system(source),
    }
}

/// The number for what this machine has refused: only what it has run out of is a program's
/// business.
fn of_system(source: &SystemCause) -> i32 {
    match source.errno() {
        errno @ (ENFILE | EMFILE | ENOMEM) => errno,
        // A table of the library's is full.
        ENOBUFS => ENOMEM,
        _ => EIO,
    }
}

/// The number for a status of the server's.
#[must_use]
pub fn of_status(status: Status) -> i32 {
    match status {
        // An advisory lock is never in the way of data; a mandatory one of another face is,
        // and a program that did not ask for non-blocking calls knows no EAGAIN.
        Status::Locked | Status::ShareDenied => EBUSY,
        // A program has no business with the server's states.
        Status::Expired
        | Status::StaleStateId
        | Status::OldStateId
        | Status::BadStateId
        | Status::BadSeqId
        | Status::StaleClientId => EIO,
        Status::Grace | Status::Delay => EIO,
        Status::LockRange => EINVAL,
        Status::Resource => ENOLCK,
        // Another thing than a lock that somebody has: what it guarded may be half done.
        Status::LockBroken => EUCLEAN,
        other => other.errno(),
    }
}

const EINTR: i32 = 4;
const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOLCK: i32 = 37;
const ELOOP: i32 = 40;
const ENOBUFS: i32 = 105;
const ETIMEDOUT: i32 = 110;
const EUCLEAN: i32 = 117;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_server_is_an_input_output_error() {
        let ended = ClientError::SessionEnded { address: "x".into(), reason: "y".into() };
        assert_eq!(errno(&ended), EIO);
        let full = ClientError::Status { what: "x".into(), status: Status::NoSpc };
        assert_eq!(errno(&full), 28);
        let denied = ClientError::Status { what: "x".into(), status: Status::Access };
        assert_eq!(errno(&denied), EACCES);
        assert_ne!(of_status(Status::LockBroken), of_status(Status::Denied));
    }
}
