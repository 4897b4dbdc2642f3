//! The attributes of version 4 (RFC 8881 section 5), by their numbers.
//!
//! Invariant: values are encoded in the order of their numbers.

use std::collections::BTreeMap;

use crate::fault::Fault;
use crate::xdr::{Get, Put};

macro_rules! attributes {
    ($($name:ident $number:literal $form:ident)*) => {
        $(#[doc = concat!("The attribute `", stringify!($name), "`, number ", $number, ".")]
        pub const $name: u32 = $number;)*

        /// Returns the type of an attribute's value.
        const fn form(number: u32) -> Option<Form> {
            match number {
                $($number => Some(Form::$form),)*
                _ => None,
            }
        }

        /// The numbers of all attributes whose values this suite can decode.
        pub const ALL: &[u32] = &[$($number,)*];
    };
}

attributes! {
    SUPPORTED_ATTRS 0 Bits
    TYPE 1 U32
    FH_EXPIRE_TYPE 2 U32
    CHANGE 3 U64
    SIZE 4 U64
    LINK_SUPPORT 5 Bool
    SYMLINK_SUPPORT 6 Bool
    NAMED_ATTR 7 Bool
    FSID 8 Pair
    UNIQUE_HANDLES 9 Bool
    LEASE_TIME 10 U32
    RDATTR_ERROR 11 U32
    ACL 12 Acl
    ACLSUPPORT 13 U32
    ARCHIVE 14 Bool
    CANSETTIME 15 Bool
    CASE_INSENSITIVE 16 Bool
    CASE_PRESERVING 17 Bool
    CHOWN_RESTRICTED 18 Bool
    FILEHANDLE 19 Bytes
    FILEID 20 U64
    FILES_AVAIL 21 U64
    FILES_FREE 22 U64
    FILES_TOTAL 23 U64
    HIDDEN 25 Bool
    HOMOGENEOUS 26 Bool
    MAXFILESIZE 27 U64
    MAXLINK 28 U32
    MAXNAME 29 U32
    MAXREAD 30 U64
    MAXWRITE 31 U64
    MIMETYPE 32 Bytes
    MODE 33 U32
    NO_TRUNC 34 Bool
    NUMLINKS 35 U32
    OWNER 36 Bytes
    OWNER_GROUP 37 Bytes
    QUOTA_AVAIL_HARD 38 U64
    QUOTA_AVAIL_SOFT 39 U64
    QUOTA_USED 40 U64
    RAWDEV 41 Half
    SPACE_AVAIL 42 U64
    SPACE_FREE 43 U64
    SPACE_TOTAL 44 U64
    SPACE_USED 45 U64
    SYSTEM 46 Bool
    TIME_ACCESS 47 Time
    TIME_BACKUP 49 Time
    TIME_CREATE 50 Time
    TIME_DELTA 51 Time
    TIME_METADATA 52 Time
    TIME_MODIFY 53 Time
    MOUNTED_ON_FILEID 55 U64
    CHANGE_POLICY 60 Pair
    FS_LAYOUT_TYPES 62 Numbers
    LAYOUT_TYPES 64 Numbers
    LAYOUT_BLKSIZE 65 U32
    LAYOUT_ALIGNMENT 66 U32
    SUPPATTR_EXCLCREAT 75 Bits
    FS_CHARSET_CAP 76 U32
    CLONE_BLKSIZE 77 U32
    SPACE_FREED 78 U64
    CHANGE_ATTR_TYPE 79 U32
    XATTR_SUPPORT 82 Bool
    OFFLINE 83 Bool
    TIME_DELEG_ACCESS 84 Time
    TIME_DELEG_MODIFY 85 Time
    OPEN_ARGUMENTS 86 OpenArguments
}

/// The number of the attribute `time_access_set`, which clients can only set.
pub const TIME_ACCESS_SET: u32 = 48;
/// The number of the attribute `time_modify_set`, which clients can only set.
pub const TIME_MODIFY_SET: u32 = 54;
/// The number of the attribute `mode_umask`, which clients can only set.
pub const MODE_UMASK: u32 = 81;

