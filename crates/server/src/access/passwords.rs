//! The password file. It has one user per line, `name:uid:gid:group,group:hash`, with argon2id
//! hashes in the usual text form.
//!
//! Invariant: a check of an unknown user takes as long as a check of a known user with a wrong
//! password.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use argon2::Argon2;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use dafs_types::{Credentials, ExposedSecret, check_secret};

use crate::access::one_time::OneTimeUser;

/// The users and their password hashes, as read from the file.
#[derive(Clone, Debug, Default)]
pub struct PasswordFile {
    users: Vec<User>,
    /// A user who is not in the password file and exists only while this server runs.
    one_time: Option<OneTimeUser>,
    /// The random key that selects, for an unknown user name, the hash to verify in place of the
    /// user's own.
    choice: RandomState,
}

#[derive(Clone, Debug)]
struct User {
    name: String,
    credentials: Credentials,
    hash: String,
}

/// The reason why a password file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    /// The file could not be read or written.
    #[error("cannot use the password file {path} (`dafs passwd` makes one)")]
    System {
        /// The password file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A user other than the owner can read or change the file.
    #[error("the password file {path} is not safe to use")]
    Exposed {
        /// The password file.
        path: PathBuf,
        /// The users other than the owner that have access to the file.
        source: ExposedSecret,
    },
    /// A line of the file is malformed.
    #[error(
        "password file {path}, line {line}: {what}; expected name:uid:gid:group,group:hash \
         (`dafs passwd` writes it)"
    )]
    LogKind {
        /// The password file.
        path: PathBuf,
        /// The number of the line, counted from 1.
        line: usize,
        /// What is wrong with the line.
        what: &'static str,
    },
    /// The user name is not valid in a password file.
    #[error("user name {0:?} is empty or contains a colon or control character")]
    Name(String),
    /// The password could not be hashed.
    #[error("hashing the password failed: {0}")]
    Hash(String),
}

impl PasswordFile {
    /// Reads a password file that only its owner can access.
    ///
    /// # Errors
    /// [`PasswordError`] if the file cannot be read, if another user can access it, or if a line is
    /// malformed.
    pub fn load(path: &Path) -> Result<Self, PasswordError> {
        Self::load_as(path, rustix::process::geteuid().as_raw())
    }

    /// Reads a password file in order to change it. Unlike [`PasswordFile::load`], this lets root
    /// read a file that another user owns.
    ///
    /// # Errors
    /// See [`PasswordFile::load`].
    pub fn load_to_change(path: &Path) -> Result<Self, PasswordError> {
        let failed = |source| PasswordError::System { path: path.into(), source };
        let user = rustix::process::geteuid();
        let owner = std::fs::metadata(path).map_err(failed)?.uid();
        Self::load_as(path, if user.is_root() { owner } else { user.as_raw() })
    }

