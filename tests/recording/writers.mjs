// Writes an MCAP file with the writer of @mcap/core: {path, options, schema, messages: [[topic, time, base64]]} on the
// standard input.
import { openSync, readFileSync, writeSync } from "node:fs";
import { McapWriter } from "@mcap/core";

const { path, options, schema, messages } = JSON.parse(readFileSync(0, "utf8"));
const file = openSync(path, "w");
let length = 0n;
const writable = {
  position: () => length,
  write: async (bytes) => {
    length += BigInt(writeSync(file, bytes));
  },
};
const writer = new McapWriter({ writable, ...options });
await writer.start({ profile: "x", library: "test" });
const schemaId = await writer.registerSchema({ ...schema, data: new TextEncoder().encode(schema.data) });
const channels = new Map();
for (const [sequence, [topic, time, data]] of messages.entries()) {
  if (!channels.has(topic)) {
    const channel = { topic, schemaId, messageEncoding: "json", metadata: new Map([["by", "test"]]) };
    channels.set(topic, await writer.registerChannel(channel));
  }
  const times = { logTime: BigInt(time), publishTime: BigInt(time) - 1n };
  await writer.addMessage({ channelId: channels.get(topic), sequence, ...times, data: Buffer.from(data, "base64") });
}
await writer.addAttachment({ name: "a", mediaType: "text/plain", logTime: 1n, createTime: 1n, data: Buffer.from("b") });
await writer.addMetadata({ name: "m", metadata: new Map([["k", "v"]]) });
await writer.end();
