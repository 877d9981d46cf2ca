//! Schema of the control plane: what the chip's compiler writes to `bfrt.json`.

use crate::Model;
use crate::program::{
    Action, Array, Digest, Hash, HashInput, MatchKind, Program, Quantity, RegisterParameter, Table,
};
use flowgauge_bfruntime::codec::PRIORITY;
use serde_json::{Value, json};

const MATCH_PRIORITY: u32 = 65537;
const COUNTER_BYTES: u32 = 65553;
const COUNTER_PACKETS: u32 = 65554;
const COUNTER_INDEX: u32 = 65556;
const REGISTER_INDEX: u32 = 65557;
const INGRESS_PORT: u32 = 65575;
const DEFAULT_FIELD: u32 = 65576;
const HASH_VALUE: u32 = 65583;
const HASH_START_BIT: u32 = 65584;
const HASH_LENGTH: u32 = 65585;
const HASH_ORDER: u32 = 65586;
/// Number of ports: four pipes of 72 each.
const PORT_METADATA_SIZE: u32 = 288;

/// Upper byte of an id, by kind of object.
pub(crate) mod prefixes {
    pub(crate) const ACTION: u32 = 0x01;
    pub(crate) const TABLE: u32 = 0x02;
    pub(crate) const COUNTER: u32 = 0x83;
    pub(crate) const REGISTER: u32 = 0x8b;
    pub(crate) const REGISTER_PARAMETER: u32 = 0x8d;
    pub(crate) const DIGEST: u32 = 0x8e;
    pub(crate) const PORT_METADATA: u32 = 0x90;
    pub(crate) const HASH_CONFIGURE: u32 = 0x95;
    pub(crate) const HASH_COMPUTE: u32 = 0x96;
}

/// Returns the id that the chip's compiler assigns to a name: the kind of object above 24 bits of
/// Jenkins' one-at-a-time hash.
///
/// A compiler uses the next free id if two names collide, so clients look ids up in a schema
/// instead of computing them.
#[must_use]
pub fn identifier(prefix: u32, name: &str) -> u32 {
    let mixed = name.bytes().fold(0_u32, |hash, byte| {
        let hash = hash.wrapping_add(u32::from(byte));
        let hash = hash.wrapping_add(hash << 10);
        hash ^ hash >> 6
    });
    let mixed = mixed.wrapping_add(mixed << 3);
    let mixed = mixed ^ mixed >> 11;
    let mixed = mixed.wrapping_add(mixed << 15);
    prefix << 24 | mixed & 0x00ff_ffff
}

impl Model {
    /// Returns the schema in the form of the compiler's `bfrt.json`, version 1.0.0.
    ///
    /// It has match tables, registers, register parameters, counters, hashes, port metadata and
    /// digests. The configuration of hashes is included because clients look it up, but cannot be
    /// read or written. Features that the model lacks are omitted: hash algorithms, snapshots and
    /// debug counters.
    #[must_use]
    pub fn schema(&self) -> Value {
        let program = &*self.program;
        let mut tables: Vec<Value> =
            program.tables.iter().map(|table| match_table(program, table)).collect();
        let hashes = || program.hashes.iter().filter(|hash| !hash.input.is_empty());
        tables.extend(hashes().map(configured_hash));
        tables.extend(hashes().map(computed_hash));
        let (registers, counters): (Vec<&Array>, Vec<&Array>) =
            program.arrays.iter().partition(|array| array.counts.is_empty());
        tables.extend(registers.into_iter().map(register));
        tables.extend(counters.into_iter().map(counter));
        tables.extend(program.parameters.iter().map(|one| parameter(program, one)));
        let name = format!("{}.$PORT_METADATA", program.parser);
        let port = key_field(INGRESS_PORT, &program.ingress_port, "Exact", true, bytes(9));
        let data = [singleton(DEFAULT_FIELD, "$DEFAULT_FIELD", false, false, bytes(64))];
        let id = identifier(prefixes::PORT_METADATA, &name);
        tables.push(annotated(table(
            id,
            &name,
            "PortMetadata",
            PORT_METADATA_SIZE as usize,
            &[port],
            &data,
        )));
        let filters: Vec<Value> = program.digests.iter().map(learn_filter).collect();
        json!({"schema_version": "1.0.0", "tables": tables, "learn_filters": filters})
    }
}

