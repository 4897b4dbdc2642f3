//! Names of error numbers and of `open` flags.

use crate::raw::Errno;

macro_rules! table {
    ($name:ident: $kind:ty; $($constant:ident)*) => {
        const $name: &[(&str, $kind)] = &[$((stringify!($constant), libc::$constant)),*];
    };
}

table! { ERRORS: Errno;
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT
    ENOTBLK EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG
    ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY
    ELOOP ENODATA EOVERFLOW EILSEQ EOPNOTSUPP EADDRINUSE EDQUOT ESTALE ENOTCONN ECANCELED
}

table! { OPEN_FLAGS: i32;
    O_RDONLY O_WRONLY O_RDWR O_CREAT O_EXCL O_TRUNC O_APPEND O_NOFOLLOW O_DIRECTORY O_NONBLOCK
    O_SYNC O_DSYNC O_PATH O_TMPFILE O_NOATIME O_CLOEXEC O_DIRECT
}

/// Returns the name of an error, as in `<errno.h>`.
pub fn of_error(errno: Errno) -> String {
    let known = ERRORS.iter().find(|(_, number)| *number == errno);
    known.map_or_else(|| format!("errno {errno}"), |(name, _)| (*name).into())
}

/// True if an error has this name.
pub fn is_error(name: &str) -> bool {
    ERRORS.iter().any(|(known, _)| *known == name)
}

/// Parses `open` flags separated by commas.
pub fn open_flags(text: &str) -> Option<i32> {
    let number = |name: &str| OPEN_FLAGS.iter().find(|(known, _)| *known == name).map(|f| f.1);
    text.split(',').try_fold(0, |flags, name| Some(flags | number(name)?))
}
