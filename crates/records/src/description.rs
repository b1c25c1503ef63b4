//! What a header in C is written from.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A type that a field can have.
pub trait CType {
    /// The declaration of something called `name`, without the semicolon.
    fn declaration(name: &str) -> String;
}

macro_rules! integers {
    ($($rust:ty = $c:literal)+) => {
        $(impl CType for $rust {
            fn declaration(name: &str) -> String {
                format!(concat!($c, " {}"), name)
            }
        })+
    };
}

integers! {
    u8 = "__u8" u16 = "__u16" u32 = "__u32" u64 = "__u64"
    i16 = "__s16" i32 = "__s32"
    AtomicU32 = "__u32" AtomicU64 = "__u64"
}

impl<T: CType, const N: usize> CType for [T; N] {
    fn declaration(name: &str) -> String {
        T::declaration(&format!("{name}[{N}]"))
    }
}

/// A struct.
#[derive(Debug, Clone)]
pub struct Record {
    /// Its name in C.
    pub name: &'static str,
    /// The lines of its comment.
    pub doc: &'static [&'static str],
    /// Bytes.
    pub size: usize,
    /// Its fields, in order.
    pub fields: Vec<Field>,
}

/// A field of a struct.
#[derive(Debug, Clone)]
pub struct Field {
    /// Its name, the same in both languages.
    pub name: &'static str,
    /// The lines of its comment.
    pub doc: &'static [&'static str],
    /// Type and name, in C.
    pub declaration: String,
    /// Bytes in front of it.
    pub offset: usize,
    /// Its own bytes.
    pub size: usize,
}

/// A number.
#[derive(Debug, Clone)]
pub struct Constant {
    /// Its name in C.
    pub name: &'static str,
    /// The lines of its comment.
    pub doc: &'static [&'static str],
    /// What it is.
    pub value: u64,
    /// What C appends to a number of its type.
    pub suffix: &'static str,
}

/// A header with numbers and structs, and assertions that C has each field where Rust has it.
#[must_use]
pub fn header(constants: &[Constant], records: &[Record]) -> String {
    let mut text = String::from(
        "/* Written by a build script from Rust: change it there. */\n#pragma once\n\n#include <linux/types.h>\n\n",
    );
    for Constant { name, doc, value, suffix } in constants {
        comment(&mut text, "", doc);
        let _ = writeln!(text, "#define {name} {value}{suffix}");
    }
    for record in records {
        text.push('\n');
        declare(&mut text, record);
    }
    text
}

/// What numbers and structs are, without their comments: the same as long as who has written them
/// and who reads them agree.
#[must_use]
pub fn layout(constants: &[Constant], records: &[Record]) -> String {
    let mut text = String::new();
    for Constant { name, value, .. } in constants {
        let _ = write!(text, "{name}={value};");
    }
    for Record { name, size, fields, .. } in records {
        let _ = write!(text, "{name}:{size}");
        for Field { declaration, offset, .. } in fields {
            let _ = write!(text, ",{declaration}@{offset}");
        }
        text.push(';');
    }
    text
}

fn declare(text: &mut String, Record { name, doc, size, fields }: &Record) {
    comment(text, "", doc);
    let _ = writeln!(text, "struct {name} {{");
    for field in fields {
        comment(text, "\t", field.doc);
        let _ = writeln!(text, "\t{};", field.declaration);
    }
    let _ = writeln!(text, "}};\n_Static_assert(sizeof(struct {name}) == {size}, \"size of {name}\");");
    for Field { name: field, offset, .. } in fields {
        let place = format!("__builtin_offsetof(struct {name}, {field})");
        let _ = writeln!(text, "_Static_assert({place} == {offset}, \"{name}.{field}\");");
    }
}

fn comment(text: &mut String, indent: &str, lines: &[&str]) {
    match lines {
        [] => {}
        [line] => {
            let _ = writeln!(text, "{indent}/*{line} */");
        }
        [first, others @ ..] => {
            let _ = writeln!(text, "{indent}/*{first}");
            for line in others {
                let _ = writeln!(text, "{indent} *{line}");
            }
            let _ = writeln!(text, "{indent} */");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::records! {
        /// Two ports.
        plain struct Ports as ports {
            first: u16,
            /// Not below the first.
            ///
            /// There may be one only.
            last: u16,
        }

        line struct Line as line {
            ports: [[Ports; 2]; 4],
            word: [AtomicU64; 4],
        }
    }

    crate::constants! {
        /// Of nobody.
        const NONE: u32 as NOBODY = 0xffff_ffff;
        const FEW: usize = 3;
    }

    #[test]
    fn the_header_has_comments_numbers_fields_and_where_they_are() {
        let expected = "\
/* Written by a build script from Rust: change it there. */
#pragma once

#include <linux/types.h>

/* Of nobody. */
#define NOBODY 4294967295U
#define FEW 3

/* Two ports. */
struct ports {
\t__u16 first;
\t/* Not below the first.
\t *
\t * There may be one only.
\t */
\t__u16 last;
};
_Static_assert(sizeof(struct ports) == 4, \"size of ports\");
_Static_assert(__builtin_offsetof(struct ports, first) == 0, \"ports.first\");
_Static_assert(__builtin_offsetof(struct ports, last) == 2, \"ports.last\");

struct line {
\tstruct ports ports[4][2];
\t__u64 word[4];
};
_Static_assert(sizeof(struct line) == 64, \"size of line\");
_Static_assert(__builtin_offsetof(struct line, ports) == 0, \"line.ports\");
_Static_assert(__builtin_offsetof(struct line, word) == 32, \"line.word\");
";
        assert_eq!(header(&constants(), &records()), expected);
        assert_eq!(
            layout(&constants(), &records()),
            "NOBODY=4294967295;FEW=3;ports:4,__u16 first@0,__u16 last@2;line:64,struct ports ports[4][2]@0,__u64 word[4]@32;"
        );
        assert_eq!((NONE, FEW), (u32::MAX, 3));
        assert_eq!(Ports::default(), Ports { first: 0, last: 0 });
        assert_eq!(Line::default().ports[3][1].last, Line::default().ports[0][0].first);
    }
}
