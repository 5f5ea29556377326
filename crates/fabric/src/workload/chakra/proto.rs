//! Traces as messages of Protocol Buffers: first the metadata of the file, then a message for each node. Before
//! each is its length.

use super::node::RawNode;

/// The value of a field.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Value<'a> {
    Number(u64),
    Fixed32([u8; 4]),
    Fixed64([u8; 8]),
    Bytes(&'a [u8]),
}

/// Bytes of a message that are not read yet.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

/// Field numbers of `Node`.
mod field {
    pub(super) const ID: u32 = 1;
    pub(super) const NAME: u32 = 2;
    pub(super) const TYPE: u32 = 3;
    pub(super) const CTRL_DEPS: u32 = 4;
    pub(super) const DATA_DEPS: u32 = 5;
    pub(super) const DURATION_MICROS: u32 = 7;
    pub(super) const INPUTS: u32 = 8;
    pub(super) const ATTR: u32 = 10;
}

/// The nodes of a trace, of which there are `nodes_max` at most.
pub(super) fn read(file: &[u8], nodes_max: usize) -> Result<Vec<RawNode>, String> {
    let mut bytes = Bytes(file);
    let mut nodes = Vec::new();
    let mut is_metadata = true;
    while !bytes.0.is_empty() {
        let at = file.len() - bytes.0.len();
        let refused = |error: String| format!("message at byte {at}: {error}");
        let message = bytes.delimited().map_err(refused)?;
        if std::mem::take(&mut is_metadata) {
            // Its version says nothing: generators write "0.0.4" and "1.0.0" for the same schema.
            Bytes(message).each(|_, _| Ok(())).map_err(refused)?;
            continue;
        }
        if nodes.len() == nodes_max {
            return Err(refused(
                "too many nodes for a simulation; use fewer ranks".into(),
            ));
        }
        nodes.push(node(message).map_err(refused)?);
    }
    if is_metadata {
        return Err("the file is empty: must be a Chakra trace".into());
    }
    Ok(nodes)
}

fn node(message: &[u8]) -> Result<RawNode, String> {
    let mut node = RawNode::default();
    Bytes(message).each(|number, value| {
        match (number, value) {
            (field::ID, Value::Number(id)) => node.id = id,
            (field::NAME, Value::Bytes(name)) => node.name = text(name),
            (field::TYPE, Value::Number(kind)) => node.kind = kind,
            (field::CTRL_DEPS | field::DATA_DEPS, value) => numbers(value, &mut node.deps)?,
            (field::DURATION_MICROS, Value::Number(micros)) => node.duration_micros = micros,
            (field::INPUTS, Value::Bytes(inputs)) => {
                Bytes(inputs).each(|number, value| {
                    if let (1, Value::Bytes(values)) = (number, value) {
                        node.inputs = text(values);
                    }
                    Ok(())
                })?;
            }
            (field::ATTR, Value::Bytes(attr)) => attribute(attr, &mut node)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(node)
}

/// Field numbers of the values of an `AttributeProto`.
fn attribute(message: &[u8], node: &mut RawNode) -> Result<(), String> {
    let (mut name, mut number, mut word, mut flags) = (String::new(), None, None, None);
    Bytes(message).each(|at, value| {
        match (at, value) {
            (1, Value::Bytes(bytes)) => name = text(bytes),
            (7 | 9, Value::Number(signed)) => number = Some(i128::from(signed as i64)),
            (11 | 13 | 27, Value::Number(unsigned)) => number = Some(unsigned.into()),
            (15 | 17, Value::Number(zigzag)) => {
                number = Some(i128::from((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64)));
            }
            (19, Value::Fixed32(bytes)) => number = Some(u32::from_le_bytes(bytes).into()),
            (21, Value::Fixed64(bytes)) => number = Some(u64::from_le_bytes(bytes).into()),
            (23, Value::Fixed32(bytes)) => number = Some(i32::from_le_bytes(bytes).into()),
            (25, Value::Fixed64(bytes)) => number = Some(i64::from_le_bytes(bytes).into()),
            (28, Value::Bytes(list)) => {
                let mut all = Vec::new();
                Bytes(list).each(|_, value| numbers(value, &mut all))?;
                flags = Some(all.iter().all(|flag| *flag != 0));
            }
            (29, Value::Bytes(bytes)) => word = Some(text(bytes)),
            _ => {}
        }
        Ok(())
    })?;
    let count = |number: Option<i128>| match number.map(u64::try_from) {
        None => Ok(None),
        Some(Ok(count)) => Ok(Some(count)),
        Some(Err(_)) => {
            let number = number.unwrap_or_default();
            Err(format!(
                "invalid {name} {number}: must be 0 to {}",
                u64::MAX
            ))
        }
    };
    match name.as_str() {
        "comm_type" => node.comm_type = count(number)?,
        "comm_size" => node.comm_size = count(number)?,
        "comm_src" => node.comm_src = count(number)?,
        "comm_dst" => node.comm_dst = count(number)?,
        "comm_tag" => node.comm_tag = count(number)?,
        "num_ops" => node.num_ops = count(number)?,
        "pg_name" => node.group = word.or_else(|| number.map(|number| number.to_string())),
        "involved_dim" => node.is_everywhere = flags,
        _ => {}
    }
    Ok(())
}

/// One number, or several in one field.
fn numbers(value: Value<'_>, into: &mut Vec<u64>) -> Result<(), String> {
    match value {
        Value::Number(number) => into.push(number),
        Value::Bytes(packed) => {
            let mut bytes = Bytes(packed);
            while !bytes.0.is_empty() {
                into.push(bytes.number()?);
            }
        }
        Value::Fixed32(_) | Value::Fixed64(_) => return Err("a list has no integers".into()),
    }
    Ok(())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl<'a> Bytes<'a> {
    /// Calls `take` with the number and value of every field.
    fn each(
        mut self,
        mut take: impl FnMut(u32, Value<'a>) -> Result<(), String>,
    ) -> Result<(), String> {
        while !self.0.is_empty() {
            let key = self.number()?;
            let value = match key & 7 {
                0 => Value::Number(self.number()?),
                1 => Value::Fixed64(self.array()?),
                2 => Value::Bytes(self.delimited()?),
                5 => Value::Fixed32(self.array()?),
                kind => return Err(format!("unknown wire type {kind}: must be 0, 1, 2 or 5")),
            };
            let number = u32::try_from(key >> 3).map_err(|_| "a field number is too large")?;
            take(number, value)?;
        }
        Ok(())
    }

    /// A number of 7 bits in each byte, lowest first.
    fn number(&mut self) -> Result<u64, String> {
        let mut number = 0;
        for (at, byte) in self.0.iter().enumerate().take(10) {
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.0 = &self.0[at + 1..];
                return Ok(number);
            }
        }
        Err("a number does not end".into())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (array, rest) = self.0.split_first_chunk().ok_or("it is cut short")?;
        self.0 = rest;
        Ok(*array)
    }

    /// Bytes after their number.
    fn delimited(&mut self) -> Result<&'a [u8], String> {
        let length = self.number()?;
        let has = self.0.len();
        let there = usize::try_from(length).ok().filter(|length| *length <= has);
        let length = there.ok_or_else(|| {
            format!("it is cut short: {length} bytes are announced, and {has} are there")
        })?;
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        Ok(bytes)
    }
}