    fn load_as(path: &Path, user: u32) -> Result<Self, PasswordError> {
        let failed = |source| PasswordError::System { path: path.into(), source };
        let exposed = |source| PasswordError::Exposed { path: path.into(), source };
        // Without `O_NONBLOCK`, opening a FIFO would block until a process opens it for writing.
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        let file = options.open(path).map_err(failed)?;
        // The metadata is read from the opened file, because the name may refer to another file by
        // now.
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(io::Error::other("it is not a regular file")));
        }
        check_secret(metadata.uid(), metadata.mode(), user).map_err(exposed)?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
        let mut users = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            users.push(parse(line).map_err(|what| PasswordError::LogKind {
                path: path.into(),
                line: index + 1,
                what,
            })?);
        }
        Ok(Self { users, one_time: None, choice: RandomState::new() })
    }

    /// Adds a user who is not in the password file. [`PasswordFile::save`] does not write that user
    /// to the file.
    #[must_use]
    pub fn with_one_time(self, one_time: Option<OneTimeUser>) -> Self {
        Self { one_time, ..self }
    }

    /// Replaces the file atomically, and keeps the owner and mode of the old file. A new file is
    /// readable by its owner only.
    ///
    /// # Errors
    /// [`PasswordError::System`] if the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), PasswordError> {
        let failed = |source| PasswordError::System { path: path.into(), source };
        let mut text = String::new();
        for user in &self.users {
            let groups: Vec<String> =
                user.credentials.groups().iter().map(u32::to_string).collect();
            text.push_str(&format!(
                "{}:{}:{}:{}:{}\n",
                user.name,
                user.credentials.uid(),
                user.credentials.gid(),
                groups.join(","),
                user.hash
            ));
        }
        let old = match std::fs::symlink_metadata(path) {
            Ok(old) if old.is_file() => Some(old),
            Ok(_) => {
                let text = "it is not a regular file; name the file itself, not a link to it";
                return Err(failed(io::Error::other(text)));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let draft = Draft::new(path).map_err(failed)?;
        draft.fill(text.as_bytes(), old.as_ref()).map_err(failed)?;
        draft.put(path).map_err(failed)
    }

    /// Adds a user, or replaces the password and credentials of an existing user.
    ///
    /// # Errors
    /// [`PasswordError::Name`] if the name cannot be stored, [`PasswordError::Hash`] if hashing
    /// fails.
    pub fn set(
        &mut self,
        name: &str,
        credentials: Credentials,
        password: &str,
    ) -> Result<(), PasswordError> {
        if name.is_empty() || name.contains(|c: char| c == ':' || c.is_control()) {
            return Err(PasswordError::Name(name.into()));
        }
        let hash = hash(password)?;
        self.remove(name);
        self.users.push(User { name: name.into(), credentials, hash });
        Ok(())
    }

    /// Removes a user. Returns false if no user has this name.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.users.len();
        self.users.retain(|user| user.name != name);
        self.users.len() < before
    }

    /// Returns true if there are no users, so that no client can log in by password.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.one_time.is_none()
    }

    /// Iterates over the names of the users.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.users.iter().map(|user| user.name.as_str())
    }

    /// Returns the credentials of a user. The password is not checked. `None` if no user has this
    /// name.
    #[must_use]
    pub fn credentials(&self, name: &str) -> Option<Credentials> {
        let user = self.users.iter().find(|user| user.name == name);
        user.map(|user| user.credentials.clone())
    }

    /// Returns the user's credentials if the password is right, or else `None`. This takes tens of
    /// milliseconds by design.
    #[must_use]
    pub fn verify(&self, name: &str, password: &str) -> Option<Credentials> {
        if let Some(one_time) = &self.one_time
            && let Some(who) = one_time.named(name)
        {
            return one_time.is_password(password).then(|| who.clone());
        }
        let user = self.users.iter().find(|user| user.name == name);
        let hash = user.map_or_else(|| self.decoy(name), |user| user.hash.as_str());
        let parsed = PasswordHash::new(hash).ok()?;
        let matches = Argon2::default().verify_password(password.as_bytes(), &parsed).is_ok();
        user.filter(|_| matches).map(|user| user.credentials.clone())
    }

    /// Returns the hash to verify for an unknown user name. It is the hash of a known user, so that
    /// the check takes the usual time. The same name always gets the same hash, because hashes may
    /// differ in cost.
    fn decoy(&self, name: &str) -> &str {
        let count = self.users.len().max(1) as u64;
        let chosen = usize::try_from(self.choice.hash_one(name) % count).unwrap_or(0);
        self.users.get(chosen).map_or(UNKNOWN_USER_HASH, |user| user.hash.as_str())
    }
}

/// A new password file, which replaces the old file when it is complete. If the value is dropped
/// before that, the new file is removed.
struct Draft {
    file: File,
    path: PathBuf,
}

impl Draft {
    /// Creates a file with a random name in the directory of `path`. An existing file or link is
    /// never opened.
    fn new(path: &Path) -> io::Result<Self> {
        let mut number = [0; 8];
        getrandom::fill(&mut number).map_err(|error| io::Error::other(error.to_string()))?;
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{:016x}", u64::from_ne_bytes(number)));
        let path = path.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { file, path })
    }

    /// Writes the content, and sets the owner and mode of the old file on the new one.
    fn fill(&self, bytes: &[u8], old: Option<&Metadata>) -> io::Result<()> {
        if let Some(old) = old {
            let own = self.file.metadata()?;
            if (own.uid(), own.gid()) != (old.uid(), old.gid()) {
                std::os::unix::fs::fchown(&self.file, Some(old.uid()), Some(old.gid()))?;
            }
            self.file.set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
        }
        (&self.file).write_all(bytes)?;
        self.file.sync_all()
    }

    fn put(mut self, path: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, path)?;
        self.path = PathBuf::new();
        let directory = path.parent().filter(|parent| *parent != Path::new(""));
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.path != PathBuf::new() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The size limit of a password file in bytes. The password file of a large organisation is far
/// smaller.
const FILE_BYTES_MAX: u64 = 64 << 20;

fn parse(line: &str) -> Result<User, &'static str> {
    let mut fields = line.splitn(5, ':');
    let mut field = |what| fields.next().ok_or(what);
    let name = field("name is missing")?.to_string();
    let uid = field("uid is missing")?.parse().map_err(|_| "uid is not a number")?;
    let gid = field("gid is missing")?.parse().map_err(|_| "gid is not a number")?;
    let mut groups = Vec::new();
    for group in field("groups are missing")?.split(',').filter(|group| !group.is_empty()) {
        groups.push(group.parse().map_err(|_| "a group is not a number")?);
    }
    let credentials = Credentials::new(uid, gid, groups)
        .map_err(|_| "4294967295 (-1) is not a valid user or group")?;
    let hash = field("hash is missing")?.to_string();
    PasswordHash::new(&hash).map_err(|_| "hash is malformed")?;
    Ok(User { name, credentials, hash })
}

