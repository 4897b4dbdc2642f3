//! Resolves paths to handles, following symbolic links on the client's side.
//!
//! Invariant: `..` never climbs above the server's root, and at most [`LINKS_MAX`] links are
//! followed. Paths are resolved in the escaped form of messages, in which slashes and dots keep
//! their meaning.

use std::ffi::OsStr;
use std::pin::Pin;

use dafs_types::names::to_wire;
use dafs_types::{FileHandle, ObjectType, Status, limits};
use dafs_wire::attributes::file::bits;
use dafs_wire::messages::{GetAttributes, Lookup, OneHandle};
use dafs_wire::{Path, Request, Response};

use crate::error::Result;
use crate::path::{Resolved, split_last, too_many_links, wire};
use crate::refusal::failed;
use crate::session::Session;

impl Session {
    /// Returns the handle of the object at a path. If `follow` is true, a symbolic link at the end
    /// is followed.
    pub(crate) fn resolve(&self, path: &OsStr, follow: bool) -> Result<FileHandle> {
        self.run(self.resolve_async(path, follow))
    }

    /// Resolves a path to a handle. If `follow` is true, a symbolic link at the end is followed.
    /// The future sends each request after the reply to the previous one.
    ///
    /// # Errors
    /// Any error of the server, with the path;
    /// [`ClientError::TooManyLinks`](crate::ClientError::TooManyLinks).
    pub async fn resolve_async<P>(&self, path: &P, follow: bool) -> Result<FileHandle>
    where
        P: AsRef<OsStr> + ?Sized,
    {
        let path = path.as_ref();
        let mut links = 0;
        self.walk(self.root, &wire(path), path, follow, &mut links).await
    }

    /// Returns the handle of the parent directory and the last name of a path; that name need not
    /// exist.
    pub(crate) fn resolve_parent(&self, path: &OsStr) -> Result<Resolved> {
        self.run(self.resolve_parent_async(path))
    }

    /// Returns the handle of the parent directory and the last name of a path; that name need not
    /// exist. The future sends each request after the reply to the previous one.
    ///
    /// # Errors
    /// The errors of [`Session::resolve_async`].
    pub async fn resolve_parent_async<P>(&self, path: &P) -> Result<Resolved>
    where
        P: AsRef<OsStr> + ?Sized,
    {
        let path = path.as_ref();
        let (parent, name) = split_last(path);
        let mut links = 0;
        let directory = self.walk(self.root, &wire(parent), path, true, &mut links).await?;
        Ok(Resolved { directory, name: name.to_owned() })
    }

    async fn walk(
        &self,
        start: FileHandle,
        path: &str,
        whole: &OsStr,
        follow: bool,
        links: &mut u32,
    ) -> Result<FileHandle> {
        let mut here = if path.starts_with('/') { self.root } else { start };
        let names: Vec<&str> =
            path.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
        let mut at = 0;
        while at < names.len() {
            if names[at] == ".." {
                here = self.parent(here, whole).await?;
                at += 1;
                continue;
            }
            let run = names[at..].iter().take_while(|name| **name != "..").count();
            let run = fitting(&names[at..at + run]);
            let (reached, count, status) = self.lookup(here, &names[at..at + run]).await?;
            if status == Status::Ok {
                let is_last = at + run == names.len();
                // A component before `..` must be a directory, so links are followed there.
                here = if follow || !is_last {
                    self.follow(here, &names[at..at + run], reached, whole, links).await?
                } else {
                    reached
                };
                at += run;
                continue;
            }
            if status != Status::Symlink || count == 0 {
                return Err(failed(whole, status));
            }
            // The link is in the middle of the path: its own name is the last of the next `count`
            // names.
            let before = &names[at..at + count - 1];
            let base = self.lookup_all(here, before, whole).await?;
            here = self.through(base, reached, whole, links).await?;
            at += count;
        }
        Ok(here)
    }

    /// If the object at the end of `count` names is a symbolic link, continues at its target.
    async fn follow(
        &self,
        start: FileHandle,
        names: &[&str],
        object: FileHandle,
        whole: &OsStr,
        links: &mut u32,
    ) -> Result<FileHandle> {
        let kind = self.kind_of(object, whole).await?;
        if kind != ObjectType::SymbolicLink {
            return Ok(object);
        }
        let (_, before) = names.split_last().unwrap_or((&"", &[]));
        let base = self.lookup_all(start, before, whole).await?;
        self.through(base, object, whole, links).await
    }

