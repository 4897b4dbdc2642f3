//! The bits of modes that whoever makes something does not want others to have (umask(2)).
//!
//! Invariant: a mode that a file, a directory or a pipe is made with has none of the bits that are
//! taken away; a mode that is set afterwards is set as it is.

/// What a session takes away from the modes of what it makes.
///
/// A program that acts for others, such as a mount, is given modes that are right already. One
/// that acts for its user takes away what the user's umask says, as local calls do. A directory's
/// default access control list does not keep these bits, as it would locally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Umask {
    /// Nothing.
    #[default]
    Nothing,
    /// These bits.
    Bits(u32),
    /// The bits of this process's umask when something is made.
    OfProcess,
}

impl Umask {
    /// The bits of the moment.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Bits(bits) => bits,
            Self::OfProcess => process_umask(),
        }
    }
}

/// The umask of this process, which is read without being changed, so that no other thread makes
/// a file with another one meanwhile. Where the system does not tell it, the strictest one.
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
        assert_eq!(0o777 & !Umask::OfProcess.bits(), mode & 0o777);
        assert_eq!((Umask::Nothing.bits(), Umask::Bits(0o27).bits()), (0, 0o27));
    }
}