fn hash(password: &str) -> Result<String, PasswordError> {
    let mut salt = [0; 16];
    getrandom::fill(&mut salt).map_err(|e| PasswordError::Hash(e.to_string()))?;
    let salt = SaltString::encode_b64(&salt).map_err(|e| PasswordError::Hash(e.to_string()))?;
    let hash = Argon2::default()
        .hash_password(password.as_bytes(), &salt)
        .map_err(|e| PasswordError::Hash(e.to_string()))?;
    Ok(hash.to_string())
}

/// The hash to verify if no user is known. No password matches it.
const UNKNOWN_USER_HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$\
    AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_survive_the_file_and_wrong_ones_fail() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("passwords");
        let mut file = PasswordFile::default();
        let who = Credentials::new(7, 8, [9, 10]).unwrap();
        file.set("ann", who.clone(), "open sesame").unwrap();
        file.save(&path).unwrap();
        let file = PasswordFile::load(&path).unwrap();
        assert_eq!(file.verify("ann", "open sesame"), Some(who));
        assert_eq!(file.verify("ann", "open"), None);
        assert_eq!(file.verify("bob", "open sesame"), None);
    }

    #[test]
    fn an_unknown_user_costs_what_some_user_costs() {
        let cheap = "$argon2id$v=19$m=64,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$\
            AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let mut file = PasswordFile::default();
        assert_eq!(file.decoy("eve"), UNKNOWN_USER_HASH);
        for name in ["ann", "bob"] {
            let (credentials, hash) = (Credentials::nobody(), cheap.to_owned());
            file.users.push(User { name: name.to_owned(), credentials, hash });
        }
        assert_eq!(file.decoy("eve"), cheap);
        assert_eq!(file.verify("eve", ""), None);
        file.set("zoe", Credentials::nobody(), "open sesame").unwrap();
        for name in 0..50 {
            let name = format!("user{name}");
            assert_eq!(file.decoy(&name), file.decoy(&name), "a name costs always the same");
        }
        let names: Vec<_> = (0..50).map(|name| format!("user{name}")).collect();
        let dear = names.iter().filter(|name| file.decoy(name) != cheap).count();
        assert!((1..50).contains(&dear), "{dear}");
        let dear = names.iter().find(|name| file.decoy(name) != cheap).unwrap();
        assert_eq!(file.verify(dear, "open sesame"), None, "zoe's password lets in zoe alone");
    }

    #[test]
    fn a_file_that_others_can_read_or_change_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("passwords");
        PasswordFile::default().save(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        for mode in [0o604, 0o620, 0o666] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = PasswordFile::load(&path).unwrap_err();
            let is_named = matches!(error, PasswordError::Exposed {
                source: ExposedSecret::Mode(m), ..
            } if m == mode);
            assert!(is_named, "{error}");
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        PasswordFile::load(&path).unwrap();
        let error = PasswordFile::load(directory.path()).unwrap_err();
        assert!(matches!(error, PasswordError::System { .. }), "{error}");
    }

    #[test]
    fn a_file_that_is_written_anew_keeps_its_owner_and_mode_and_follows_no_link() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("passwords");
        PasswordFile::default().save(&path).unwrap();
        let is_root = rustix::process::geteuid().is_root();
        let (mode, group) = if is_root { (0o640, 4711) } else { (0o600, 0) };
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        if is_root {
            std::os::unix::fs::chown(&path, None, Some(group)).unwrap();
        }
        // An attacker's link under the fixed name that an earlier version used.
        let victim = directory.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, path.with_extension("new")).unwrap();
        let mut file = PasswordFile::load_to_change(&path).unwrap();
        file.set("ann", Credentials::nobody(), "open sesame").unwrap();
        file.save(&path).unwrap();
        let after = std::fs::metadata(&path).unwrap();
        assert_eq!(after.mode() & 0o777, mode);
        assert!(!is_root || after.gid() == group);
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        assert!(file.save(&link).is_err());
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        let names: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(names.len(), 4, "nothing is left lying about: {names:?}");
    }

    #[test]
    fn a_bad_line_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("passwords");
        std::fs::write(&path, "# users\nann:x:1::h\n").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let error = PasswordFile::load(&path).unwrap_err();
        assert!(error.to_string().contains("line 2: uid is not a number"), "{error}");
        for ids in ["4294967295:1:", "1:4294967295:", "1:1:4294967295"] {
            std::fs::write(&path, format!("ann:{ids}:{UNKNOWN_USER_HASH}\n")).unwrap();
            let error = PasswordFile::load(&path).unwrap_err();
            assert!(
                error.to_string().contains("line 1: 4294967295 (-1) is not a valid"),
                "{error}"
            );
        }
    }
}
