//! Mode bits that are removed from new objects (umask(2)).
//!
//! Invariant: the mode of a new file, directory or pipe has none of the removed bits. A mode that
//! is set later is not changed.

/// The bits that a session removes from the modes of new objects.
///
/// A program that acts for others, such as a mount, gets final modes and removes nothing. A program
/// that acts for its own user removes the bits of the user's umask, as local system calls do.
/// Unlike with local system calls, a directory's default access control list does not replace the
/// umask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Umask {
    /// No bits are removed from the modes of new objects.
    #[default]
    Nothing,
    /// These mode bits are removed from the modes of new objects.
    Bits(u32),
    /// The bits of this process's umask at the time when an object is created.
    Process,
}

impl Umask {
    /// Returns the bits to remove from the mode of an object that is created now.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Bits(bits) => bits,
            Self::Process => process_umask(),
        }
    }
}

/// Returns the umask of this process. The umask is read from `/proc` and not by setting and
/// restoring it, so that no other thread can create a file while the umask is wrong. If the system
/// does not report the umask, the strictest one is returned.
#[must_use]
pub fn process_umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|bits| u32::from_str_radix(bits.trim(), 8).ok()).unwrap_or(STRICTEST)
}

const STRICTEST: u32 = 0o077;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processs_umask_is_the_one_that_files_are_made_with() {
        use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
        let place = std::env::temp_dir().join(format!("dafs-umask-{}", std::process::id()));
        let made = std::fs::File::options().write(true).create_new(true).mode(0o777).open(&place);
        let mode = made.unwrap().metadata().unwrap().permissions().mode();
        std::fs::remove_file(place).unwrap();
        assert_eq!(0o777 & !Umask::Process.bits(), mode & 0o777);
        assert_eq!((Umask::Nothing.bits(), Umask::Bits(0o27).bits()), (0, 0o27));
    }
}
