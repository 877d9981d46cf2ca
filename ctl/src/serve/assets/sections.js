// Sections of figures, and titles for people. A figure that is not named here appears in the
// last section under the title that it comes with.

const SECTIONS = [
  { id: "traffic", title: "Traffic", about: "packets and bits", figures: ["packets", "traffic"] },
  ...(capture ? [{ id: "inventory", title: "What is in it", about: "hosts, conversations, servers, ports and protocols, counted exactly", figures: [] }] : []),
  { id: "who", title: "Who", about: "heavy hitters", figures: ["heavy_flows", "heavy_rest", "asked_flows", "seen_flows", "membership_false_positive"],
    parts: { heavy_flows: ["Heavy hitters", "--measure heavy"], asked_flows: ["Packets of single flows", "--measure frequency --query FLOW"] } },
  { id: "contacts", title: "Contacts", about: "who is contacted by most, and who contacts most", figures: ["fan_out", "alarm_fan_out"],
    parts: { fan_out: ["Keys with the most distinct others", "--measure spread"] } },
  { id: "spread", title: "How spread", about: "distinct flows and entropy", figures: ["distinct_flows", "entropy", "alarm", "alarm_flows"],
    parts: { distinct_flows: ["Distinct flows", "--measure cardinality"], entropy: ["Entropy", "--measure entropy"], alarm: ["The alarm", "--alarm"] } },
  { id: "delay", title: "How slow", about: "round-trip times", figures: ["delay", "delay_uncorrected", "delay_seen", "delay_requests", "delay_answers", "delay_unanswered"],
    parts: { delay_requests: ["Round-trip times", "--measure delay"] },
    extra: { text: "also as seen, without correction for unanswered requests", figures: ["delay_uncorrected"] } },
  { id: "broken", title: "How broken", about: "TCP reordering and retransmission", figures: ["tcp_segments_share", "reordering_prefixes", "tcp_segments"],
    parts: { tcp_segments: ["Reordering and retransmission", "--measure reorder"] } },
  { id: "sizes", title: "Sizes", about: "packet lengths", figures: ["mean_packet_length", "packet_length", "packet_lengths"],
    parts: { mean_packet_length: ["Packet lengths", "--measure sizes"] } },
  { id: "ledger", title: "Ledger", about: "what became of the packets", figures: ["received_packets", "unmatched_packets", "unmatched", "lost_packets", "unaccounted_packets", "late_packets", "rejected_packets"] },
  { id: "machine", title: "Machine", about: "CPU time and windows", figures: ["worker_cpu", "window_late", "window_complete", "full"] },
  { id: "other", title: "Other", about: "further figures", figures: [] },
];

const TITLES = {
  packets: "Packets per second", traffic: "Bits per second", heavy_flows: "Heavy hitters", heavy_rest: "Upper bound of flows that are not listed",
  asked_flows: "Packets of queried flows",
  seen_flows: "Queried flows seen", membership_false_positive: "Bloom filter false-positive rate", distinct_flows: "Distinct flows",
  entropy: "Entropy", alarm: "Alarm", alarm_flows: "Flows above usual, in an alarm",
  fan_out: "Most distinct others", alarm_fan_out: "Distinct others above usual, in an alarm", delay: "Round-trip time", delay_uncorrected: "Round-trip time as seen",
  delay_seen: "Distribution of round-trip times", delay_requests: "Requests per second", delay_answers: "Answers per second",
  delay_unanswered: "Unanswered requests per second", tcp_segments_share: "Out-of-order and retransmitted TCP segments",
  reordering_prefixes: "Prefixes that reorder", tcp_segments: "TCP segments per second", mean_packet_length: "Mean packet length",
  packet_length: "Packet length, percentiles", packet_lengths: "Distribution of packet lengths", received_packets: "Packets received per second",
  unmatched_packets: "Unmatched packets per second", unmatched: "Unmatched bits per second",
  lost_packets: "Packets lost per second, by cause", unaccounted_packets: "Packets unaccounted for per second", late_packets: "Late packets per second",
  rejected_packets: "Packets without an IP flow per second", worker_cpu: "CPU time of workers, share of one core",
  window_late: "Delay of a window's end", window_complete: "Window complete", full: "Counters full", alert_firing: "Alert",
};
// Flags that are bad when they are set, or when they are not.
const BAD = { alarm: 1, full: 1, alert_firing: 1, window_complete: 0 };
// Rankings whose numbers are flags, as their notes are.
const FLAGS = ["seen_flows"];

const sectionOf = (name) => SECTIONS.find((it) => it.figures.includes(name)) || SECTIONS[SECTIONS.length - 1];

// Groups the lines of a chart: figures with one name; percentiles also need equal other labels, since more lines are
// indistinguishable, and a distribution fills a chart.
function placed({ name, title, labels = {}, distribution }) {
  const { percentile, ...others } = labels;
  const other = Object.values(others).join(" ");
  const heading = TITLES[name] || capital(title);
  const isAlone = other && (percentile !== undefined || distribution);
  return {
    panel: isAlone ? `${name} ${other}` : name,
    title: isAlone ? `${heading}, ${other}` : heading,
    label: percentile === undefined ? (isAlone ? "" : other) : `p${percentile}`,
  };
}

// Figures that follow from others of a window.
function derived(event) {
  const figures = [{ name: "window_late", title: "", unit: "seconds", number: exactly(event.late_ns / 1e9) }];
  const segments = event.figures.filter((it) => it.name === "tcp_segments");
  const all = segments.find((it) => it.labels.what === "all");
  if (all) {
    for (const { labels, count, usual } of segments.filter((it) => it !== all)) {
      figures.push({ name: "tcp_segments_share", title: "", unit: "ratio", labels, number: exactly(all.count ? count / all.count : 0), usual: all.usual > 0 && usual !== undefined ? usual / all.usual : undefined });
    }
  }
  return figures;
}
const exactly = (value) => ({ value, low: value, high: value });

// Tiles of the first screen. `read` names the columns: counts are added up, of numbers the first column there is counts.
const TILES = [
  { id: "packets", title: "Packets", section: "traffic", counts: ["packets", "rejected_packets"], unit: "things/s" },
  { id: "bits", title: "Bits", section: "traffic", counts: ["traffic"], unit: "bits/s" },
  { id: "distinct", title: "Distinct flows", section: "spread", numbers: ["distinct_flows|"], unit: "things" },
  { id: "entropy", title: "Entropy", section: "spread", numbers: ["entropy|"], unit: "bits" },
  { id: "delay", title: "RTT p95", section: "delay", numbers: ["delay tcp-data|p95", "delay "], ends: "|p95", measured: "delay_requests", unit: "seconds" },
  { id: "order", title: "Out of order", section: "broken", numbers: ["tcp_segments_share|out-of-order"], unit: "ratio" },
  { id: "drops", title: "Drops", section: "ledger", counts: ["lost_packets", "unaccounted_packets"], unit: "things/s" },
];
