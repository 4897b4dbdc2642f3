//! Bindings of the C library: types, constants and functions of RFC 2744 and of MIT's extensions.
//! The functions are looked up by name in the loaded library.
//!
//! Invariant: layouts and signatures are those of `gssapi/gssapi.h` and `gssapi/gssapi_ext.h` of
//! MIT krb5 since 1.11, on systems where the structures are not packed (all but macOS).
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
#[cfg(feature = "library")]
use std::mem::ManuallyDrop;

use crate::library::GssUnavailable;

/// The layout of the C `gss_OID_desc`.
#[repr(C)]
pub(crate) struct Oid {
    pub(crate) length: u32,
    pub(crate) elements: *const c_void,
}

// SAFETY: only `Oid::new` creates an `Oid`, from static bytes that no code, including the library,
// ever writes.
unsafe impl Sync for Oid {}

impl Oid {
    const fn new(bytes: &'static [u8]) -> Self {
        Self { length: bytes.len() as u32, elements: bytes.as_ptr().cast() }
    }
}

/// The object identifier of Kerberos V.
pub(crate) static KERBEROS: Oid = Oid::new(crate::KERBEROS_OID);
/// `GSS_C_NT_HOSTBASED_SERVICE`: `service@host`.
pub(crate) static HOST_BASED: Oid =
    Oid::new(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x01, 0x04]);
/// `GSS_KRB5_NT_PRINCIPAL_NAME`: a principal in Kerberos' own notation.
pub(crate) static PRINCIPAL: Oid =
    Oid::new(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02, 0x01]);

/// The layout of the C `gss_OID_set_desc`.
#[repr(C)]
pub(crate) struct OidSet {
    pub(crate) count: usize,
    pub(crate) elements: *const Oid,
}

/// The layout of the C `gss_buffer_desc`.
#[repr(C)]
pub(crate) struct BufferDescriptor {
    pub(crate) length: usize,
    pub(crate) value: *mut c_void,
}

impl BufferDescriptor {
    pub(crate) const EMPTY: Self = Self { length: 0, value: std::ptr::null_mut() };
}

/// The layout of the C `struct gss_channel_bindings_struct`.
#[repr(C)]
pub(crate) struct ChannelBindings {
    pub(crate) initiator_type: u32,
    pub(crate) initiator: BufferDescriptor,
    pub(crate) acceptor_type: u32,
    pub(crate) acceptor: BufferDescriptor,
    pub(crate) application: BufferDescriptor,
}

/// The layout of the C `gss_key_value_element_desc`.
#[repr(C)]
pub(crate) struct StoreEntry {
    pub(crate) key: *const c_char,
    pub(crate) value: *const c_char,
}

/// The layout of the C `gss_key_value_set_desc`.
#[repr(C)]
pub(crate) struct Store {
    pub(crate) count: u32,
    pub(crate) entries: *const StoreEntry,
}

/// `gss_name_t`, `gss_cred_id_t` and `gss_ctx_id_t`, whose contents only the library knows.
pub(crate) type Handle = *mut c_void;
type Buffer = *mut BufferDescriptor;

/// The C constant `GSS_C_INITIATE`.
pub(crate) const USAGE_INITIATE: c_int = 1;
/// The C constant `GSS_C_ACCEPT`.
pub(crate) const USAGE_ACCEPT: c_int = 2;
/// The C constant `GSS_C_GSS_CODE`.
pub(crate) const STATUS_MAJOR: c_int = 1;
/// The C constant `GSS_C_MECH_CODE`.
pub(crate) const STATUS_MINOR: c_int = 2;
/// The C constant `GSS_C_INDEFINITE`.
pub(crate) const INDEFINITE: u32 = u32::MAX;

