//! Compilation of declarations to a program: types become widths, names become slots and indices,
//! and sub-controls are inlined.
//!
//! `control`, `parser`, `expression`, `externs` and `storage` compile one kind of construct each;
//! `limits` rejects what Tofino 1 cannot do, and `unused` removes what no statement reaches.

mod control;
mod expression;
mod externs;
mod limits;
mod parser;
mod storage;
mod unused;

use crate::ast;
use crate::preprocess::{Text, from_text, preprocess};
use crate::program::{Intrinsic, Program, Slot, Step, Target, Value};
use crate::source::{Place, Result};
use hashbrown::{HashMap, HashSet};
pub(crate) use parser::packed;
use std::path::Path;
use std::rc::Rc;
use storage::Storage;

const ARCHITECTURE: &str = include_str!("../tna.p4");
const PIPELINE_BLOCKS: usize = 6;

/// Expression before its width is known.
#[derive(Clone, Debug)]
enum UnsizedExpression {
    /// Number without a width, known at compile time.
    Number(i128),
    Bits {
        value: Value,
        width: u32,
        signed: bool,
    },
    Bool(Value),
}

#[derive(Clone, Debug)]
enum Kind {
    Bits { width: u32, signed: bool },
    Bool,
    Record(Rc<ast::Record>),
    Stack(Box<Kind>, usize),
}

/// Meaning of a name.
#[derive(Clone)]
enum Binding {
    Storage(Storage),
    Constant(UnsizedExpression),
    Packet,
    Action(usize),
    Table(usize),
    Register(usize),
    RegisterAction(usize),
    RegisterParameter(usize),
    Counter(usize),
    Hash(usize),
    Polynomial(Rc<externs::Polynomial>),
    Digest(usize),
    Resubmit,
    /// Counter of a parser.
    ParserCounter(Slot),
    Block {
        block: Rc<ast::Block>,
        path: String,
        applied: bool,
    },
}

/// Names visible in a block, and the block's path in names of the control plane.
#[derive(Clone, Default)]
struct Scope {
    names: HashMap<String, Binding>,
    path: String,
    /// Kind of block: tables are only allowed in controls, externs only in controls and actions.
    within: Within,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Within {
    #[default]
    Control,
    Action,
    /// Action of this register.
    RegisterAction(usize),
    Parser,
    Deparser,
}

#[derive(Default)]
struct Compiler {
    aliases: HashMap<String, ast::Type>,
    records: HashMap<String, Rc<ast::Record>>,
    blocks: HashMap<String, Rc<ast::Block>>,
    instances: Vec<ast::Instance>,
    constants: HashMap<String, Binding>,
    /// Intrinsic metadata by type.
    intrinsic: HashMap<String, Storage>,
    pipe: String,
    /// Results of register actions, with their types.
    results: Vec<Option<storage::Scalar>>,
    /// Index width of each array.
    index_widths: Vec<u32>,
    /// Steps up to the current position.
    steps: Vec<Step>,
    /// Resources used on the path to the current position, and in each action.
    work: limits::Work,
    work_of_action: HashMap<usize, limits::Work>,
    /// Data of the current action.
    action_data: Vec<Slot>,
    /// Number of conditions around the current position.
    conditions: usize,
    /// Counter of the parser, if the program has one.
    parser_counter: Option<Slot>,
    /// Stacks whose next element the current parser state has extracted.
    walked: HashSet<usize>,
    program: Program,
}

/// Compiles a program from a file and its includes, which `read` reads.
pub(crate) fn compile(
    read: &dyn Fn(&Path) -> Text,
    path: &Path,
    defines: &[(String, String)],
) -> Result<Program> {
    let tokens = preprocess(read, path, defines)?;
    let mut compiler = Compiler::default();
    let mut types = HashSet::new();
    let built_in = preprocess(&from_text("tna.p4", ARCHITECTURE), Path::new("tna.p4"), &[])?;
    compiler.declare(crate::syntax::declarations(&built_in, &mut types)?)?;
    compiler.declare(crate::syntax::declarations(&tokens, &mut types)?)?;
    let end = tokens
        .last()
        .map_or(Place { file: "empty source".into(), line: 1 }, |token| token.place.clone());
    compiler.pipeline(&end)?;
    compiler.program.slots = compiler.program.slots.max(1);
    Ok(compiler.program)
}

impl Compiler {
    fn slot(&mut self) -> Slot {
        let slot = self.program.slots;
        self.program.slots += 1;
        slot as Slot
    }

