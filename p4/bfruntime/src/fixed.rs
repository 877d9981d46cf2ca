//! The tables that every switch has, of those the ones used here: `$PORT` and `$PORT_STR_INFO`.

/// Their schema, as a server without one of its own reports it.
pub const SCHEMA: &str = include_str!("fixed.json");

/// Table of ports: key [`DEV_PORT`].
pub const PORT: &str = "$PORT";
/// Table from the name on the front panel to the device's number.
pub const PORT_NAMES: &str = "$PORT_STR_INFO";
/// A port's number within the device.
pub const DEV_PORT: &str = "$DEV_PORT";
/// A port's name on the front panel, such as `1/0`.
pub const PORT_NAME: &str = "$PORT_NAME";
/// A port's speed.
pub const SPEED: &str = "$SPEED";
/// A port's forward error correction.
pub const FEC: &str = "$FEC";
/// Whether a port is to be up.
pub const PORT_ENABLE: &str = "$PORT_ENABLE";
/// Whether a port is up.
pub const PORT_UP: &str = "$PORT_UP";
