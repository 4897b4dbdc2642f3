//! The numbers of operations, and sets of them.

/// The number of an operation of NFSv4 (RFC 8881 section 16.2, RFC 7862, RFC 8276).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationNumber(pub u32);

macro_rules! operations {
    ($($name:ident = $number:literal;)*) => {
        #[allow(missing_docs, reason = "each name is the name in the RFC")]
        impl OperationNumber {
            $(pub const $name: Self = Self($number);)*
            /// The operations that NFSv4.2 defines, in the order of their numbers.
            pub const ALL: &'static [(Self, &'static str)] =
                &[$((Self($number), stringify!($name)),)*];
        }
    };
}

operations! {
    ACCESS = 3;
    CLOSE = 4;
    COMMIT = 5;
    CREATE = 6;
    DELEGPURGE = 7;
    DELEGRETURN = 8;
    GETATTR = 9;
    GETFH = 10;
    LINK = 11;
    LOCK = 12;
    LOCKT = 13;
    LOCKU = 14;
    LOOKUP = 15;
    LOOKUPP = 16;
    NVERIFY = 17;
    OPEN = 18;
    OPENATTR = 19;
    OPEN_CONFIRM = 20;
    OPEN_DOWNGRADE = 21;
    PUTFH = 22;
    PUTPUBFH = 23;
    PUTROOTFH = 24;
    READ = 25;
    READDIR = 26;
    READLINK = 27;
    REMOVE = 28;
    RENAME = 29;
    RENEW = 30;
    RESTOREFH = 31;
    SAVEFH = 32;
    SECINFO = 33;
    SETATTR = 34;
    SETCLIENTID = 35;
    SETCLIENTID_CONFIRM = 36;
    VERIFY = 37;
    WRITE = 38;
    RELEASE_LOCKOWNER = 39;
    BACKCHANNEL_CTL = 40;
    BIND_CONN_TO_SESSION = 41;
    EXCHANGE_ID = 42;
    CREATE_SESSION = 43;
    DESTROY_SESSION = 44;
    FREE_STATEID = 45;
    GET_DIR_DELEGATION = 46;
    GETDEVICEINFO = 47;
    GETDEVICELIST = 48;
    LAYOUTCOMMIT = 49;
    LAYOUTGET = 50;
    LAYOUTRETURN = 51;
    SECINFO_NO_NAME = 52;
    SEQUENCE = 53;
    SET_SSV = 54;
    TEST_STATEID = 55;
    WANT_DELEGATION = 56;
    DESTROY_CLIENTID = 57;
    RECLAIM_COMPLETE = 58;
    ALLOCATE = 59;
    COPY = 60;
    COPY_NOTIFY = 61;
    DEALLOCATE = 62;
    IO_ADVISE = 63;
    LAYOUTERROR = 64;
    LAYOUTSTATS = 65;
    OFFLOAD_CANCEL = 66;
    OFFLOAD_STATUS = 67;
    READ_PLUS = 68;
    SEEK = 69;
    WRITE_SAME = 70;
    CLONE = 71;
    GETXATTR = 72;
    SETXATTR = 73;
    LISTXATTRS = 74;
    REMOVEXATTR = 75;
}

/// A set of operations, as the bitmaps of EXCHANGE_ID contain them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationSet(u128);

impl OperationSet {
    /// The set without any operation.
    pub const EMPTY: Self = Self(0);
    /// The number of 32-bit words of the largest bitmap in which every bit can be assigned.
    pub const WORDS_MAX: usize = 4;

    /// Creates a set from the listed operations.
    #[must_use]
    pub const fn of(operations: &[OperationNumber]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < operations.len() {
            bits |= 1 << operations[index].0;
            index += 1;
        }
        Self(bits)
    }

    /// Creates a set from the words of a bitmap. Bits that do not stand for an operation are
    /// ignored.
    #[must_use]
    pub fn from_words(words: &[u32]) -> Self {
        let pairs = words.iter().take(Self::WORDS_MAX).zip(0u32..);
        Self(pairs.fold(0, |bits, (word, index)| bits | u128::from(*word) << (32 * index)))
    }

    /// Returns the words of the bitmap, without zero words at the end.
    pub fn words(self) -> impl Iterator<Item = u32> {
        let count = (u128::BITS - self.0.leading_zeros()).div_ceil(32);
        (0..count).map(move |index| (self.0 >> (32 * index)) as u32)
    }

    /// Returns true if the set has this operation.
    #[must_use]
    pub const fn contains(self, operation: OperationNumber) -> bool {
        operation.0 < u128::BITS && self.0 >> operation.0 & 1 == 1
    }

    /// Returns the operations that are in at least one of the two sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the operations that are in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the set as an integer, as records contain it.
    pub(crate) const fn bits(self) -> u128 {
        self.0
    }

    /// Creates a set from the integer in a record.
    pub(crate) const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_survives_its_bitmap() {
        let set = OperationSet::of(&[
            OperationNumber::CLOSE,
            OperationNumber::EXCHANGE_ID,
            OperationNumber::REMOVEXATTR,
        ]);
        let words: Vec<u32> = set.words().collect();
        assert_eq!(words, [1 << 4, 1 << 10, 1 << 11]);
        assert_eq!(OperationSet::from_words(&words), set);
        assert!(set.contains(OperationNumber::CLOSE) && !set.contains(OperationNumber::OPEN));
        assert!(!set.contains(OperationNumber(10_044)));
        assert_eq!(OperationSet::EMPTY.words().count(), 0);
    }

    #[test]
    fn the_list_of_operations_has_no_gap() {
        let numbers: Vec<u32> = OperationNumber::ALL.iter().map(|(number, _)| number.0).collect();
        assert_eq!(numbers, (3..=75).collect::<Vec<u32>>());
    }
}