/// The attributes that every server must support (RFC 8881 section 5.6), except rdattr_error, which
/// only listings contain.
pub const REQUIRED: &[u32] = &[
    SUPPORTED_ATTRS,
    TYPE,
    FH_EXPIRE_TYPE,
    CHANGE,
    SIZE,
    LINK_SUPPORT,
    SYMLINK_SUPPORT,
    NAMED_ATTR,
    FSID,
    UNIQUE_HANDLES,
    LEASE_TIME,
    FILEHANDLE,
    SUPPATTR_EXCLCREAT,
];

/// The type of an attribute's value.
#[derive(Clone, Copy, Debug)]
enum Form {
    Bool,
    U32,
    U64,
    Bytes,
    Time,
    Bits,
    Pair,
    Half,
    Acl,
    Numbers,
    OpenArguments,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// An integer, or a bool as 0 or 1.
    Number(u64),
    /// Bytes of variable length.
    Bytes(Vec<u8>),
    /// A time: the seconds since 1970, and the nanoseconds after the second.
    Time(i64, u32),
    /// The numbers that are set in a bitmap.
    Bits(Vec<u32>),
    /// Two integers, such as the id of a file system.
    Pair(u64, u64),
    /// A list of integers.
    Numbers(Vec<u32>),
    /// The entries of an access control list: type, flags, rights, and name of the subject.
    Acl(Vec<(u32, u32, u32, Vec<u8>)>),
    /// The supported arguments of OPEN: access, reservations, wishes, claims, modes of creation.
    OpenArguments([Vec<u32>; 5]),
}

/// The decoded attributes in a reply, by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attrs(pub BTreeMap<u32, Value>);

/// Attributes to set or to compare: the encoded values by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set(pub BTreeMap<u32, Vec<u8>>);

/// Appends a bitmap in which these numbers are set.
#[must_use]
pub fn put_bits(put: Put, numbers: &[u32]) -> Put {
    let word_count = numbers.iter().max().map_or(0, |max| max / 32 + 1);
    let mut words = vec![0_u32; word_count as usize];
    for number in numbers {
        words[(number / 32) as usize] |= 1 << (number % 32);
    }
    put.list(&words, |put, word| put.u32(*word))
}

/// Decodes a bitmap. Returns the numbers that are set.
pub fn get_bits(get: &mut Get<'_>) -> Result<Vec<u32>, Fault> {
    let words = get.list(Get::u32)?;
    let bits = words.iter().enumerate().flat_map(|(at, word)| {
        (0..32).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at as u32 * 32 + bit)
    });
    Ok(bits.collect())
}

/// Decodes a time. Fails if the nanoseconds are not less than one second.
pub fn get_time(get: &mut Get<'_>) -> Result<(i64, u32), Fault> {
    let (seconds, nanoseconds) = (get.u64()?.cast_signed(), get.u32()?);
    if nanoseconds >= 1_000_000_000 {
        return Err(Fault::Reply(format!("has a time with {nanoseconds} nanoseconds")));
    }
    Ok((seconds, nanoseconds))
}

fn get_value(form: Form, get: &mut Get<'_>) -> Result<Value, Fault> {
    Ok(match form {
        Form::Bool => Value::Number(u64::from(get.bool()?)),
        Form::U32 => Value::Number(u64::from(get.u32()?)),
        Form::U64 => Value::Number(get.u64()?),
        Form::Bytes => Value::Bytes(get.opaque()?),
        Form::Time => {
            let (seconds, nanoseconds) = get_time(get)?;
            Value::Time(seconds, nanoseconds)
        }
        Form::Bits => Value::Bits(get_bits(get)?),
        Form::Pair => Value::Pair(get.u64()?, get.u64()?),
        Form::Half => Value::Pair(get.u32()?.into(), get.u32()?.into()),
        Form::Acl => {
            let entries = get.list(|get| Ok((get.u32()?, get.u32()?, get.u32()?, get.opaque()?)));
            Value::Acl(entries?)
        }
        Form::Numbers => Value::Numbers(get.list(Get::u32)?),
        Form::OpenArguments => {
            let mut all = [const { Vec::new() }; 5];
            for numbers in &mut all {
                *numbers = get_bits(get)?;
            }
            Value::OpenArguments(all)
        }
    })
}

