//! The kernel's `format` file of an event: where each field lies in a record, and what it is.
//!
//! Nothing is known in advance: offsets and sizes are those of the kernel that runs.

/// Longest text that is read of one file; kernels stay far below.
const FORMAT_SIZE_MAX: usize = 256 << 10;
/// Fields of one event that are kept; kernels have at most some 130.
const FIELDS_MAX: usize = 512;
/// No field ends behind this: a record lies in a page.
const RECORD_SIZE_MAX: usize = 1 << 20;

/// An event and its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EventFormat {
    /// `sched_switch`.
    pub(super) name: String,
    /// What a record of it begins with.
    pub(super) id: u16,
    /// The fields that every event has, such as `common_pid`.
    pub(super) common: Vec<Field>,
    /// Its own, in the order of the file.
    pub(super) fields: Vec<Field>,
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// `next_pid`.
    pub(super) name: String,
    /// Where it begins in the record.
    pub(super) offset: usize,
    /// Its size; 0 is up to the record's end.
    pub(super) size: usize,
    /// How to read it; `None` if nobody knows.
    pub(super) kind: Option<FieldKind>,
}

/// How the bytes of a field are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    /// Characters up to a NUL or the field's end.
    FixedString,
    /// Characters up to a NUL or the record's end.
    StringToEnd,
    /// A u32: offset from the record's begin, and length << 16, of characters.
    DataLocString,
    /// The same, of bytes.
    DataLocBytes,
    /// As `DataLocString`, the offset counted from the end of this u32.
    RelLocString,
    /// As `DataLocBytes`, the offset counted from the end of this u32.
    RelLocBytes,
    /// The address of a constant text, see `printk_formats`.
    StringPointer,
    /// A `void *`: an address in the kernel, maybe of its code.
    Address,
    /// Any other pointer, such as a socket's: which object it is.
    Object,
    Bool,
    Inode,
    /// major << 20 | minor.
    Device,
    Pid,
    Unsigned,
    Signed,
    /// Words of the kernel, one behind the other.
    WordArray,
}

impl EventFormat {
    /// Reads a `format` file. `None` without a name, an id and the common fields.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.get(..text.len().min(FORMAT_SIZE_MAX))?;
        let mut format = EventFormat::default();
        let mut id = None;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("name:") {
                name.trim().clone_into(&mut format.name);
            } else if let Some(number) = line.strip_prefix("ID:") {
                id = number.trim().parse().ok();
            } else if line.starts_with("print fmt:") || format.fields.len() > FIELDS_MAX {
                break;
            } else if let Some(field) = parse_field(line.trim()) {
                let is_common = field.name.starts_with("common_");
                if is_common { &mut format.common } else { &mut format.fields }.push(field);
            }
        }
        format.id = id?;
        (!format.name.is_empty() && format.common_field("common_type").is_some()).then_some(format)
    }

    /// One of the event's own fields.
    pub(super) fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// One of the fields of all events.
    pub(super) fn common_field(&self, name: &str) -> Option<&Field> {
        self.common.iter().find(|field| field.name == name)
    }

    /// Records that are shorter are not of this event.
    pub(super) fn size_min(&self) -> usize {
        self.common.iter().chain(&self.fields).map(|field| field.offset + field.size).max().unwrap_or(0)
    }
}

/// `field:pid_t prev_pid;  offset:24;  size:4;  signed:1;`
fn parse_field(line: &str) -> Option<Field> {
    let mut parts = line.strip_prefix("field:")?.split(';');
    let declaration = parts.next()?.trim();
    let mut number = |what: &str| -> Option<usize> { parts.next()?.trim().strip_prefix(what)?.parse().ok() };
    let (offset, size, signed) = (number("offset:")?, number("size:")?, number("signed:")?);
    if offset.checked_add(size)? > RECORD_SIZE_MAX {
        return None;
    }
    let (type_name, name) = declaration.rsplit_once([' ', '*'])?;
    let (name, array) = match name.split_once('[') {
        None => (name, None),
        Some((name, rest)) => (name, Some(rest)),
    };
    let is_identifier = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    // A type that ends with `*` lost it to the name.
    let is_pointer = declaration[..declaration.len() - name.len()].contains('*') && array.is_none();
    let kind = kind(type_name.trim(), is_pointer, array.is_some(), size, signed == 1);
    is_identifier.then(|| Field { name: name.to_owned(), offset, size, kind })
}

