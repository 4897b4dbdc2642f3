//! From a path to a handle, following symbolic links on the client's side.
//!
//! Invariant: `..` never climbs above the server's root, and no more than
//! [`LINKS_MAX`] links are followed.

use std::pin::Pin;

use dafs_types::{FileHandle, ObjectType, Status};
use dafs_wire::attributes::file::bits;
use dafs_wire::messages::{GetAttributes, Lookup, OneHandle};
use dafs_wire::{Path, Request, Response};

use crate::error::{ClientError, Result};
use crate::session::Session;
use crate::typed::failed;

/// Where a path leads: its parent directory and last name, or the root itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The parent; the root for the root itself.
    pub directory: FileHandle,
    /// The last name; empty for a path that ends in a directory without a name (`/`).
    pub name: String,
}

impl Session {
    /// The handle a path leads to. With `follow` a symbolic link at its end is followed.
    pub(crate) fn resolve(&self, path: &str, follow: bool) -> Result<FileHandle> {
        self.run(self.resolve_async(path, follow))
    }

    /// The handle that a path leads to, by round trips of which each waits for the one before. With
    /// `follow` a symbolic link at its end is followed.
    ///
    /// # Errors
    /// As the server says, with the path; [`ClientError::TooManyLinks`].
    pub async fn resolve_async(&self, path: &str, follow: bool) -> Result<FileHandle> {
        let mut links = 0;
        self.walk(self.root, path, path, follow, &mut links).await
    }

    /// The directory and the name of a path whose last component need not exist.
    pub(crate) fn resolve_parent(&self, path: &str) -> Result<Resolved> {
        self.run(self.resolve_parent_async(path))
    }

    /// The directory and the name of a path whose last component need not exist, by round trips of
    /// which each waits for the one before.
    ///
    /// # Errors
    /// As [`Session::resolve_async`].
    pub async fn resolve_parent_async(&self, path: &str) -> Result<Resolved> {
        let trimmed = path.trim_end_matches('/');
        let (parent, name) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
        let mut links = 0;
        let directory = self.walk(self.root, parent, path, true, &mut links).await?;
        Ok(Resolved { directory, name: name.to_owned() })
    }

    async fn walk(
        &self,
        start: FileHandle,
        path: &str,
        whole: &str,
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
            let run = run.min(COMPONENTS_PER_LOOKUP);
            let (reached, count, status) = self.lookup(here, &names[at..at + run]).await?;
            if status == Status::Ok {
                let is_last = at + run == names.len();
                // What is followed by `..` must be a directory: links there are followed.
                here = if follow || !is_last {
                    self.follow(here, &names[at..at + run], reached, whole, links).await?
                } else {
                    reached
                };
                at += run;
                continue;
            }
            if status != Status::Symlink || count == 0 {
                return Err(ClientError::Status { what: whole.to_owned(), status });
            }
            // A link in the middle: `count` names led to it.
            let before = &names[at..at + count - 1];
            let base = self.lookup_all(here, before, whole).await?;
            here = self.through(base, reached, whole, links).await?;
            at += count;
        }
        Ok(here)
    }

    /// Follows the object at the end of a run of names if it is a link.
    async fn follow(
        &self,
        start: FileHandle,
        names: &[&str],
        object: FileHandle,
        whole: &str,
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

    /// Goes where a link points; `base` is the directory it is in.
    fn through<'a>(
        &'a self,
        base: FileHandle,
        link: FileHandle,
        whole: &'a str,
        links: &'a mut u32,
    ) -> Pin<Box<dyn Future<Output = Result<FileHandle>> + 'a>> {
        // It walks, which goes through links: such a future has no size.
        Box::pin(async move {
            *links += 1;
            if *links > LINKS_MAX {
                return Err(ClientError::TooManyLinks(whole.to_owned()));
            }
            let text = link_path(self.read_link_async(link, whole).await?, whole)?;
            self.walk(base, &text, whole, true, links).await
        })
    }

    async fn lookup_all(
        &self,
        start: FileHandle,
        names: &[&str],
        whole: &str,
    ) -> Result<FileHandle> {
        if names.is_empty() {
            return Ok(start);
        }
        match self.lookup(start, names).await? {
            (handle, _, Status::Ok) => Ok(handle),
            (_, _, status) => Err(ClientError::Status { what: whole.to_owned(), status }),
        }
    }

    /// LOOKUP: the object reached, how many names led to it, and why no further.
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

    async fn parent(&self, directory: FileHandle, whole: &str) -> Result<FileHandle> {
        let request = Request::LookupP(OneHandle { file: directory });
        let asked = self.ask(&request, |status, response| match response {
            Response::LookupP(parent) if status == Status::Ok => Ok(parent.file),
            // The root is its own parent.
            _ if status == Status::NoEnt => Ok(self.root),
            _ => Err(failed(whole, status)),
        });
        asked.await
    }

    async fn kind_of(&self, file: FileHandle, whole: &str) -> Result<ObjectType> {
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

/// The text of a link as a path, which DAFS has in UTF-8 only.
pub(crate) fn link_path(text: Vec<u8>, whole: &str) -> Result<String> {
    String::from_utf8(text).map_err(|error| ClientError::Status {
        what: format!(
            "{whole}: a link leads to \"{}\", which is not UTF-8",
            error.as_bytes().escape_ascii()
        ),
        status: Status::Inval,
    })
}

const LINKS_MAX: u32 = 40;
/// Names sent in one LOOKUP, so that the request fits.
const COMPONENTS_PER_LOOKUP: usize = 12;