    fn declare(&mut self, declarations: Vec<ast::Declaration>) -> Result<()> {
        for declaration in declarations {
            match declaration {
                ast::Declaration::Constant(constant) => {
                    let value = self.constant(&Scope::default(), &constant)?;
                    self.constants.insert(constant.name, Binding::Constant(value));
                }
                ast::Declaration::Alias(name, kind) => {
                    self.aliases.insert(name, kind);
                }
                ast::Declaration::Enumeration(name, kind, members) => {
                    self.aliases.insert(name, kind);
                    for member in members {
                        let value = self.constant(&Scope::default(), &member)?;
                        self.constants.insert(member.name, Binding::Constant(value));
                    }
                }
                ast::Declaration::Record(record) => {
                    self.records.insert(record.name.clone(), Rc::new(record));
                }
                ast::Declaration::Block(block) => {
                    self.blocks.insert(block.name.clone(), Rc::new(block));
                }
                ast::Declaration::Instance(instance) => self.instances.push(instance),
            }
        }
        Ok(())
    }

    fn constant(&mut self, scope: &Scope, constant: &ast::Variable) -> Result<UnsizedExpression> {
        let Some(value) = &constant.value else {
            return constant.place.fail(format!("constant {} has no value", constant.name));
        };
        let typed = self.expression(scope, value)?;
        if let ast::TypeKind::Integer = constant.kind.kind {
            return self.number(scope, value).map(UnsizedExpression::Number);
        }
        match self.kind(scope, &constant.kind)? {
            Kind::Bits { width, signed } => Ok(UnsizedExpression::Bits {
                value: self.coerce(typed, width, signed, &constant.place)?,
                width,
                signed,
            }),
            Kind::Bool => Ok(UnsizedExpression::Bool(self.boolean(typed, &constant.place)?)),
            _ => constant.place.fail("unsupported constant that is neither a number nor a bool"),
        }
    }

    /// Binds the six blocks of the only pipeline of `Switch(…) main`.
    fn pipeline(&mut self, end: &Place) -> Result<()> {
        let named = |kind: &ast::Type, wanted: &str| matches!(&kind.kind, ast::TypeKind::Named { name, .. } if name == wanted);
        let switches: Vec<&ast::Instance> =
            self.instances.iter().filter(|instance| named(&instance.kind, "Switch")).collect();
        let [switch] = switches.as_slice() else {
            return end.fail("expected one `Switch(pipeline) main;`");
        };
        let [ast::Expression { kind: ast::ExpressionKind::Name(pipe), .. }] =
            switch.arguments.as_slice()
        else {
            return switch.place.fail("unsupported switch with other than one named pipeline: pipes all run the same program");
        };
        let Some(pipeline) = self
            .instances
            .iter()
            .find(|instance| instance.name == *pipe && named(&instance.kind, "Pipeline"))
        else {
            return switch.place.fail(format!("no `Pipeline(…) {pipe};`"));
        };
        let place = pipeline.place.clone();
        self.pipe = pipe.clone();
        let mut blocks = Vec::new();
        for argument in &pipeline.arguments {
            let block = match &argument.kind {
                ast::ExpressionKind::Call { callee, .. } => match &callee.kind {
                    ast::ExpressionKind::Name(name) => self.blocks.get(name).cloned(),
                    _ => None,
                },
                _ => None,
            };
            blocks.push(block.ok_or_else(|| {
                argument.place.error("expected a parser or control such as `Ingress()`")
            })?);
        }
        let [parser, ingress, deparser, _, egress, egress_deparser] = blocks.as_slice() else {
            return place
                .fail(format!("Pipeline takes {PIPELINE_BLOCKS} blocks, {} given", blocks.len()));
        };
        for block in [egress, egress_deparser] {
            if !block.body.is_empty() || !block.locals.is_empty() {
                return block
                    .place
                    .fail(format!("unsupported egress: control {} must be empty", block.name));
            }
        }
        self.intrinsic_metadata(&place)?;
        self.ingress(parser, ingress, deparser)
    }

