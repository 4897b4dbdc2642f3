//! Methods that set the fields of structs of options.
//!
//! Such a struct is `non_exhaustive`, so that a later version can add a field. Other crates start
//! from a constructor and set what they need.

/// Gives a struct one method for each named field. The method sets the field and returns the
/// struct.
macro_rules! setters {
    ($owner:ident: $($field:ident: $kind:ty),* $(,)?) => {
        impl $owner {
            $(
                #[doc = concat!("Sets the field [`", stringify!($field), "`](Self#structfield.",
                    stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, $field: $kind) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

pub(crate) use setters;