    /// Continues path resolution at the target of a symbolic link in the directory `base`.
    fn through<'a>(
        &'a self,
        base: FileHandle,
        link: FileHandle,
        whole: &'a OsStr,
        links: &'a mut u32,
    ) -> Pin<Box<dyn Future<Output = Result<FileHandle>> + 'a>> {
        // Resolving paths and following links are mutually recursive, so the future must be boxed.
        Box::pin(async move {
            *links += 1;
            if *links > LINKS_MAX {
                return Err(too_many_links(whole));
            }
            let text = self.read_link_async(link, whole).await?;
            self.walk(base, &to_wire(&text), whole, true, links).await
        })
    }

    async fn lookup_all(
        &self,
        start: FileHandle,
        names: &[&str],
        whole: &OsStr,
    ) -> Result<FileHandle> {
        if names.is_empty() {
            return Ok(start);
        }
        match self.lookup(start, names).await? {
            (handle, _, Status::Ok) => Ok(handle),
            (_, _, status) => Err(failed(whole, status)),
        }
    }

    /// Sends LOOKUP. Returns the object reached, the number of names that led to it, and the status
    /// with which the lookup stopped there.
    async fn lookup(
        &self,
        directory: FileHandle,
        names: &[&str],
    ) -> Result<(FileHandle, usize, Status)> {
        let request = Request::Lookup(Lookup { directory, path: Path::new(names) });
        let asked = self.ask(&request, |status, response| {
            Ok(match response {
                Response::Lookup(found) => (found.file, found.component_count as usize, status),
                _ => (directory, 0, status),
            })
        });
        asked.await
    }

    async fn parent(&self, directory: FileHandle, whole: &OsStr) -> Result<FileHandle> {
        let request = Request::LookupP(OneHandle { file: directory });
        let asked = self.ask(&request, |status, response| match response {
            Response::LookupP(parent) if status == Status::Ok => Ok(parent.file),
            // The root is its own parent.
            _ if status == Status::NoEnt => Ok(self.root),
            _ => Err(failed(whole, status)),
        });
        asked.await
    }

    async fn kind_of(&self, file: FileHandle, whole: &OsStr) -> Result<ObjectType> {
        let wanted = bits::OBJECT_TYPE;
        let request = Request::GetAttrInline(GetAttributes { file, wanted });
        let asked = self.ask(&request, |status, response| match response {
            Response::GetAttrInline(result) if status == Status::Ok => {
                Ok(result.attributes.file().object_type)
            }
            _ => Err(failed(whole, status)),
        });
        asked.await?.ok_or_else(|| self.protocol_error("GETATTR_INLINE"))
    }
}

/// Returns how many of these names fit in one LOOKUP: at least one, because a single name always
/// fits.
pub(crate) fn fitting(names: &[&str]) -> usize {
    let mut bytes = 0;
    let fits = names.iter().take(COMPONENTS_PER_LOOKUP).take_while(|name| {
        bytes += (4 + name.len()).next_multiple_of(8);
        bytes <= NAMES_BYTES_PER_LOOKUP
    });
    fits.count().max(1)
}

pub(crate) const LINKS_MAX: u32 = 40;

/// The limit for the number of names in one LOOKUP.
pub(crate) const COMPONENTS_PER_LOOKUP: usize = 12;

/// The limit for the total size in bytes of several names in one LOOKUP, so that the request fits.
pub(crate) const NAMES_BYTES_PER_LOOKUP: usize = limits::REQUEST_BYTES_MIN - 256;

#[cfg(test)]
pub(crate) mod tests {
    use dafs_types::names::length_of_wire;
    use dafs_types::{Random, SequenceNumber, StreamId};
    use dafs_wire::{ByteOrder, RequestHeader, decode_request, encode_request};

    use super::*;

    /// Random names in the escaped form of messages: short ones, the longest, and some that take
    /// three times their length.
    pub(crate) fn names(random: &mut Random, count_max: usize) -> Vec<String> {
        let count = 1 + random.below(count_max);
        let mut name = || {
            let length = match random.below(4) {
                0 => 1 + random.below(8),
                1 => limits::NAME_BYTES_MAX - random.below(2),
                _ => 1 + random.below(limits::NAME_BYTES_MAX),
            };
            let bytes = match random.below(3) {
                0 => vec![0xff; length],
                1 => vec![b'n'; length],
                _ => random.bytes(length).iter().map(|byte| byte | 0x40).collect(),
            };
            to_wire(&bytes).into_owned()
        };
        (0..count).map(|_| name()).collect()
    }

    #[test]
    fn what_goes_into_one_lookup_fits_the_smallest_request_and_the_longest_path() {
        for seed in 0..2000 {
            let mut random = Random::new(seed);
            let names = names(&mut random, 60);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut at = 0;
            while at < names.len() {
                let run = &names[at..at + fitting(&names[at..])];
                let lookup = Lookup { directory: FileHandle::NULL, path: Path::new(run) };
                let header = RequestHeader::new(StreamId(0), SequenceNumber(0));
                let mut message = [0; limits::REQUEST_BYTES_MIN];
                let request = Request::Lookup(lookup);
                let length = encode_request(ByteOrder::NATIVE, &header, &request, &mut message);
                let length = length.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                // A server refuses paths that are longer than allowed.
                let decoded = decode_request(ByteOrder::NATIVE, &message[..length]);
                assert!(decoded.is_ok(), "seed {seed}: {:?}", decoded.err());
                let bytes: usize = run.iter().map(|name| length_of_wire(name) + 1).sum();
                assert!(bytes <= limits::PATH_BYTES_MAX + 1, "seed {seed}");
                at += run.len();
            }
        }
    }
}