    fn intrinsic_metadata(&mut self, place: &Place) -> Result<()> {
        let names = [
            "ingress_intrinsic_metadata_t",
            "ingress_intrinsic_metadata_from_parser_t",
            "ingress_intrinsic_metadata_for_deparser_t",
            "ingress_intrinsic_metadata_for_tm_t",
        ];
        for name in names {
            if let Some(record) = self.records.get(name).cloned() {
                let storage = self.allocate(&Kind::Record(record))?;
                self.intrinsic.insert(name.to_owned(), storage);
            }
        }
        let slot = |record: &str, field: &str| {
            let scalar = self
                .intrinsic
                .get(record)
                .and_then(|storage| storage.member(field))
                .and_then(Storage::scalar);
            scalar
                .map(|scalar| scalar.slot)
                .ok_or_else(|| place.error(format!("{record} has no field {field}")))
        };
        self.program.intrinsic = Intrinsic {
            global_timestamp: slot("ingress_intrinsic_metadata_from_parser_t", "global_tstamp")?,
            parser_error: slot("ingress_intrinsic_metadata_from_parser_t", "parser_err")?,
            egress_port: slot("ingress_intrinsic_metadata_for_tm_t", "ucast_egress_port")?,
            drop: slot("ingress_intrinsic_metadata_for_deparser_t", "drop_ctl")?,
        };
        Ok(())
    }

    fn ingress(
        &mut self,
        parser: &Rc<ast::Block>,
        ingress: &Rc<ast::Block>,
        deparser: &Rc<ast::Block>,
    ) -> Result<()> {
        let mut own: HashMap<String, Storage> = HashMap::new();
        let scope = self.top_scope(parser, Within::Parser, &mut own)?;
        self.program.parser = format!("{}.{}", self.pipe, parser.name);
        if let Some(parameter) = parser.parameters.iter().find(
            |parameter| matches!(&parameter.kind.kind, ast::TypeKind::Named { name, .. } if name == "ingress_intrinsic_metadata_t"),
        ) {
            self.program.ingress_port = format!("{}.ingress_port", parameter.name);
        }
        let start = self.parser(parser, scope, Target::Accept)?;
        let Target::State(start) = start else {
            return parser.place.fail("parser without a start state");
        };
        self.program.start = start;
        self.refuse_loops(&parser.place)?;

        let scope = self.top_scope(ingress, Within::Control, &mut own)?;
        self.program.ingress = self.control(ingress, scope)?;
        unused::remove_from_ingress(&mut self.program);
        self.check_totals(&ingress.place)?;
        let scope = self.top_scope(deparser, Within::Deparser, &mut own)?;
        self.program.deparser = self.control(deparser, scope)?;
        unused::remove_from_deparser(&mut self.program);
        Ok(())
    }

    /// Binds the parameters of a top-level block: packets, intrinsic metadata, and the program's
    /// headers and metadata, which all blocks of the ingress share.
    fn top_scope(
        &mut self,
        block: &Rc<ast::Block>,
        within: Within,
        own: &mut HashMap<String, Storage>,
    ) -> Result<Scope> {
        let mut scope = Scope { names: self.constants.clone(), path: block.name.clone(), within };
        for parameter in &block.parameters {
            let name = match &parameter.kind.kind {
                ast::TypeKind::Named { name, .. } => name.clone(),
                _ => return parameter.place.fail("unsupported parameter of a top block"),
            };
            let binding = if name == "packet_in" || name == "packet_out" {
                Binding::Packet
            } else if let Some(storage) = self.intrinsic.get(&name) {
                Binding::Storage(storage.clone())
            } else if let Some(storage) = own.get(&name) {
                Binding::Storage(storage.clone())
            } else {
                let kind = self.kind(&scope, &parameter.kind)?;
                let storage = self.allocate(&kind)?;
                own.insert(name, storage.clone());
                Binding::Storage(storage)
            };
            scope.names.insert(parameter.name.clone(), binding);
        }
        Ok(scope)
    }

    /// Returns the full name of a declaration in a scope.
    fn full_name(&self, scope: &Scope, name: &str) -> std::sync::Arc<str> {
        format!("{}.{}.{name}", self.pipe, scope.path).into()
    }
}