fn kind(type_name: &str, is_pointer: bool, is_array: bool, size: usize, signed: bool) -> Option<FieldKind> {
    use FieldKind::{
        Address, Bool, DataLocBytes, DataLocString, Device, FixedString, Inode, Object, Pid, RelLocBytes,
        RelLocString, Signed, StringPointer, StringToEnd, Unsigned, WordArray,
    };
    let is_word = matches!(size, 4 | 8);
    let is_bytes =
        |t: &str| t.starts_with("u8[") || t.starts_with("__u8[") || t.starts_with("unsigned char[");
    if let Some(of) = type_name.strip_prefix("__data_loc ").filter(|_| size == 4) {
        return Some(if is_bytes(of) { DataLocBytes } else { DataLocString });
    }
    if let Some(of) = type_name.strip_prefix("__rel_loc ").filter(|_| size == 4) {
        return Some(if is_bytes(of) { RelLocBytes } else { RelLocString });
    }
    if is_array {
        return match type_name.trim_start_matches("const ") {
            "char" if size == 0 => Some(StringToEnd),
            "char" => Some(FixedString),
            "unsigned long" if matches!(size, 24 | 48) => Some(WordArray),
            _ => None,
        };
    }
    if is_pointer {
        let is_text = type_name.trim_start_matches("const ").starts_with("char");
        let other = if type_name.starts_with("void") { Address } else { Object };
        return is_word.then_some(if is_text { StringPointer } else { other });
    }
    match type_name {
        "bool" => Some(Bool),
        "char" if size == 0 => Some(StringToEnd),
        "ino_t" if is_word => Some(Inode),
        "dev_t" if is_word => Some(Device),
        "pid_t" if size == 4 => Some(Pid),
        _ if matches!(size, 1 | 2 | 4 | 8) => Some(if signed { Signed } else { Unsigned }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(line: &str) -> Option<FieldKind> {
        let field = parse_field(line).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(field.name, "x", "{line}");
        field.kind
    }

    #[test]
    fn kinds_by_declaration() {
        use FieldKind::*;
        for (declaration, size, signed, expected) in [
            ("char x[16]", 16, 0, Some(FixedString)),
            ("const char x[16]", 16, 0, Some(FixedString)),
            ("char x[]", 0, 0, Some(StringToEnd)),
            ("char x", 0, 0, Some(StringToEnd)),
            ("__data_loc char[] x", 4, 1, Some(DataLocString)),
            ("__data_loc u8[] x", 4, 1, Some(DataLocBytes)),
            ("__data_loc unsigned char[] x", 4, 1, Some(DataLocBytes)),
            ("__rel_loc char[] x", 4, 1, Some(RelLocString)),
            ("__rel_loc u8[] x", 4, 1, Some(RelLocBytes)),
            ("unsigned long x[6]", 48, 0, Some(WordArray)),
            ("unsigned int x[6]", 24, 0, None),
            ("const char * x", 8, 0, Some(StringPointer)),
            ("char *x", 8, 0, Some(StringPointer)),
            ("void * x", 8, 0, Some(Address)),
            ("const void *x", 8, 0, Some(Object)),
            ("struct page *x", 4, 0, Some(Object)),
            ("bool x", 1, 0, Some(Bool)),
            ("ino_t x", 8, 0, Some(Inode)),
            ("dev_t x", 4, 0, Some(Device)),
            ("pid_t x", 4, 1, Some(Pid)),
            ("unsigned long x", 8, 0, Some(Unsigned)),
            ("short x", 2, 1, Some(Signed)),
            ("struct timespec x", 16, 0, None),
        ] {
            let line = format!("field:{declaration};\toffset:8;\tsize:{size};\tsigned:{signed};");
            assert_eq!(kind_of(&line), expected, "{declaration}");
        }
    }

    #[test]
    fn a_file_of_a_kernel() {
        let format =
            EventFormat::parse(include_str!("../../tests/formats/6.18-x86_64/sched_switch")).unwrap();
        assert_eq!((format.name.as_str(), format.id, format.fields.len()), ("sched_switch", 372, 7));
        assert_eq!(format.common_field("common_pid").unwrap().offset, 4);
        let next = format.field("next_pid").unwrap();
        assert_eq!((next.offset, next.size, next.kind), (56, 4, Some(FieldKind::Pid)));
        assert_eq!(format.size_min(), 64);
    }

    #[test]
    fn what_is_no_format_file() {
        let good = "name: a\nID: 3\nformat:\n\tfield:u16 common_type;\toffset:0;\tsize:2;\tsigned:0;\n";
        assert!(EventFormat::parse(good).is_some());
        for (from, to) in [("name: a", ""), ("ID: 3", "ID: x"), ("ID: 3", "ID: 70000"), ("common_type", "y")]
        {
            assert_eq!(EventFormat::parse(&good.replace(from, to)), None, "{to}");
        }
        for line in
            ["", "field:", "field:int x", "field:int x;offset:1;size:2", "field:x;offset:0;size:4;signed:0;"]
        {
            assert_eq!(parse_field(line), None, "{line}");
        }
        let huge = "field:int x;\toffset:18446744073709551615;\tsize:4;\tsigned:0;";
        assert_eq!(parse_field(huge), None);
    }
}