/// The flags of a context (RFC 2744 5.19).
pub(crate) mod flag {
    /// Each side proves its identity to the other.
    pub(crate) const MUTUAL: u32 = 2;
    /// Repeated protected messages are detected.
    pub(crate) const REPLAY: u32 = 4;
    /// Reordered protected messages are detected.
    pub(crate) const SEQUENCE: u32 = 8;
    /// Messages can be encrypted.
    pub(crate) const PRIVACY: u32 = 16;
    /// Messages can be signed.
    pub(crate) const INTEGRITY: u32 = 32;
    /// The initiator is anonymous.
    pub(crate) const ANONYMOUS: u32 = 64;
    /// Both sides had the same channel bindings (MIT krb5 1.19).
    pub(crate) const BOUND: u32 = 2048;
}

macro_rules! functions {
    ($($(#[$what:meta])* $name:ident($($argument:ty),* $(,)?);)*) => {
        /// The functions of the library. Each returns the major status.
        pub(crate) struct Functions {
            $($(#[$what])* pub(crate) $name: unsafe extern "C" fn($($argument),*) -> u32,)*
        }

        impl Functions {
            /// Refuses: this build loads no library.
            #[cfg(not(feature = "library"))]
            pub(crate) fn load(_file: &'static str) -> Result<Self, GssUnavailable> {
                Err(GssUnavailable::NotBuilt)
            }

            /// Loads a library and looks up all functions.
            #[cfg(feature = "library")]
            pub(crate) fn load(file: &'static str) -> Result<Self, GssUnavailable> {
                // SAFETY: loading runs only code of the system's Kerberos library, to which the
                // administrator entrusts the system's keys.
                let library = unsafe { libloading::Library::new(file) }
                    .map_err(|source| GssUnavailable::Missing { file, source: source.into() })?;
                // The library is never closed, so that pointers into it stay valid.
                let library = ManuallyDrop::new(library);
                $(
                    let function = stringify!($name);
                    // SAFETY: the signature is the library's (this module's invariant).
                    let $name = *unsafe { library.get(function) }
                        .map_err(|source| {
                            GssUnavailable::TooOld { file, function, source: source.into() }
                        })?;
                )*
                Ok(Self { $($name),* })
            }
        }
    };
}

functions! {
    gss_import_name(*mut u32, Buffer, *const Oid, *mut Handle);
    gss_display_name(*mut u32, Handle, Buffer, *mut *const Oid);
    gss_localname(*mut u32, Handle, *const Oid, Buffer);
    gss_release_name(*mut u32, *mut Handle);
    /// MIT's extension of 1.11: acquires credentials from a given store, not from the environment.
    gss_acquire_cred_from(
        *mut u32, Handle, u32, *const OidSet, c_int, *const Store, *mut Handle,
        *mut *mut OidSet, *mut u32,
    );
    gss_release_cred(*mut u32, *mut Handle);
    gss_init_sec_context(
        *mut u32, Handle, *mut Handle, Handle, *const Oid, u32, u32, *const ChannelBindings,
        Buffer, *mut *const Oid, Buffer, *mut u32, *mut u32,
    );
    gss_accept_sec_context(
        *mut u32, *mut Handle, Handle, Buffer, *const ChannelBindings, *mut Handle,
        *mut *const Oid, Buffer, *mut u32, *mut u32, *mut Handle,
    );
    gss_inquire_context(
        *mut u32, Handle, *mut Handle, *mut Handle, *mut u32, *mut *const Oid, *mut u32,
        *mut c_int, *mut c_int,
    );
    gss_delete_sec_context(*mut u32, *mut Handle, Buffer);
    gss_wrap(*mut u32, Handle, c_int, u32, Buffer, *mut c_int, Buffer);
    gss_unwrap(*mut u32, Handle, Buffer, Buffer, *mut c_int, *mut u32);
    gss_get_mic(*mut u32, Handle, u32, Buffer, Buffer);
    gss_verify_mic(*mut u32, Handle, Buffer, Buffer, *mut u32);
    gss_display_status(*mut u32, u32, c_int, *const Oid, *mut u32, Buffer);
    gss_release_buffer(*mut u32, Buffer);
}
