//! Registers and fields.

/// A register: its name, its id on the wire, its size and its fields.
#[derive(Debug)]
pub struct Register {
    name: &'static str,
    id: u16,
    size: usize,
    max_size: usize,
    fields: &'static [&'static Field],
    doc: &'static str,
}

impl Register {
    /// Creates a register from its table. Checked at compile time when used in a `const`: all
    /// fields are inside the register and no two of them share a bit.
    #[must_use]
    pub const fn new(
        name: &'static str,
        id: u16,
        size: usize,
        fields: &'static [&'static Field],
    ) -> Self {
        let mut i = 0;
        while i < fields.len() {
            let field = fields[i];
            assert!(
                field.offset.is_multiple_of(4) && field.offset + 4 <= size,
                "outside"
            );
            let mut j = 0;
            while j < i {
                let other = fields[j];
                assert!(
                    field.offset != other.offset || field.mask() & other.mask() == 0,
                    "two fields share a bit"
                );
                j += 1;
            }
            i += 1;
        }
        Self {
            name,
            id,
            size,
            max_size: size,
            fields,
            doc: "",
        }
    }

    /// Adds a sentence about the register.
    #[must_use]
    pub const fn about(mut self, doc: &'static str) -> Self {
        self.doc = doc;
        self
    }

    /// Allows tools to send and request up to `max_size` bytes. The bytes beyond the table are not
    /// made of fields, or are unused.
    #[must_use]
    pub const fn up_to(mut self, max_size: usize) -> Self {
        assert!(
            max_size >= self.size && max_size.is_multiple_of(4),
            "the table must fit"
        );
        self.max_size = max_size;
        self
    }

    /// Returns the name that operators use, `ROCE_ACCL`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the register id, `0x402c`.
    #[must_use]
    pub const fn id(&self) -> u16 {
        self.id
    }

    /// Returns the size in bytes, as tools know it.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Returns the largest size of its data in bytes; the same as [`size`](Self::size) unless the
    /// register has no fixed length.
    #[must_use]
    pub const fn max_size(&self) -> usize {
        self.max_size
    }

    /// Returns the purpose of the register, in one sentence.
    #[must_use]
    pub const fn doc(&self) -> &'static str {
        self.doc
    }

    /// Returns all fields, in the order in which tools print them.
    #[must_use]
    pub const fn fields(&self) -> &'static [&'static Field] {
        self.fields
    }

    /// Returns the field with a name: its short name (`range_size_0`), its full path
    /// (`adp_retx_profile.timeout_range[0].range_size`) or a part of the path that follows a dot.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields
            .iter()
            .copied()
            .find(|field| field.answers_to(name))
    }
}

/// Bits of a register with a name and a meaning.
#[derive(Debug, PartialEq, Eq)]
pub struct Field {
    name: &'static str,
    path: &'static str,
    offset: usize,
    lsb: u8,
    width: u8,
    access: Access,
    values: &'static [(u32, &'static str)],
    doc: &'static str,
}

impl Field {
    /// Creates a field of `width` bits whose least significant bit is bit `lsb` of the dword at
    /// byte `offset`. Checked at compile time when used in a `const`.
    #[must_use]
    pub const fn new(
        name: &'static str,
        (offset, lsb, width): (usize, u8, u8),
        access: Access,
        doc: &'static str,
    ) -> Self {
        assert!(
            width >= 1 && lsb + width <= 32,
            "the field leaves its dword"
        );
        Self {
            name,
            path: name,
            offset,
            lsb,
            width,
            access,
            values: &[],
            doc,
        }
    }

    /// Sets a full path that differs from the short name.
    #[must_use]
    pub const fn at(mut self, path: &'static str) -> Self {
        self.path = path;
        self
    }

    /// Sets names for the field's values.
    #[must_use]
    pub const fn with_values(mut self, values: &'static [(u32, &'static str)]) -> Self {
        self.values = values;
        self
    }

    /// Returns the short name, unique in its register: `range_size_0`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the full path: `adp_retx_profile.timeout_range[0].range_size`.
    #[must_use]
    pub const fn path(&self) -> &'static str {
        self.path
    }

    /// Returns the byte offset of the dword that holds the field.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the number of the least significant bit inside the dword.
    #[must_use]
    pub const fn lsb(&self) -> u8 {
        self.lsb
    }

    /// Returns the width in bits.
    #[must_use]
    pub const fn width(&self) -> u8 {
        self.width
    }

    /// Returns who may write the field.
    #[must_use]
    pub const fn access(&self) -> Access {
        self.access
    }

    /// Returns the named values. If there are any, values without a name are reserved.
    #[must_use]
    pub const fn values(&self) -> &'static [(u32, &'static str)] {
        self.values
    }

    /// Returns the meaning of the field, in one sentence.
    #[must_use]
    pub const fn doc(&self) -> &'static str {
        self.doc
    }

    /// Returns the largest value that the field can hold.
    #[must_use]
    pub const fn max(&self) -> u32 {
        u32::MAX >> (32 - self.width)
    }

    /// Returns the field's bits in the dword.
    #[must_use]
    pub const fn mask(&self) -> u32 {
        self.max() << self.lsb
    }

    /// Returns the name of a value, if it has one.
    #[must_use]
    pub fn value_name(&self, value: u32) -> Option<&'static str> {
        self.values
            .iter()
            .find(|(known, _)| *known == value)
            .map(|(_, name)| *name)
    }

    /// Returns the value with this name, if there is one.
    #[must_use]
    pub fn value_named(&self, name: &str) -> Option<u32> {
        self.values
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(value, _)| *value)
    }

    fn answers_to(&self, name: &str) -> bool {
        let is_tail = || {
            self.path
                .strip_suffix(name)
                .is_some_and(|head| head.ends_with('.'))
        };
        // Behind an index the tail alone would mean a field of every entry.
        let is_unique = name.contains('[') || !self.path.contains('[');
        self.name == name || self.path == name || is_unique && is_tail()
    }
}

/// Who may write a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Selects what a query or a set refers to; used by both.
    Index,
    /// Set by the device only.
    Ro,
    /// Read and written.
    Rw,
    /// Write-only; reads as zero.
    Wo,
}

impl Access {
    /// Returns the word that tools print: `INDEX`, `RO`, `RW`, `WO`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Index => "INDEX",
            Self::Ro => "RO",
            Self::Rw => "RW",
            Self::Wo => "WO",
        }
    }
}
