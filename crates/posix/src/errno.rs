//! Error numbers that programs expect from a file system.
//!
//! Invariant: an error describes the file, not the connection. A program sees EIO where a local
//! disk would fail, and never a number that file system calls do not return, such as ECONNRESET.

use dafs_client::{ClientError, Status, SystemCause};

/// Returns the error number for a failed call.
#[must_use]
pub fn errno(error: &ClientError) -> i32 {
    match error {
        ClientError::Status { status, .. } => of_status(*status),
        ClientError::TooManyLinks(_) => ELOOP,
        ClientError::CannotRemove { .. } => EBUSY,
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
        // Later versions of the client may have more kinds of errors.
        _ => EIO,
    }
}

/// Returns the error number for an operation that this machine refused. Exhausted
/// resources are reported as such; all other refusals become EIO.
fn of_system(source: &SystemCause) -> i32 {
    match source.errno() {
        errno @ (ENFILE | EMFILE | ENOMEM) => errno,
        // A table of the client library has no free entry.
        ENOBUFS => ENOMEM,
        _ => EIO,
    }
}

/// Returns the error number for a status of the server.
#[must_use]
pub fn of_status(status: Status) -> i32 {
    match status {
        // Advisory locks never affect data, but mandatory locks of another interface do. A program
        // that did not request non-blocking calls does not expect EAGAIN.
        Status::Locked | Status::ShareDenied => EBUSY,
        // The server's internal states are not visible to programs.
        Status::Expired
        | Status::StaleStateId
        | Status::OldStateId
        | Status::BadStateId
        | Status::BadSeqId
        | Status::StaleClientId => EIO,
        Status::Grace | Status::Delay => EIO,
        Status::LockRange => EINVAL,
        Status::Resource => ENOLCK,
        // Not the same as a lock that another client holds: the protected data may be inconsistent.
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

    #[test]
    fn a_program_sees_what_this_machine_has_run_out_of() {
        let of = |number| {
            let source = SystemCause::from(std::io::Error::from_raw_os_error(number));
            errno(&ClientError::System { what: "opening a connection", source })
        };
        assert_eq!((of(EMFILE), of(ENFILE), of(ENOMEM)), (EMFILE, ENFILE, ENOMEM));
        assert_eq!(of(ENOBUFS), ENOMEM);
        // Every other refusal concerns the connection, not the file.
        assert_eq!(of(EACCES), EIO);
    }
}
