// Tables of a report: exact counts of hosts, conversations, ports, protocols and TCP servers. Functions alone: they are
// called before the end of the script.

function drawInventory(contents) {
  const { hosts, conversations, ports, protocols, servers, unfollowed, max_entries: most } = contents;
  const volume = (of, name) => [[`${name}packets`, (it) => whole(of(it).packets), (it) => of(it).packets], [`${name}bytes`, (it) => whole(of(it).bytes), (it) => of(it).bytes]];
  const share = ["share of bytes", (it) => number(it.all.bytes / Math.max(1, contents.total.bytes), "ratio"), (it) => it.all.bytes];
  const text = (name, of) => [name, of];
  const address = (name, of) => [name, (it) => named(of(it), contents.names)];
  const milliseconds = (times) => (times ? `${number(times[1], "seconds")} (${quantity(times[1], "seconds", times[0], times[2]).interval || "one"})` : "none");
  const add = (id, title, columns, ranked, isWide, notes = []) => {
    const { rows, others, volume: rest, beyond } = ranked;
    const left = [...notes];
    if (others) left.push(`${whole(others)} more, with ${whole(rest.packets)} ${id === "servers" ? "segments" : `packets and ${whole(rest.bytes)} bytes`}, are neither among the first 1,000 by packets nor by bytes.`);
    if (beyond && beyond.packets) left.push(`${whole(beyond.packets)} packets (${whole(beyond.bytes)} bytes) belong to others than the first ${whole(most)} that came, and are in no row: exact counts have that much memory. The sections below measure them too.`);
    const shown = sortable(title, columns, rows);
    const count = `${whole(rows.length + others)}${beyond && beyond.packets ? " and more" : ""}`;
    const panel = make("div", { class: `panel inventory${isWide ? " wide" : ""}`, role: "group", "aria-labelledby": `inventory-${id}` },
      make("h3", { id: `inventory-${id}` }, title, make("small", {}, ` (${count})`)), shown, ...left.map((it) => make("p", { class: "off" }, it)));
    if (rows.length > 50) panel.append(make("p", { class: "off printed" }, `Printed: the first 50 of ${whole(rows.length)} rows; the page has all.`));
    element("panels-inventory").append(panel);
  };
  add("hosts", "Hosts", [address("address", (it) => it.address), ...volume((it) => it.all, ""), share, ...volume((it) => it.sent, "sent "), ...volume((it) => it.received, "received ")], hosts, true);
  add("conversations", "Conversations", [address("address", (it) => it.addresses[0]), address("with", (it) => it.addresses[1]), ...volume((it) => it.all, ""), share, ...volume((it) => it.forth, "→ "), ...volume((it) => it.back, "← "),
    ["begins", (it) => time(it.first), (it) => -it.first], ["lasts", (it) => number(it.lasted, "seconds"), (it) => it.lasted]], conversations, true);
  const earlier = servers.rows.reduce((sum, it) => sum + it.begun_before, 0);
  add("servers", "TCP servers", [address("address", (it) => it.address), ["port", (it) => String(it.endpoint.slice(it.endpoint.lastIndexOf(":") + 1))],
    ["connections", (it) => whole(it.connections), (it) => it.connections], ["unanswered", (it) => whole(it.unanswered), (it) => it.unanswered],
    ["RTT to server", (it) => milliseconds(it.to_server), (it) => (it.to_server ? it.to_server[1] : -1)], ["RTT to client", (it) => milliseconds(it.to_client), (it) => (it.to_client ? it.to_client[1] : -1)],
    ["segments with data", (it) => whole(it.segments), (it) => it.segments],
    ["retransmitted", (it) => partOf(it.retransmitted, it.segments), (it) => it.retransmitted], ["out of order", (it) => partOf(it.out_of_order, it.segments), (it) => it.out_of_order]],
    servers, true, [
      ...(servers.rows.length ? ["Round trips are those of handshakes: median (least … most), seen from where the capture was made. Repeated SYNs give none."] : []),
      ...(earlier ? [`${earlier === 1 ? "1 connection" : `${whole(earlier)} connections`} began before the capture; the server is the side with the lower port.`] : []),
      ...(unfollowed.packets ? [`${whole(unfollowed.packets)} TCP packets belong to other connections than the first ${whole(most)}, which were not followed.`] : []),
    ]);
  add("ports", "Ports", [text("protocol", (it) => it.protocol), ["port", (it) => String(it.port), (it) => -it.port], ...volume((it) => it.all, ""), share], ports, false, ["A packet counts for both of its ports."]);
  add("protocols", "Protocols", [["protocol", ({ path }) => make("span", { class: `depth${Math.min(3, path.length - 1)}` }, path[path.length - 1])], ...volume((it) => it.all, ""), share], { rows: protocols, others: 0 }, false);
}

function partOf(part, all) {
  return part ? `${whole(part)} (${number(part / all, "ratio")})` : "0";
}

// A name beside its address, if there is one.
function named(address, names) {
  const name = names && names[address];
  return name ? make("span", {}, address, make("small", {}, ` ${name}`)) : address;
}

// Returns a table that its reader can sort by columns of numbers: [name, text, number].
function sortable(title, columns, rows) {
  const body = make("tbody");
  const fill = (all) => body.replaceChildren(...all.map((it) => row(...columns.map(([, text], at) => { const shown = text(it); return at === 0 ? make("td", { class: "name" }, shown) : shown instanceof Node ? make("td", {}, shown) : shown; }))));
  const heads = columns.map(([name, , of]) => {
    if (!of) return make("th", { scope: "col" }, name);
    const button = make("button", { type: "button" }, name);
    const head = make("th", { scope: "col" }, button);
    button.addEventListener("click", () => {
      for (const it of heads) it.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", "descending");
      fill([...rows].sort((one, other) => of(other) - of(one)));
    });
    return head;
  });
  fill(rows);
  const region = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title });
  region.append(rows.length ? make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body) : "none");
  return region;
}
