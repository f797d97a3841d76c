"use strict";
const byId = (id) => document.getElementById(id);
const make = (tag, text, className) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
};

// ---- numbers ----
const formatNumber = (value, digits = 0) =>
  value === null || value === undefined ? "-" : value.toLocaleString("en", {maximumFractionDigits: digits});
const formatRate = (value) => formatNumber(value, value !== null && value < 1000 ? 1 : 0);
const formatBytes = (value) => {
  if (value === null || value === undefined) return "-";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${formatNumber(value, unit ? 1 : 0)} ${units[unit]}`;
};
const formatMicroseconds = (ns) => ns === null || ns === undefined ? "-" : formatNumber(ns / 1000, ns < 1e6 ? 1 : 0);
const formatBacklog = (backlog) => {
  if (!backlog) return "-";
  return backlog[1] === "bytes" ? formatBytes(backlog[0]) : formatNumber(backlog[0]);
};

// ---- state ----
const SVG = "http://www.w3.org/2000/svg";
const TREND_S = 300;
const trends = new Map();
let state = {endpoints: [], stages: [], clients: [], server_lost: {}, refused: {}};
let sortColumn = 0, sortDescending = false, openEndpoint = null;

const stagesOf = (endpoint) => state.stages.filter((stage) => stage.endpoint === endpoint);
const worst = (endpoint, key) => {
  const values = stagesOf(endpoint).map((stage) => stage.queue_time[key]).filter((value) => value !== null);
  return values.length ? Math.max(...values) : null;
};
const isShown = (name) => name.toLowerCase().includes(byId("filter").value.toLowerCase());

// Return the texts of participants, with one text for all dead ones if they are several.
const foldDead = (texts) => {
  const dead = texts.filter((text) => text.endsWith(" (dead)"));
  return dead.length < 2 ? texts : [...texts.filter((text) => !dead.includes(text)), `${dead.length} dead`];
};

// ---- tables: rows are updated in place, so that the keyboard's focus stays ----
const ENDPOINT_COLUMNS = [
  ["endpoint", (row) => row.endpoint, (row) => row.endpoint],
  ["kind", (row) => row.kind, (row) => [row.kind, row.note].filter(Boolean).join(", "), "wide line"],
  ["publishers", (row) => row.publishers.length, (row) => foldDead(row.publishers).join(", ") || "-", "wide"],
  ["subscribers", (row) => row.subscriber_count ?? -1, (row) => formatNumber(row.subscriber_count), "number"],
  ["messages/s", (row) => row.rate ?? -1, (row) => formatRate(row.rate), "number"],
  ["bytes/s", (row) => row.byte_rate ?? -1, (row) => formatBytes(row.byte_rate), "number wide"],
  [`trend, ${TREND_S / 60} min`, null, null, "wide line trend"],
  ["lost/s", (row) => row.lost_rate ?? -1, (row) => formatRate(row.lost_rate), "number wide"],
  ["lost", (row) => row.lost ?? -1, (row) => formatNumber(row.lost), "number"],
  ["waiting", (row) => row.backlog ? row.backlog[0] : -1, (row) => formatBacklog(row.backlog), "number"],
  ["wait p50 us", (row) => worst(row.endpoint, "p50") ?? -1,
    (row) => formatMicroseconds(worst(row.endpoint, "p50")), "number wide"],
  ["wait p99 us", (row) => worst(row.endpoint, "p99") ?? -1,
    (row) => formatMicroseconds(worst(row.endpoint, "p99")), "number wide"],
];
const spread = (name, key) => ["p50", "p99", "max"].map((part) =>
  [`${name} ${part} us`, null, (row) => formatMicroseconds(row[key][part]), "number"]);
const STAGE_COLUMNS = [
  ["stage", null, (row) => row.stage], ["endpoint", null, (row) => row.endpoint],
  ["messages/s", null, (row) => formatRate(row.rate), "number"],
  ...spread("wait", "queue_time"), ...spread("work", "processing_time"), ...spread("age", "e2e_latency"),
  ["lost", null, (row) => formatNumber(row.lost), "number"],
];
const CLIENT_COLUMNS = [
  ["address", null, (row) => row.address],
  ["subscriptions", null, (row) => formatNumber(row.subscriptions), "number"],
  ["sent", null, (row) => formatNumber(row.sent), "number"],
  ["dropped", null, (row) => formatNumber(row.dropped), "number"],
];

function makeHead(table, columns) {
  const row = table.tHead.insertRow();
  columns.forEach(([title, sortKey, , className], index) => {
    const cell = make("th", sortKey ? undefined : title, className);
    cell.scope = "col";
    if (sortKey) {
      const button = cell.appendChild(make("button", title));
      button.onclick = () => {
        sortDescending = sortColumn === index ? !sortDescending : index > 1;
        sortColumn = index;
        showEndpoints();
      };
    }
    row.append(cell);
  });
}

function updateRows(body, rows, keyOf, columns, fillCell) {
  const existing = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const wanted = rows.map((row) => {
    const line = existing.get(keyOf(row)) ?? makeRow(keyOf(row), columns);
    existing.delete(keyOf(row));
    columns.forEach((column, index) => fillCell(line.cells[index], column, row));
    return line;
  });
  existing.forEach((row) => row.remove());
  wanted.forEach((line, index) => {
    if (body.rows[index] !== line) body.insertBefore(line, body.rows[index] ?? null);
  });
  return wanted;
}
function makeRow(key, columns) {
  const line = document.createElement("tr");
  line.dataset.key = key;
  for (const column of columns) line.insertCell().className = column[3] ?? "";
  return line;
}
const setText = (element, text) => { if (element.textContent !== text) element.textContent = text; };
const fillText = (cell, column, row) => setText(cell, column[2](row));

function fillEndpointCell(cell, column, row) {
  if (column[3]?.includes("trend")) return drawTrend(cell, trends.get(row.endpoint) ?? [], row.rate === null);
  if (column[0] !== "endpoint") {
    fillText(cell, column, row);
    if (column[0].startsWith("lost")) cell.classList.toggle("bad", (row.lost_rate ?? 0) > 0);
    return;
  }
  let button = cell.querySelector("button");
  if (!button) {
    button = cell.appendChild(make("button"));
    button.onclick = () => showMessages(openEndpoint === row.endpoint ? null : row.endpoint);
  }
  setText(button, row.endpoint);
  button.setAttribute("aria-expanded", String(openEndpoint === row.endpoint));
}

// Draw rates over time, now at the right, above an axis. The text at the axis is the largest rate.
function drawTrend(cell, samples, isBytes) {
  let line = cell.querySelector("polyline");
  if (!line) {
    const svg = cell.appendChild(document.createElementNS(SVG, "svg"));
    svg.setAttribute("class", "spark");
    svg.setAttribute("viewBox", `0 0 ${TREND_S} 18`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    svg.appendChild(document.createElementNS(SVG, "path")).setAttribute("d", `M0 0V17.5H${TREND_S}`);
    line = svg.appendChild(document.createElementNS(SVG, "polyline"));
    cell.append(make("span", "", "muted"));
  }
  const most = Math.max(...samples.map(([, value]) => value), 1e-9);
  const place = ([time, value]) => `${TREND_S - (state.time_ns - time) / 1e9},${17 - 16 * value / most}`;
  line.setAttribute("points", samples.map(place).join(" "));
  setText(cell.querySelector("span"), `≤ ${most < 1e-6 ? 0 : isBytes ? formatBytes(most) : formatRate(most)}`);
}

function showEndpoints() {
  const sortKey = ENDPOINT_COLUMNS[sortColumn][1];
  const rows = state.endpoints.filter((row) => isShown(row.endpoint)).sort((a, b) => {
    const [x, y] = [sortKey(a), sortKey(b)];
    return (x < y ? -1 : x > y ? 1 : 0) * (sortDescending ? -1 : 1);
  });
  const table = byId("endpoint-table");
  [...table.tHead.rows[0].cells].forEach((cell, index) =>
    cell.setAttribute("aria-sort", index !== sortColumn ? "none" : sortDescending ? "descending" : "ascending"));
  const lines = updateRows(table.tBodies[0], rows, (row) => row.endpoint, ENDPOINT_COLUMNS, fillEndpointCell);
  placeDetails(lines.find((line) => line.dataset.key === openEndpoint));
}

// ---- the newest message of one endpoint ----
const details = document.createElement("tr");
details.dataset.key = "\n"; // no endpoint has this name
const detailsText = details.insertCell().appendChild(make("pre"));
details.cells[0].colSpan = ENDPOINT_COLUMNS.length;
function placeDetails(line) {
  if (line) line.after(details);
  else details.remove();
}
function showMessages(endpoint) {
  if (openEndpoint) messages.unsubscribe(openEndpoint, "details");
  openEndpoint = endpoint;
  detailsText.textContent = "waiting for a message";
  showEndpoints();
  if (!endpoint) return;
  messages.subscribe(endpoint, "details", (channel, timeNs, payload) => {
    const time = new Date(Number(timeNs / 1000000n)).toISOString();
    detailsText.textContent = `${time}, ${formatBytes(payload.byteLength)}\n${decodePayload(channel, payload)}`;
  });
}
function decodePayload(channel, payload) {
  if (channel.encoding !== "json") return `${channel.schemaName}, encoding ${channel.encoding}: open Foxglove to see it`;
  const text = new TextDecoder().decode(payload.subarray(0, 100000));
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// ---- graph ----
const NODE_WIDTH = 230, NODE_HEIGHT = 54, COLUMN_WIDTH = 300, ROW_HEIGHT = 66, NODES_MAX = 150;
const describeStages = (pid) => state.stages.filter((stage) => stage.pids.includes(pid))
  .map((stage) => `${stage.stage}: wait ${formatMicroseconds(stage.queue_time.p50)}, ` +
    `work ${formatMicroseconds(stage.processing_time.p50)} us`).join("; ");
const shorten = (text, most) => text.length > most ? `${text.slice(0, most / 2 - 1)}…${text.slice(1 - most / 2)}` : text;
function buildGraph() {
  const nodes = new Map(), edges = [];
  const addNode = (id, title, detail, note, is) => nodes.set(id, {id, title, detail, note, is}) && id;
  // Return the ids of the nodes of participants: several dead ones are one node.
  const addProcesses = (participants, place) => {
    const dead = participants.filter((one) => one.alive === false);
    if (dead.length < 2) return participants.map(addProcess);
    const pids = `pids ${dead.map((one) => one.pid).join(", ")}`;
    const folded = addNode(`dead ${place}`, `${dead.length} dead processes`, pids, "", "dead process");
    return [...participants.filter((one) => one.alive !== false).map(addProcess), folded];
  };
  const addProcess = (participant) => {
    const id = `process ${participant.pid} ${participant.name}`;
    const is = participant.alive === false ? "dead process" : "process";
    const detail = `pid ${participant.pid}${is === "process" ? "" : ", dead"}`;
    return addNode(id, participant.name, detail, describeStages(participant.pid), is);
  };
  for (const row of state.endpoints.filter((one) => isShown(one.endpoint))) {
    const waits = row.backlog ? `, ${formatBacklog(row.backlog)} waiting` : "";
    const id = `endpoint ${row.endpoint}`;
    addNode(id, row.endpoint, `${formatRate(row.rate)}/s${waits}`, row.kind, "endpoint");
    for (const sender of addProcesses(row.senders, `senders of ${row.endpoint}`)) edges.push([sender, id]);
    for (const receiver of addProcesses(row.receivers, `receivers of ${row.endpoint}`)) edges.push([id, receiver]);
  }
  return {nodes, edges: [...new Map(edges.map((edge) => [edge.join("\n"), edge])).values()]};
}
function assignColumns({nodes, edges}) {
  const next = new Map([...nodes.keys()].map((id) => [id, []])), isReached = new Set();
  for (const [from, to] of edges) { next.get(from).push(to); isReached.add(to); }
  const column = new Map(), path = new Set();
  const visit = (id, depth) => { // an edge back to the path belongs to a cycle, and moves no node
    if (path.has(id) || (column.get(id) ?? -1) >= depth) return;
    column.set(id, depth);
    path.add(id);
    for (const to of next.get(id)) visit(to, depth + 1);
    path.delete(id);
  };
  for (const id of nodes.keys()) if (!isReached.has(id)) visit(id, 0);
  for (const id of nodes.keys()) if (!column.has(id)) visit(id, 0);
  return column;
}
function showGraph() {
  const graph = buildGraph(), place = byId("graph");
  if (graph.nodes.size > NODES_MAX) {
    place.replaceChildren(make("p", `${graph.nodes.size} nodes are too many to draw; enter a filter above`, "muted"));
    return;
  }
  const columns = assignColumns(graph), counts = [], positions = new Map();
  for (const [id, column] of columns) {
    counts[column] = (counts[column] ?? 0) + 1;
    positions.set(id, [24 + column * COLUMN_WIDTH, 8 + (counts[column] - 1) * ROW_HEIGHT]);
  }
  const width = counts.length * COLUMN_WIDTH - 34, height = Math.max(0, ...counts.filter(Boolean)) * ROW_HEIGHT + 8;
  const svg = document.createElementNS(SVG, "svg");
  const draw = (parent, tag, attributes, text) => {
    const element = parent.appendChild(document.createElementNS(SVG, tag));
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  for (const [name, value] of [["width", Math.max(width, 0)], ["height", height], ["role", "img"],
    ["aria-label", `graph of ${graph.nodes.size} endpoints and processes`]]) svg.setAttribute(name, value);
  const marker = draw(draw(svg, "defs", {}), "marker",
    {id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto"});
  draw(marker, "path", {d: "M0 0L8 4L0 8z"});
  for (const [from, to] of graph.edges) {
    const [x1, y1] = positions.get(from), [x2, y2] = positions.get(to);
    const [a, b, c, d] = [x1 + NODE_WIDTH, y1 + NODE_HEIGHT / 2, x2, y2 + NODE_HEIGHT / 2];
    draw(svg, "path", {d: `M${a} ${b}C${a + 40} ${b} ${c - 40} ${d} ${c} ${d}`, "marker-end": "url(#arrow)"});
  }
  for (const node of graph.nodes.values()) {
    const [x, y] = positions.get(node.id);
    const group = draw(svg, "g", {class: node.is, transform: `translate(${x} ${y})`});
    draw(group, "title", {}, [node.title, node.detail, node.note].filter(Boolean).join(", "));
    draw(group, "rect", {width: NODE_WIDTH, height: NODE_HEIGHT});
    draw(group, "text", {x: 10, y: 17}, shorten(node.title, 32));
    draw(group, "text", {x: 10, y: 32, class: "sub"}, shorten(node.detail, 36));
    draw(group, "text", {x: 10, y: 47, class: "sub"}, shorten(node.note, 38));
  }
  place.replaceChildren(svg);
}

// ---- messages, by the Foxglove protocol ----
const messages = {
  socket: null, channels: new Map(), handlers: new Map(), topics: new Map(), lastId: 0,
  connect() {
    const address = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/${location.search}`;
    const socket = this.socket = new WebSocket(address, ["foxglove.websocket.v1"]);
    socket.binaryType = "arraybuffer";
    socket.onmessage = (event) => typeof event.data === "string" ? this.handleText(JSON.parse(event.data)) : this.handleData(event.data);
    socket.onclose = () => {
      if (this.socket !== socket) return;
      this.forgetChannels([...this.channels.keys()]);
      this.socket = null;
      if (!document.hidden) setTimeout(() => this.socket ?? this.connect(), 2000);
    };
  },
  close() {
    this.socket?.close();
  },
  handleText(message) {
    if (message.op === "advertise") {
      for (const channel of message.channels) {
        this.channels.set(channel.id, channel);
        if (this.handlers.has(channel.topic)) this.requestTopic(channel.topic);
      }
    } else if (message.op === "unadvertise") this.forgetChannels(message.channelIds);
    showPictures();
  },
  forgetChannels(ids) {
    for (const id of ids) {
      const topic = this.channels.get(id)?.topic;
      this.channels.delete(id);
      for (const [subscription, name] of this.topics) if (name === topic) this.topics.delete(subscription);
    }
  },
  handleData(buffer) {
    const view = new DataView(buffer), topic = this.topics.get(view.getUint32(1, true));
    const channel = this.findChannel(topic);
    if (!channel) return;
    for (const handle of this.handlers.get(topic)?.values() ?? [])
      handle(channel, view.getBigUint64(5, true), new Uint8Array(buffer, 13));
  },
  findChannel(topic) {
    return [...this.channels.values()].find((channel) => channel.topic === topic);
  },
  subscribe(topic, user, handle) {
    if (!this.handlers.has(topic)) {
      this.handlers.set(topic, new Map());
      this.requestTopic(topic);
    }
    this.handlers.get(topic).set(user, handle);
  },
  unsubscribe(topic, user) {
    const users = this.handlers.get(topic);
    users?.delete(user);
    if (!users || users.size) return;
    this.handlers.delete(topic);
    for (const [subscription, name] of this.topics) {
      if (name !== topic) continue;
      this.topics.delete(subscription);
      this.send({op: "unsubscribe", subscriptionIds: [subscription]});
    }
  },
  requestTopic(topic) {
    const channel = this.findChannel(topic);
    if (!channel) return;
    this.topics.set(++this.lastId, topic);
    this.send({op: "subscribe", subscriptions: [{id: this.lastId, channelId: channel.id}]});
  },
  send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  },
};

