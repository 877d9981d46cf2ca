//! Fixed tables of every switch that are used here: `$PORT`, `$PORT_STAT` and `$PORT_STR_INFO`.

/// Schema of the fixed tables, for a server that has none of its own.
pub const SCHEMA: &str = include_str!("fixed.json");

/// Table of ports, with key [`DEV_PORT`].
pub const PORT: &str = "$PORT";
/// Table that maps front-panel names to device port numbers.
pub const PORT_NAMES: &str = "$PORT_STR_INFO";
/// Read-only table of the MAC counters of ports, with key [`DEV_PORT`]. The driver returns cached
/// values unless a request reads the hardware (`from_hw`).
pub const PORT_COUNTERS: &str = "$PORT_STAT";
/// Number of a port within the device.
pub const DEV_PORT: &str = "$DEV_PORT";
/// Name of a port on the front panel, such as `1/0`.
pub const PORT_NAME: &str = "$PORT_NAME";
/// Speed of a port.
pub const SPEED: &str = "$SPEED";
/// Forward error correction of a port.
pub const FEC: &str = "$FEC";
/// Whether a port is enabled.
pub const PORT_ENABLE: &str = "$PORT_ENABLE";
/// Whether a port is up.
pub const PORT_UP: &str = "$PORT_UP";

/// Frames received without an error.
pub const RECEIVED_OK: &str = "$FramesReceivedOK";
/// Frames received, valid or not.
pub const RECEIVED: &str = "$FramesReceivedAll";
/// Frames received with a wrong checksum.
pub const WRONG_CHECKSUM: &str = "$FramesReceivedwithFCSError";
/// Frames received with an error of any kind.
pub const WITH_ERROR: &str = "$FrameswithanyError";
/// PAUSE frames received, which the MAC does not pass on.
pub const PAUSE: &str = "$FramesReceivedoftypePAUSE";
/// Priority-based PAUSE frames received.
pub const PRIORITY_PAUSE: &str = "$PriorityPauseFrames";
/// Frames dropped because the port's buffer was full.
pub const NO_ROOM: &str = "$FramesDroppedBufferFull";
/// Frames sent without an error.
pub const SENT_OK: &str = "$FramesTransmittedOK";
/// Frames sent.
pub const SENT: &str = "$FramesTransmittedAll";
