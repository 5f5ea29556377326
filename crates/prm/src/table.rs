//! Field tables as they are read: a sentence, a name, a place, an access class.

/// Makes a public [`Field`](crate::Field) of each entry, whose documentation is also what
/// [`Field::doc`](crate::Field::doc) says; with `table NAME;` in front, also the list of all.
///
/// ```text
/// /// What it means.
/// NAME = "name", (byte offset, least significant bit, width), access;
/// /// With a path and names of values.
/// NAME = "name", (0x0, 0, 2), Rw, at "group.name", values &[(0, "NO"), (1, "YES")];
/// ```
macro_rules! define_fields {
    (table $table:ident; $($(#[doc = $doc:literal])+ $id:ident = $name:literal, $place:tt,
     $access:ident $(, at $path:literal)? $(, values $values:expr)?;)+) => {
        define_fields! { $($(#[doc = $doc])+ $id = $name, $place, $access $(, at $path)?
            $(, values $values)?;)+ }

        const $table: &[&crate::Field] = &[$(&$id),+];
    };
    ($($(#[doc = $doc:literal])+ $id:ident = $name:literal, $place:tt,
     $access:ident $(, at $path:literal)? $(, values $values:expr)?;)+) => {
        $(
            $(#[doc = $doc])+
            pub const $id: crate::Field = crate::Field::new(
                $name,
                $place,
                crate::Access::$access,
                concat!($($doc),+).trim_ascii(),
            )
            $(.at($path))?
            $(.with_values($values))?;
        )+
    };
}

/// An array of fields of eight bits that lie byte after byte from a byte offset on, as texts do:
/// `NAME[0]` at `group.NAME[0]` and so on.
macro_rules! bytes {
    ($name:literal, $path:literal, $offset:literal, $doc:literal; $($index:literal)+) => {
        [$(crate::Field::new(
            concat!($name, "[", $index, "]"),
            ($offset + $index / 4 * 4, 24 - $index % 4 * 8, 8),
            crate::Access::Ro,
            $doc,
        )
        .at(concat!($path, "[", $index, "]"))),+]
    };
}
