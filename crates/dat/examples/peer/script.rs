//! The script. A driver executes operations, and a target permits them: it announces two buffers,
//! the second of which is to be invalidated, and echoes every message.
//!
//! The driver has the scene `everything`, which executes everything that is allowed and checks each
//! result, and a scene for each error that must end the connection, after a message that shows that
//! the connection worked until then.

use dafs_dat::{BreakReason, LocalSegment, RemoteSegment, Rights, Stag};

use super::link::{Buffer, Link, SLOT_BYTES};
use super::rping::told;
use super::{Failure, Options};

/// The sizes of the buffers in bytes.
const MAIN_BYTES: u32 = 1 << 20;
const SPARE_BYTES: u32 = 4096;
const INFO_BYTES: usize = 16;
/// The number of reads posted at once, above any agreed depth.
const READS: u32 = 48;

/// The driver's connection and buffers.
struct Drive {
    link: Link,
    main: RemoteSegment,
    spare: RemoteSegment,
    local: Buffer,
}

/// Runs the target until its driver disconnects.
pub(crate) fn serve(options: &Options) -> Result<(), Failure> {
    let mut link = Link::accept(options)?;
    let main = link.buffer(MAIN_BYTES as usize, Rights::REMOTE)?;
    let spare = link.buffer(SPARE_BYTES as usize, Rights::REMOTE)?;
    let mut infos = Vec::new();
    for buffer in [&main, &spare] {
        infos.extend(buffer.region.address.to_be_bytes());
        infos.extend(buffer.region.stag.0.to_be_bytes());
        infos.extend((buffer.region.length as u32).to_be_bytes());
    }
    let mut is_first = true;
    while let Ok(message) = link.receive() {
        if let Some(stag) = message.invalidated {
            println!("invalidated: {}", stag == spare.region.stag);
        }
        let answer = if std::mem::take(&mut is_first) { &infos } else { &message.bytes };
        link.send(answer, None)?;
    }
    println!("ended: {}", link.end());
    Ok(())
}

/// Runs the driver.
pub(crate) fn drive(options: &Options) -> Result<(), Failure> {
    let mut link = Link::connect(options)?;
    link.send(b"hello", None)?;
    let infos = link.receive()?.bytes;
    let (main, spare) = infos.split_at_checked(INFO_BYTES).ok_or("not two buffers")?;
    let local = link.buffer(MAIN_BYTES as usize, Rights::LOCAL)?;
    let mut drive = Drive { main: told(main)?, spare: told(spare)?, link, local };
    if options.scene == "everything" {
        drive.everything()?;
        drive.link.disconnect();
        println!("everything done");
        return Ok(());
    }
    drive.echo(b"still here")?;
    let began = drive.offend(&options.scene);
    let reason = match (began, drive.link.broken.clone()) {
        (Err(failure), None) => return Err(failure),
        (_, Some(reason)) => reason,
        (Ok(()), None) => drive.link.end(),
    };
    println!("ended: {reason}");
    match reason {
        BreakReason::Terminated(said) if said.contains(&options.must) => Ok(()),
        BreakReason::Peer if options.must.is_empty() => Ok(()),
        other => Err(other.into()),
    }
}

impl Drive {
    /// Executes everything that is allowed.
    fn everything(&mut self) -> Result<(), Failure> {
        for length in [0, 1, 3, 17, 1440, 4096, 65_000, SLOT_BYTES as usize] {
            self.echo(&pattern(length, length))?;
        }
        for length in [0, 1, 3, 17, 1441, 4096, 65_537, MAIN_BYTES as usize] {
            self.write_and_read(length)?;
        }
        self.many_reads()?;
        self.invalidate()
    }

    /// Sends a message that must come back unchanged.
    fn echo(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.link.send(bytes, None)?;
        let back = self.link.receive()?;
        if back.bytes != bytes {
            return Err(format!("a message of {} bytes came back changed", bytes.len()).into());
        }
        Ok(())
    }

    fn write_and_read(&mut self, length: usize) -> Result<(), Failure> {
        let bytes = pattern(length, length + 1);
        self.local.memory.write(0, &bytes);
        self.link.write(self.local_part(0, length as u32), part(self.main, 0, length as u32))?;
        self.local.memory.zero(0, MAIN_BYTES as usize);
        let read = (self.local_part(0, length as u32), part(self.main, 0, length as u32));
        self.link.read(&[read])?;
        if self.local.memory.to_vec(0, length) != bytes {
            return Err(format!("{length} bytes were written and others read").into());
        }
        Ok(())
    }

    /// Posts more reads than may be open at once, in pieces from the end to the start.
    fn many_reads(&mut self) -> Result<(), Failure> {
        let bytes = pattern(MAIN_BYTES as usize, 7);
        self.local.memory.write(0, &bytes);
        let whole = self.local_part(0, MAIN_BYTES);
        self.link.write(whole, self.main)?;
        self.local.memory.zero(0, MAIN_BYTES as usize);
        let length = MAIN_BYTES / READS;
        let reads: Vec<_> = (0..READS)
            .rev()
            .map(|at| at * length)
            .map(|at| (self.local_part(at, length), part(self.main, at, length)))
            .collect();
        self.link.read(&reads)?;
        let count = (length * READS) as usize;
        if self.local.memory.to_vec(0, count) != bytes[..count] {
            return Err("many reads at once brought other bytes".into());
        }
        Ok(())
    }

    fn invalidate(&mut self) -> Result<(), Failure> {
        let stag = Some(self.spare.stag);
        self.link.send(b"invalidate", stag)?;
        self.link.receive()?;
        Ok(())
    }

    /// Does something that must end the connection.
    fn offend(&mut self, scene: &str) -> Result<(), Failure> {
        let wrong = RemoteSegment { stag: Stag(self.main.stag.0 ^ 0xff00), ..self.main };
        let beyond = RemoteSegment { address: self.main.address + 1, ..self.main };
        let spare_length = self.spare.length;
        match scene {
            "write-stag" => self.link.write(self.local_part(0, 64), part(wrong, 0, 64)),
            "write-bounds" => self.link.write(self.local_part(0, MAIN_BYTES), beyond),
            "read-stag" => self.link.read(&[(self.local_part(0, 64), part(wrong, 0, 64))]),
            "read-bounds" => self.link.read(&[(self.local_part(0, MAIN_BYTES), beyond)]),
            "write-invalidated" => {
                self.invalidate()?;
                let spare = self.spare;
                self.link.write(self.local_part(0, spare_length), spare)
            }
            "send-stag" => self.link.send(b"invalidate", Some(wrong.stag)),
            other => Err(format!("unknown scene {other}").into()),
        }
    }

    fn local_part(&self, offset: u32, length: u32) -> LocalSegment {
        self.local.region.local(u64::from(offset), length)
    }
}

fn part(of: RemoteSegment, offset: u32, length: u32) -> RemoteSegment {
    RemoteSegment { stag: of.stag, address: of.address + u64::from(offset), length }
}

/// Returns bytes that differ from themselves under every shift.
fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 31 + at / 251 + seed) % 253) as u8).collect()
}
