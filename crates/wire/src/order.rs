//! The byte order of a session.
//!
//! Invariant: the order is determined once, by the magic number of the client's first message
//! (draft
//! 6.1.1.5). All conversions go through [`Order`], so that no field can be read in the host's order
//! by accident.

/// The byte order of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// The least significant byte first.
    Little,
    /// The most significant byte first.
    Big,
}

impl ByteOrder {
    /// The byte order of this machine. A client should choose this order, because its own
    /// conversions then cost nothing.
    pub const NATIVE: Self = if cfg!(target_endian = "big") { Self::Big } else { Self::Little };

    /// Returns the byte order in which the first four bytes encode the magic number `magic`. `None`
    /// if neither byte order does.
    #[must_use]
    #[inline]
    pub fn detect(bytes: &[u8], magic: u32) -> Option<Self> {
        let first = *bytes.first_chunk::<4>()?;
        if first == magic.to_le_bytes() {
            Some(Self::Little)
        } else if first == magic.to_be_bytes() {
            Some(Self::Big)
        } else {
            None
        }
    }
}

/// A byte order that is known at compile time, so that conversions in the native order cost
/// nothing.
pub(crate) trait Order: Copy {
    /// This byte order as a [`ByteOrder`] value.
    const ORDER: ByteOrder;

    #[inline(always)]
    fn u16(bytes: [u8; 2]) -> u16 {
        match Self::ORDER {
            ByteOrder::Little => u16::from_le_bytes(bytes),
            ByteOrder::Big => u16::from_be_bytes(bytes),
        }
    }

    #[inline(always)]
    fn u32(bytes: [u8; 4]) -> u32 {
        match Self::ORDER {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        }
    }

    #[inline(always)]
    fn u64(bytes: [u8; 8]) -> u64 {
        match Self::ORDER {
            ByteOrder::Little => u64::from_le_bytes(bytes),
            ByteOrder::Big => u64::from_be_bytes(bytes),
        }
    }

    #[inline(always)]
    fn u16_bytes(value: u16) -> [u8; 2] {
        match Self::ORDER {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }

    #[inline(always)]
    fn u32_bytes(value: u32) -> [u8; 4] {
        match Self::ORDER {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }

    #[inline(always)]
    fn u64_bytes(value: u64) -> [u8; 8] {
        match Self::ORDER {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }
}

/// The least significant byte first.
#[derive(Clone, Copy)]
pub(crate) struct Little;

impl Order for Little {
    const ORDER: ByteOrder = ByteOrder::Little;
}

/// The most significant byte first.
#[derive(Clone, Copy)]
pub(crate) struct Big;

impl Order for Big {
    const ORDER: ByteOrder = ByteOrder::Big;
}

/// Evaluates an expression in which `$order` is the [`Order`] type for a [`ByteOrder`] value.
macro_rules! with_order {
    ($value:expr, $order:ident => $body:expr) => {
        match $value {
            $crate::order::ByteOrder::Little => {
                type $order = $crate::order::Little;
                $body
            }
            $crate::order::ByteOrder::Big => {
                type $order = $crate::order::Big;
                $body
            }
        }
    };
}
pub(crate) use with_order;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_magic_shows_the_order() {
        assert_eq!(ByteOrder::detect(b"DAFS", 0x4441_4653), Some(ByteOrder::Big));
        assert_eq!(ByteOrder::detect(b"SFAD..", 0x4441_4653), Some(ByteOrder::Little));
        assert_eq!(ByteOrder::detect(b"DAF", 0x4441_4653), None);
        assert_eq!(ByteOrder::detect(b"DSAF", 0x4441_4653), None);
    }
}