// ---- pictures: only those that are visible are received ----
const figures = new Map();
const visibility = new IntersectionObserver((entries) => {
  for (const {target, isIntersecting} of entries) {
    const topic = target.dataset.topic;
    if (isIntersecting) messages.subscribe(topic, "picture", (channel, timeNs, payload) => showPicture(topic, timeNs, payload));
    else messages.unsubscribe(topic, "picture");
  }
});
function showPictures() {
  const wanted = [...messages.channels.values()].filter((channel) => channel.schemaName === "sensor_msgs/msg/CompressedImage");
  const topics = new Set(wanted.map((channel) => channel.topic));
  for (const [topic, figure] of figures) {
    if (topics.has(topic)) continue;
    visibility.unobserve(figure);
    messages.unsubscribe(topic, "picture");
    figure.remove();
    figures.delete(topic);
  }
  for (const topic of topics) {
    if (figures.has(topic)) continue;
    const figure = byId("pictures").appendChild(make("figure"));
    figure.dataset.topic = topic;
    const image = figure.appendChild(make("img"));
    image.alt = `newest picture of ${topic}`;
    figure.append(make("figcaption", topic));
    figures.set(topic, figure);
    visibility.observe(figure);
  }
  byId("no-pictures").hidden = topics.size > 0;
}
function readCompressedImage(payload) { // ROS 2 CDR: header (stamp, frame_id), format, data
  const view = new DataView(payload.buffer, payload.byteOffset), begin = 4; // after the encoding
  let at = 8;
  const readLength = () => {
    at = at + 3 & ~3;
    const length = view.getUint32(begin + at, true);
    at += 4;
    return length;
  };
  const frameIdLength = readLength();
  const frameId = new TextDecoder().decode(payload.subarray(begin + at, begin + at + frameIdLength - 1));
  at += frameIdLength;
  const formatLength = readLength();
  const format = new TextDecoder().decode(payload.subarray(begin + at, begin + at + formatLength - 1));
  at += formatLength;
  const length = readLength();
  return {frameId, format, data: payload.subarray(begin + at, begin + at + length)};
}
function showPicture(topic, timeNs, payload) {
  const figure = figures.get(topic), image = figure?.querySelector("img");
  if (!image || image.dataset.loading) return; // the browser is still busy with the previous picture
  const picture = readCompressedImage(payload);
  const address = URL.createObjectURL(new Blob([picture.data], {type: `image/${picture.format.includes("png") ? "png" : "jpeg"}`}));
  image.dataset.loading = "1";
  image.onload = image.onerror = () => { URL.revokeObjectURL(address); delete image.dataset.loading; };
  image.src = address;
  setText(figure.querySelector("figcaption"), `${topic}, frame ${picture.frameId}`);
}