fn learn_filter(digest: &Digest) -> Value {
    let fields = (1_u32..).zip(&digest.fields).map(
        |(id, (name, width))| json!({"id": id, "name": name, "repeated": false, "annotations": [], "type": bytes(*width)}),
    );
    let fields: Vec<Value> = fields.collect();
    let id = identifier(prefixes::DIGEST, &digest.name);
    json!({"name": &*digest.name, "id": id, "annotations": [], "fields": fields})
}

fn computed_hash(hash: &Hash) -> Value {
    let key = (1..).zip(hash.fields());
    let key: Vec<Value> =
        key.map(|(id, (name, width))| key_field(id, name, "Exact", false, bytes(width))).collect();
    let data = [singleton(HASH_VALUE, "hash_value", false, true, bytes(hash.width))];
    let id = identifier(prefixes::HASH_COMPUTE, &hash.name);
    let mut table = table(id, &format!("{}.compute", hash.name), "DynHashCompute", 1, &key, &data);
    table["depends_on"] = json!([identifier(prefixes::HASH_CONFIGURE, &hash.name)]);
    table["read_only"] = json!(true);
    annotated(table)
}

fn register(array: &Array) -> Value {
    let id = identifier(prefixes::REGISTER, &array.name);
    let index = index_field(REGISTER_INDEX, "$REGISTER_INDEX");
    let data = (1..).zip(&array.fields).map(|(id, (name, width))| {
        let mut data = singleton(id, name, true, false, bytes(*width));
        data["singleton"]["annotations"] =
            json!([{"name": "$bfrt_field_class", "value": "register_data"}]);
        data
    });
    let data: Vec<Value> = data.collect();
    synced(table(id, &array.name, "Register", array.size, &[index], &data))
}

fn counter(array: &Array) -> Value {
    let id = identifier(prefixes::COUNTER, &array.name);
    let index = index_field(COUNTER_INDEX, "$COUNTER_INDEX");
    let count = |quantity: &Quantity| {
        let id = match quantity {
            Quantity::Bytes => COUNTER_BYTES,
            Quantity::Packets => COUNTER_PACKETS,
        };
        let kind = json!({"type": "uint64", "default_value": 0});
        singleton(id, quantity.name(), false, false, kind)
    };
    let data: Vec<Value> = array.counts.iter().map(count).collect();
    annotated(synced(table(id, &array.name, "Counter", array.size, &[index], &data)))
}

fn parameter(program: &Program, parameter: &RegisterParameter) -> Value {
    let RegisterParameter { name, width, signed, initial, register, .. } = parameter;
    // Sign-extend, as for a signed type.
    let unused = i64::BITS - width;
    let initial = *initial as i64;
    let initial = if *signed { initial << unused >> unused } else { initial };
    let kind = json!({"type": "bytes", "width": width, "default_value": initial});
    let data = [singleton(1, "value", true, false, kind)];
    let id = identifier(prefixes::REGISTER_PARAMETER, name);
    let mut table = table(id, name, "RegisterParam", 1, &[], &data);
    let register =
        register.map(|index| identifier(prefixes::REGISTER, &program.arrays[index].name));
    table["depends_on"] = json!(register.as_slice());
    annotated(table)
}

