//! File I/O directly into and out of a memory, without an intermediate buffer.

use std::io;
use std::os::fd::BorrowedFd;

use crate::Memory;

impl Memory {
    /// Reads from a file into a range of the memory. Returns the number of bytes read, which is
    /// smaller than `length` only at the end of the file.
    ///
    /// # Errors
    /// The error of `pread`. An interrupted call is repeated.
    ///
    /// # Panics
    /// Panics if the range is not within the memory.
    pub fn read_file(
        &self,
        offset: usize,
        length: usize,
        file: BorrowedFd<'_>,
        file_offset: u64,
    ) -> io::Result<usize> {
        let mut done = 0;
        while done < length {
            let count = retry(|| {
                // SAFETY: the pointer covers `length - done` bytes of this memory, which lives
                // during the call. The kernel may write them like any other party.
                let range = unsafe {
                    std::slice::from_raw_parts_mut(
                        self.pointer(offset + done, length - done)
                            .cast::<std::mem::MaybeUninit<u8>>(),
                        length - done,
                    )
                };
                rustix::io::pread(file, range, file_offset + done as u64).map(|(i, _)| i.len())
            })?;
            if count == 0 {
                break;
            }
            done += count;
        }
        Ok(done)
    }

    /// Writes the whole range of the memory to a file.
    ///
    /// # Errors
    /// The error of `pwrite`; `WriteZero` if the file accepts no more bytes.
    ///
    /// # Panics
    /// Panics if the range is not within the memory.
    pub fn write_file(
        &self,
        offset: usize,
        length: usize,
        file: BorrowedFd<'_>,
        file_offset: u64,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < length {
            let count = retry(|| {
                // SAFETY: as in `read_file`. The slice goes only to the kernel and compiled code
                // never reads it, so a racing writer cannot break an assumption of the compiler.
                let range = unsafe {
                    std::slice::from_raw_parts(
                        self.pointer(offset + done, length - done).cast_const(),
                        length - done,
                    )
                };
                rustix::io::pwrite(file, range, file_offset + done as u64)
            })?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            done += count;
        }
        Ok(())
    }
    /// Makes one read from a device that delivers whole messages, such as `/dev/fuse`. Returns the
    /// number of bytes read.
    ///
    /// # Errors
    /// The error of `read`. An interrupted call is repeated.
    ///
    /// # Panics
    /// Panics if the range is not within the memory.
    pub fn receive(
        &self,
        offset: usize,
        length: usize,
        device: BorrowedFd<'_>,
    ) -> rustix::io::Result<usize> {
        retry_once(|| {
            // SAFETY: the pointer covers `length` bytes of this memory, which lives during the
            // call. The kernel may write them like any other party.
            let range = unsafe {
                std::slice::from_raw_parts_mut(
                    self.pointer(offset, length).cast::<std::mem::MaybeUninit<u8>>(),
                    length,
                )
            };
            rustix::io::read(device, range).map(|(initialized, _)| initialized.len())
        })
    }

    /// Makes one write of a range to a device that accepts whole messages.
    ///
    /// # Errors
    /// The error of `write`. An interrupted call is repeated.
    ///
    /// # Panics
    /// Panics if the range is not within the memory.
    pub fn send(
        &self,
        offset: usize,
        length: usize,
        device: BorrowedFd<'_>,
    ) -> rustix::io::Result<usize> {
        retry_once(|| {
            // SAFETY: as in `write_file`; the slice goes only to the kernel.
            let range = unsafe {
                std::slice::from_raw_parts(self.pointer(offset, length).cast_const(), length)
            };
            rustix::io::write(device, range)
        })
    }
}

fn retry_once<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            other => return other,
        }
    }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}
