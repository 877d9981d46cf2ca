//! Schema of the control plane: what the chip's compiler writes to `bfrt.json`.

use crate::Model;
use crate::control_plane::{ActionInfo, FieldInfo, TableInfo};
use crate::program::{CounterKind, Hash, HashInput, MatchKind};
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
        let mut tables: Vec<Value> = self.tables().iter().map(match_table).collect();
        let hashes = || self.program.hashes.iter().filter(|hash| !hash.input.is_empty());
        tables.extend(hashes().map(configured_hash));
        tables.extend(hashes().map(|hash| {
            let key = (1..).zip(hash.fields());
            let key: Vec<Value> = key
                .map(|(id, (name, width))| key_field(id, name, "Exact", false, bytes(width)))
                .collect();
            let name = format!("{}.compute", hash.name);
            let data = [singleton(HASH_VALUE, "hash_value", false, true, bytes(hash.width))];
            let mut table = table(
                identifier(prefixes::HASH_COMPUTE, &hash.name),
                &name,
                "DynHashCompute",
                1,
                &key,
                &data,
            );
            table["depends_on"] = json!([identifier(prefixes::HASH_CONFIGURE, &hash.name)]);
            table["read_only"] = json!(true);
            annotated(table)
        }));
        tables.extend(self.registers().iter().map(|register| {
            let index = key_field(
                REGISTER_INDEX,
                "$REGISTER_INDEX",
                "Exact",
                true,
                json!({"type": "uint32"}),
            );
            let data = register.fields.iter().map(|field| {
                let mut data = singleton(field.id, &field.name, true, false, bytes(field.width));
                data["singleton"]["annotations"] =
                    json!([{"name": "$bfrt_field_class", "value": "register_data"}]);
                data
            });
            let data: Vec<Value> = data.collect();
            synced(table(register.id, &register.name, "Register", register.size, &[index], &data))
        }));
        tables.extend(self.counters().iter().map(|counter| {
            let index = key_field(
                COUNTER_INDEX,
                "$COUNTER_INDEX",
                "Exact",
                true,
                json!({"type": "uint32"}),
            );
            let count = |id, name| {
                singleton(id, name, false, false, json!({"type": "uint64", "default_value": 0}))
            };
            let mut data = Vec::new();
            if counter.kind != CounterKind::Packets {
                data.push(count(COUNTER_BYTES, "$COUNTER_SPEC_BYTES"));
            }
            if counter.kind != CounterKind::Bytes {
                data.push(count(COUNTER_PACKETS, "$COUNTER_SPEC_PKTS"));
            }
            annotated(synced(table(
                counter.id,
                &counter.name,
                "Counter",
                counter.size,
                &[index],
                &data,
            )))
        }));
        tables.extend(self.parameters().iter().map(|parameter| {
            let initial =
                parameter.initial.iter().fold(0_i64, |value, byte| value << 8 | i64::from(*byte));
            // Sign-extend, as for a signed type.
            let unused = i64::BITS - parameter.width;
            let initial = if parameter.signed { initial << unused >> unused } else { initial };
            let kind = json!({"type": "bytes", "width": parameter.width, "default_value": initial});
            let data = [singleton(1, "value", true, false, kind)];
            let mut table = table(parameter.id, &parameter.name, "RegisterParam", 1, &[], &data);
            table["depends_on"] = json!(parameter.register.as_slice());
            annotated(table)
        }));
        let name = format!("{}.$PORT_METADATA", self.program.parser);
        let port = key_field(INGRESS_PORT, &self.program.ingress_port, "Exact", true, bytes(9));
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

        json!({"schema_version": "1.0.0", "tables": tables, "learn_filters": self.learn_filters()})
    }

    fn learn_filters(&self) -> Vec<Value> {
        let filter = |digest: &crate::program::Digest| {
            let fields = (1_u32..).zip(&digest.fields).map(
                |(id, (name, width))| json!({"id": id, "name": name, "repeated": false, "annotations": [], "type": bytes(*width)}),
            );
            let fields: Vec<Value> = fields.collect();
            let id = identifier(prefixes::DIGEST, &digest.name);
            json!({"name": &*digest.name, "id": id, "annotations": [], "fields": fields})
        };
        self.program.digests.iter().map(filter).collect()
    }
}

/// Returns the configuration of a hash: which bits of which inputs it takes, in order; as many as
/// there are inputs.
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

fn match_table(info: &TableInfo) -> Value {
    let kind = |kind| match kind {
        MatchKind::Exact => "Exact",
        MatchKind::Lpm => "LPM",
        MatchKind::Ternary => "Ternary",
    };
    let mut key: Vec<Value> = info
        .key
        .iter()
        .map(|field| key_field(field.id, &field.name, kind(field.kind), false, bytes(field.width)))
        .collect();
    if info.key.iter().any(|field| field.kind == MatchKind::Ternary) {
        key.push(key_field(
            MATCH_PRIORITY,
            "$MATCH_PRIORITY",
            "Exact",
            false,
            json!({"type": "uint32"}),
        ));
    }
    let mut table = table(info.id, &info.name, "MatchAction_Direct", info.size, &key, &[]);
    table["annotations"] = info.annotations.iter().map(|name| json!({"name": name})).collect();
    table["action_specs"] = info.actions.iter().map(action_spec).collect();
    table["has_const_default_action"] = json!(info.constant_default);
    table["attributes"] = if info.constant_entries {
        json!(["EntryScope", "ConstTable"])
    } else {
        json!(["EntryScope"])
    };
    table
}

fn action_spec(action: &ActionInfo) -> Value {
    let data = |field: &FieldInfo| {
        json!({
            "id": field.id, "name": field.name, "repeated": false, "mandatory": true, "read_only": false, "annotations": [],
            "type": bytes(field.width)
        })
    };
    let data: Vec<Value> = action.data.iter().map(data).collect();
    let (scope, annotations) = match action.default_only {
        true => ("DefaultOnly", json!([{"name": "@defaultonly"}])),
        false => ("TableAndDefault", json!([])),
    };
    json!({"id": action.id, "name": action.name, "action_scope": scope, "annotations": annotations, "data": data})
}
