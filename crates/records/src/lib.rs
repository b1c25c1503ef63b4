//! Records and numbers that Rust and programs in C share, each described once.
//!
//! ```
//! tombolo_records::records! {
//!     /// IPv4 addresses from `first` to `last`.
//!     plain pub struct Range as range {
//!         /// In the processor's byte order, as the other one.
//!         first: u32,
//!         last: u32,
//!     }
//! }
//!
//! tombolo_records::constants! {
//!     /// Ranges of a service.
//!     pub const RANGES: usize as RANGES_MAX = 8;
//! }
//!
//! let header = tombolo_records::header(&constants(), &records());
//! assert!(header.contains("#define RANGES_MAX 8"));
//! assert!(header.contains("struct range {"));
//! # assert!(Range { first: 1, last: 2 } != Range::default() && RANGES == 8);
//! ```
//!
//! [`records!`] declares the structs and a function `records` that describes them, [`constants!`]
//! the numbers and a function `constants`. A build script gives both to [`header`], whose text has
//! the same structs, numbers and comments in C, and assertions that the C compiler places each
//! field where Rust has it. [`clang::compile`] compiles what includes that header.

pub mod clang;
mod description;
mod plain;

pub use description::{CType, Constant, Field, Record, header, layout};
pub use plain::{Plain, from_bytes, from_words, to_words};

/// Declares structs that C has, too. Before each stands what it is:
///
/// * `plain`: integers, plain structs and arrays of them, which are copied;
/// * `atomic`: atomics, which are shared;
/// * `line`: atomics that fill a cache line.
///
/// Fields are as visible as their struct. `field: [u8; 4] as __u32` is a field that C has by another
/// type. Behind its comment a field may have a `#[cfg(...)]`.
#[macro_export]
macro_rules! records {
    ($(
        $(#[doc = $doc:literal])*
        $kind:ident $vis:vis struct $name:ident as $c:ident {
            $($(#[doc = $field_doc:literal])* $(#[cfg($cfg:meta)])? $field:ident: $type:ty $(as $c_type:ident)?,)+
        }
    )+) => {
        $(
            $crate::record! {
                $kind $(#[doc = $doc])* #[doc = concat!("\n\nIn C: `struct ", stringify!($c), "`.")]
                $vis $name { $($(#[doc = $field_doc])* $(#[cfg($cfg)])? $field: $type,)+ }
            }

            const _: () = assert!(
                cfg!(loom) || size_of::<$name>() == $crate::sum(&[$($(#[cfg($cfg)])? size_of::<$type>()),+]),
                concat!(stringify!($name), " has padding: name it as a field")
            );

            impl $crate::CType for $name {
                fn declaration(name: &str) -> String {
                    format!("struct {} {name}", stringify!($c))
                }
            }
        )+

        /// The structs above, for the header of the programs in C.
        #[must_use]
        #[allow(dead_code, unreachable_pub, reason = "build scripts ask for it, which read this file as their own")]
        pub fn records() -> Vec<$crate::Record> {
            vec![$($crate::Record {
                name: stringify!($c),
                doc: &[$($doc),*],
                size: size_of::<$name>(),
                fields: Vec::from([$($(#[cfg($cfg)])? $crate::Field {
                    name: stringify!($field),
                    doc: &[$($field_doc),*],
                    declaration: $crate::declaration!($field: $type $(as $c_type)?),
                    offset: std::mem::offset_of!($name, $field),
                    size: size_of::<$type>(),
                }),+]),
            }),+]
        }
    };
}

/// The bytes of a record's fields together.
#[doc(hidden)]
#[must_use]
pub const fn sum(sizes: &[usize]) -> usize {
    match sizes {
        [] => 0,
        [first, others @ ..] => *first + sum(others),
    }
}

/// A field of [`records!`] in C.
#[doc(hidden)]
#[macro_export]
macro_rules! declaration {
    ($field:ident: $type:ty) => {
        <$type as $crate::CType>::declaration(stringify!($field))
    };
    ($field:ident: $type:ty as $c_type:ident) => {
        concat!(stringify!($c_type), " ", stringify!($field)).to_owned()
    };
}

/// One struct of [`records!`], which calls this.
#[doc(hidden)]
#[macro_export]
macro_rules! record {
    (plain $(#[$meta:meta])* $vis:vis $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(C)]
        $vis struct $name {
            $($(#[$field_meta])* $vis $field: $type,)+
        }

        // SAFETY: repr(C); its fields are plain, which the function below asks the compiler; and
        // there is no padding, which `records!` asserts.
        unsafe impl $crate::Plain for $name {}

        const _: () = {
            const fn is_plain<T: $crate::Plain>() {}
            $(is_plain::<$type>();)+
        };

        impl Default for $name {
            fn default() -> Self {
                $crate::Plain::zeroed()
            }
        }
    };
    (atomic $(#[$meta:meta])* $vis:vis $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        #[repr(C)]
        $vis struct $name {
            $($(#[$field_meta])* $vis $field: $type,)+
        }
    };
    (line $(#[$meta:meta])* $vis:vis $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        #[repr(C, align(64))]
        $vis struct $name {
            $($(#[$field_meta])* $vis $field: $type,)+
        }

        const _: () = assert!(cfg!(loom) || size_of::<$name>() == 64, "it fills a cache line");
    };
}

/// Declares numbers that C has, too; `as` says by which name if not by the same.
#[macro_export]
macro_rules! constants {
    ($(
        $(#[doc = $doc:literal])*
        $vis:vis const $name:ident: $type:ident $(as $c:ident)? = $value:expr;
    )+) => {
        $(
            $(#[doc = $doc])*
            #[allow(dead_code, reason = "some are for C alone")]
            $vis const $name: $type = $value;
        )+

        /// The numbers above, for the header of the programs in C.
        #[must_use]
        #[allow(dead_code, unreachable_pub, reason = "build scripts ask for it, which read this file as their own")]
        pub fn constants() -> Vec<$crate::Constant> {
            vec![$($crate::Constant {
                name: [$(stringify!($c),)? stringify!($name)][0],
                doc: &[$($doc),*],
                value: $name as u64,
                suffix: match stringify!($type).as_bytes() {
                    b"u64" => "ULL",
                    b"u32" => "U",
                    _ => "",
                },
            }),+]
        }
    };
}