// ---- the loop ----
let events = null;
const setStatus = (text, isBad) => { const line = byId("status"); setText(line, text); line.classList.toggle("bad", isBad); };
function showState() {
  showEndpoints();
  showGraph();
  updateRows(byId("stage-table").tBodies[0], state.stages.filter((row) => isShown(row.endpoint)),
    (row) => `${row.stage}\n${row.endpoint}`, STAGE_COLUMNS, fillText);
  byId("stage-table").hidden = !state.stages.length;
  byId("no-stages").hidden = state.stages.length > 0;
  updateRows(byId("client-table").tBodies[0], state.clients.map((row, index) => ({...row, index})),
    (row) => String(row.index), CLIENT_COLUMNS, fillText);
  const refused = Object.values(state.refused);
  setText(byId("refused"), refused.length ? `Not readable: ${refused.join("; ")}` : "");
  const lost = Object.entries(state.server_lost).filter(([, count]) => count !== 0);
  setText(byId("server-lost"), lost.length ? "The server was too slow to read: " +
    lost.map(([name, count]) => `${count === null ? "unknown" : formatNumber(count)} messages of ${name}`).join(", ") : "");
}
function handleState(event) {
  state = JSON.parse(event.data);
  const names = new Set(state.endpoints.map((row) => row.endpoint));
  for (const name of trends.keys()) if (!names.has(name)) trends.delete(name);
  for (const row of state.endpoints) {
    const samples = [...(trends.get(row.endpoint) ?? []), [state.time_ns, row.rate ?? row.byte_rate ?? 0]];
    trends.set(row.endpoint, samples.filter(([time]) => state.time_ns - time <= TREND_S * 1e9));
  }
  setStatus(`live: ${state.endpoints.length} endpoints, ${new Date(state.time_ns / 1e6).toLocaleTimeString()}`, false);
  showState();
}
function updateConnections() { // a hidden page costs nothing
  if (document.hidden) {
    events?.close();
    events = null;
    messages.close();
    return;
  }
  if (!events) {
    events = new EventSource("events" + location.search);
    events.onmessage = handleState;
    events.onerror = () => setStatus("no connection to the server; the values are old", true);
  }
  if (!messages.socket || messages.socket.readyState > WebSocket.OPEN) messages.connect();
}
makeHead(byId("endpoint-table"), ENDPOINT_COLUMNS);
makeHead(byId("stage-table"), STAGE_COLUMNS);
makeHead(byId("client-table"), CLIENT_COLUMNS);
byId("filter").oninput = showState;
document.onkeydown = (event) => {
  if (event.key === "/" && document.activeElement !== byId("filter")) {
    event.preventDefault();
    byId("filter").focus();
  } else if (event.key === "Escape" && openEndpoint) showMessages(null);
};
document.onvisibilitychange = updateConnections;
updateConnections();
showState();
