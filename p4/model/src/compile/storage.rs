//! Storage of headers, structs and fields.

use super::{Compiler, Kind, Scope, UnsizedExpression};
use crate::ast;
use crate::program::{Field, Header, Slot, Stack, Value};
use crate::source::Result;
use std::rc::Rc;

/// Maximum width of a value.
pub(super) const MAX_WIDTH: u32 = 128;
const LARGEST_STACK: usize = 64;

#[derive(Clone, Copy, Debug)]
pub(super) struct Scalar {
    pub(super) slot: Slot,
    pub(super) width: u32,
    pub(super) signed: bool,
    pub(super) boolean: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Storage {
    Scalar(Scalar),
    Header {
        index: usize,
        valid: Slot,
        fields: Rc<Vec<(String, Storage)>>,
    },
    Struct(Rc<Vec<(String, Storage)>>),
    /// Stack of headers with its index in the program and its `last` header.
    Stack {
        elements: Rc<Vec<Storage>>,
        walked: Option<(usize, Rc<Storage>)>,
    },
}

impl Storage {
    pub(super) fn member(&self, name: &str) -> Option<&Storage> {
        match self {
            Storage::Header { fields, .. } | Storage::Struct(fields) => {
                fields.iter().find(|(field, _)| field == name).map(|(_, storage)| storage)
            }
            _ => None,
        }
    }

    pub(super) fn scalar(&self) -> Option<Scalar> {
        match self {
            Storage::Scalar(scalar) => Some(*scalar),
            _ => None,
        }
    }

    /// Returns all headers inside, in order.
    pub(super) fn headers(&self) -> Vec<usize> {
        match self {
            Storage::Scalar(_) => Vec::new(),
            Storage::Header { index, .. } => vec![*index],
            Storage::Struct(fields) => {
                fields.iter().flat_map(|(_, storage)| storage.headers()).collect()
            }
            Storage::Stack { elements, .. } => elements.iter().flat_map(Storage::headers).collect(),
        }
    }

    /// Returns all slots inside, in order, with their widths.
    pub(super) fn slots(&self) -> Vec<(Slot, u32)> {
        match self {
            Storage::Scalar(scalar) => vec![(scalar.slot, scalar.width)],
            Storage::Header { valid, fields, .. } => {
                let fields = fields.iter().flat_map(|(_, storage)| storage.slots());
                [(*valid, 1)].into_iter().chain(fields).collect()
            }
            Storage::Struct(fields) => {
                fields.iter().flat_map(|(_, storage)| storage.slots()).collect()
            }
            Storage::Stack { elements, .. } => elements.iter().flat_map(Storage::slots).collect(),
        }
    }
}

impl Scalar {
    pub(super) fn typed(self) -> UnsizedExpression {
        let value = Value::Slot(self.slot);
        if self.boolean {
            UnsizedExpression::Bool(value)
        } else {
            UnsizedExpression::Bits { value, width: self.width, signed: self.signed }
        }
    }
}

impl Compiler {
    pub(super) fn kind(&mut self, scope: &Scope, kind: &ast::Type) -> Result<Kind> {
        match &kind.kind {
            ast::TypeKind::Bits { width, signed } => {
                let number = self.number(scope, width)?;
                match u32::try_from(number) {
                    Ok(width @ 1..=MAX_WIDTH) => Ok(Kind::Bits { width, signed: *signed }),
                    _ => kind.place.fail(format!(
                        "unsupported width {number}: values have 1 to {MAX_WIDTH} bits"
                    )),
                }
            }
            ast::TypeKind::Integer => kind.place.fail("unsupported type int without a width"),
            ast::TypeKind::Bool => Ok(Kind::Bool),
            ast::TypeKind::Named { name, .. } => {
                if let Some(alias) = self.aliases.get(name).cloned() {
                    return self.kind(scope, &alias);
                }
                match self.records.get(name) {
                    Some(record) => Ok(Kind::Record(record.clone())),
                    None => kind.place.fail(format!("unknown or unsupported type {name}")),
                }
            }
            ast::TypeKind::Stack(element, size) => {
                let element = self.kind(scope, element)?;
                let size = self.number(scope, size)?;
                let size =
                    usize::try_from(size).ok().filter(|size| (1..=LARGEST_STACK).contains(size));
                let size = size.ok_or_else(|| {
                    kind.place.error(format!("a stack has 1 to {LARGEST_STACK} elements"))
                })?;
                Ok(Kind::Stack(Box::new(element), size))
            }
            ast::TypeKind::Void => kind.place.fail("void has no values"),
        }
    }

    pub(super) fn allocate(&mut self, kind: &Kind) -> Result<Storage> {
        Ok(match kind {
            Kind::Bits { width, signed } => Storage::Scalar(Scalar {
                slot: self.slot(),
                width: *width,
                signed: *signed,
                boolean: false,
            }),
            Kind::Bool => Storage::Scalar(Scalar {
                slot: self.slot(),
                width: 1,
                signed: false,
                boolean: true,
            }),
            Kind::Stack(element, size) => {
                let elements =
                    (0..*size).map(|_| self.allocate(element)).collect::<Result<Vec<Storage>>>()?;
                let walked = match self.allocate(element)? {
                    last @ Storage::Header { index, .. } => {
                        let elements = elements.iter().flat_map(Storage::headers).collect();
                        let extracted = self.slot();
                        self.program.stacks.push(Stack { extracted, elements, last: index });
                        Some((self.program.stacks.len() - 1, Rc::new(last)))
                    }
                    _ => None,
                };
                Storage::Stack { elements: Rc::new(elements), walked }
            }
            Kind::Record(record) => {
                let valid = record.header.then(|| self.slot());
                let scope = Scope { names: self.constants.clone(), ..Scope::default() };
                let mut fields = Vec::new();
                for (name, kind) in &record.fields {
                    let field = self.kind(&scope, kind)?;
                    fields.push((name.clone(), self.allocate(&field)?));
                }
                let fields = Rc::new(fields);
                match valid {
                    None => Storage::Struct(fields),
                    Some(valid) => Storage::Header {
                        index: self.header(record, valid, &fields)?,
                        valid,
                        fields,
                    },
                }
            }
        })
    }

    fn header(
        &mut self,
        record: &ast::Record,
        valid: Slot,
        fields: &[(String, Storage)],
    ) -> Result<usize> {
        let mut layout = Vec::new();
        let mut offset = 0_u32;
        for (name, storage) in fields {
            let Some(scalar) = storage.scalar() else {
                return record
                    .place
                    .fail(format!("field {name} of header {} is not a number", record.name));
            };
            if !offset.is_multiple_of(8) && scalar.width > MAX_WIDTH - 8 {
                return record
                    .place
                    .fail(format!("unsupported field {name}: so wide and not on a byte boundary"));
            }
            layout.push(Field { slot: scalar.slot, width: scalar.width, offset });
            offset += scalar.width;
        }
        if !offset.is_multiple_of(8) {
            return record.place.fail(format!(
                "header {} has {offset} bits, which are no whole bytes",
                record.name
            ));
        }
        self.program.headers.push(Header {
            name: record.name.clone(),
            valid,
            fields: layout,
            bytes: offset as usize / 8,
        });
        Ok(self.program.headers.len() - 1)
    }
}