/// Returns the configuration of a hash: for each input, in order, the bits that the hash takes of
/// it.
fn configured_hash(hash: &Hash) -> Value {
    let (mut data, mut constants) = (Vec::new(), 0);
    for (id, input) in (1..).zip(&hash.input) {
        let number = |id, name, mandatory, default: Option<u32>| {
            let mut kind = json!({"type": "uint64"});
            default.into_iter().for_each(|default| kind["default_value"] = json!(default));
            singleton(id, name, mandatory, false, kind)
        };
        let (name, width, annotations) = match input {
            HashInput::Field(name, width) => (name.clone(), *width, json!([])),
            HashInput::Constant(value, width) => {
                constants += 1;
                let name = format!("constant{}_{width}_{value}", constants - 1);
                (name, *width, json!([{"name": "bfrt_p4_constant"}]))
            }
        };
        let container = [
            number(HASH_START_BIT, "start_bit", false, Some(0)),
            number(HASH_LENGTH, "length", false, Some(width)),
            number(HASH_ORDER, "order", true, None),
        ];
        let field = json!({"id": id, "name": name, "repeated": true, "annotations": annotations, "container": container});
        data.push(json!({"mandatory": false, "read_only": false, "singleton": field}));
    }
    let id = identifier(prefixes::HASH_CONFIGURE, &hash.name);
    annotated(table(id, &format!("{}.configure", hash.name), "DynHashConfigure", 1, &[], &data))
}

fn bytes(width: u32) -> Value {
    json!({"type": "bytes", "width": width})
}

fn key_field(id: u32, name: &str, match_type: &str, mandatory: bool, kind: Value) -> Value {
    json!({
        "id": id, "name": name, "repeated": false, "annotations": [], "mandatory": mandatory, "match_type": match_type, "type": kind
    })
}

fn index_field(id: u32, name: &str) -> Value {
    key_field(id, name, "Exact", true, json!({"type": "uint32"}))
}

fn singleton(id: u32, name: &str, mandatory: bool, read_only: bool, kind: Value) -> Value {
    let singleton =
        json!({"id": id, "name": name, "repeated": false, "annotations": [], "type": kind});
    json!({"mandatory": mandatory, "read_only": read_only, "singleton": singleton})
}

fn table(id: u32, name: &str, kind: &str, size: usize, key: &[Value], data: &[Value]) -> Value {
    json!({
        "name": name, "id": id, "table_type": kind, "size": size, "depends_on": [], "key": key, "data": data,
        "supported_operations": [], "attributes": []
    })
}

fn annotated(mut table: Value) -> Value {
    table["annotations"] = json!([]);
    table
}

fn synced(mut table: Value) -> Value {
    table["supported_operations"] = json!(["Sync"]);
    table
}

fn match_table(program: &Program, declared: &Table) -> Value {
    let kind = |kind| match kind {
        MatchKind::Exact => "Exact",
        MatchKind::Lpm => "LPM",
        MatchKind::Ternary => "Ternary",
    };
    let key = (1..).zip(&declared.key);
    let mut key: Vec<Value> = key
        .map(|(id, field)| key_field(id, &field.name, kind(field.kind), false, bytes(field.width)))
        .collect();
    if declared.is_ternary() {
        let kind = json!({"type": "uint32"});
        key.push(key_field(MATCH_PRIORITY, PRIORITY, "Exact", false, kind));
    }
    let id = identifier(prefixes::TABLE, &declared.name);
    let mut table = table(id, &declared.name, "MatchAction_Direct", declared.size, &key, &[]);
    table["annotations"] = declared.annotations.iter().map(|name| json!({"name": name})).collect();
    let of_entries = declared.entry_actions().len();
    let actions = declared.actions.iter().enumerate();
    table["action_specs"] = actions
        .map(|(at, action)| action_spec(&program.actions[*action], at >= of_entries))
        .collect();
    table["has_const_default_action"] = json!(declared.constant_default);
    table["attributes"] = if declared.constant_entries {
        json!(["EntryScope", "ConstTable"])
    } else {
        json!(["EntryScope"])
    };
    table
}

fn action_spec(action: &Action, is_default_only: bool) -> Value {
    let data = (1_u32..).zip(&action.parameters).map(|(id, parameter)| {
        json!({
            "id": id, "name": &*parameter.name, "repeated": false, "mandatory": true, "read_only": false, "annotations": [],
            "type": bytes(parameter.width)
        })
    });
    let data: Vec<Value> = data.collect();
    let (scope, annotations) = match is_default_only {
        true => ("DefaultOnly", json!([{"name": "@defaultonly"}])),
        false => ("TableAndDefault", json!([])),
    };
    let id = identifier(prefixes::ACTION, &action.name);
    json!({"id": id, "name": &*action.name, "action_scope": scope, "annotations": annotations, "data": data})
}