impl Attrs {
    /// Decodes a bitmap and the values of the attributes in it. Fails if bytes are left.
    pub fn get(get: &mut Get<'_>) -> Result<Self, Fault> {
        let (numbers, values) = (get_bits(get)?, get.opaque()?);
        let mut get = Get(&values);
        let mut attrs = Self::default();
        for number in numbers {
            let form =
                form(number).ok_or_else(|| Fault::Reply(format!("has the attribute {number}")))?;
            attrs.0.insert(number, get_value(form, &mut get)?);
        }
        get.finish()?;
        Ok(attrs)
    }

    /// Returns the value of an attribute whose type is an integer.
    pub fn number(&self, number: u32) -> Result<u64, Fault> {
        match self.0.get(&number) {
            Some(Value::Number(value)) => Ok(*value),
            other => Err(Fault::Reply(format!("has {other:?} for attribute {number}"))),
        }
    }

    /// Returns the value of an attribute whose type is bytes.
    pub fn bytes(&self, number: u32) -> Result<Vec<u8>, Fault> {
        match self.0.get(&number) {
            Some(Value::Bytes(value)) => Ok(value.clone()),
            other => Err(Fault::Reply(format!("has {other:?} for attribute {number}"))),
        }
    }

    /// Returns the value of an attribute whose type is a time.
    pub fn time(&self, number: u32) -> Result<(i64, u32), Fault> {
        match self.0.get(&number) {
            Some(Value::Time(seconds, nanoseconds)) => Ok((*seconds, *nanoseconds)),
            other => Err(Fault::Reply(format!("has {other:?} for attribute {number}"))),
        }
    }

    /// Returns the numbers that are set in an attribute whose type is a bitmap.
    pub fn bits(&self, number: u32) -> Result<Vec<u32>, Fault> {
        match self.0.get(&number) {
            Some(Value::Bits(value)) => Ok(value.clone()),
            other => Err(Fault::Reply(format!("has {other:?} for attribute {number}"))),
        }
    }

    /// Returns the supported arguments of OPEN: access, reservations, wishes, claims, and modes of
    /// creation.
    pub fn open_arguments(&self) -> Result<[Vec<u32>; 5], Fault> {
        match self.0.get(&OPEN_ARGUMENTS) {
            Some(Value::OpenArguments(all)) => Ok(all.clone()),
            other => Err(Fault::Reply(format!("has {other:?} for attribute {OPEN_ARGUMENTS}"))),
        }
    }
}

impl Set {
    /// Returns an empty set of attributes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an attribute with an encoded value.
    #[must_use]
    pub fn with(mut self, number: u32, value: Put) -> Self {
        self.0.insert(number, value.0);
        self
    }

    /// Adds the mode of the file.
    #[must_use]
    pub fn mode(self, mode: u32) -> Self {
        self.with(MODE, Put::new().u32(mode))
    }

    /// Adds the size in bytes.
    #[must_use]
    pub fn size(self, size: u64) -> Self {
        self.with(SIZE, Put::new().u64(size))
    }

    /// Adds the owner as text.
    #[must_use]
    pub fn owner(self, owner: &str) -> Self {
        self.with(OWNER, Put::new().opaque(owner))
    }

    /// Adds the group as text.
    #[must_use]
    pub fn group(self, group: &str) -> Self {
        self.with(OWNER_GROUP, Put::new().opaque(group))
    }

    /// Adds the time of the last change of the content.
    #[must_use]
    pub fn mtime(self, seconds: i64, nanoseconds: u32) -> Self {
        let value = Put::new().u32(1).u64(seconds.cast_unsigned()).u32(nanoseconds);
        self.with(TIME_MODIFY_SET, value)
    }

    /// Adds an access time that the server sets to its present time.
    #[must_use]
    pub fn atime_now(self) -> Self {
        self.with(TIME_ACCESS_SET, Put::new().u32(0))
    }

    /// Appends the bitmap and the encoded values.
    #[must_use]
    pub fn put(&self, put: Put) -> Put {
        let numbers: Vec<u32> = self.0.keys().copied().collect();
        let values: Vec<u8> = self.0.values().flatten().copied().collect();
        put_bits(put, &numbers).opaque(values)
    }
}
