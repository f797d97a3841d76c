// Reads MCAP files with the readers of @mcap/core: by the chunk index, or record by record if the file has none. The
// standard input is a JSON list of paths. The output is a JSON list of messages for each path.
import { readFileSync } from "node:fs";
import { McapIndexedReader, McapStreamReader } from "@mcap/core";

const text = (bytes) => Buffer.from(bytes).toString("base64");

function described(message, channel, schema) {
  const times = [message.logTime, message.publishTime].map(String);
  const written = schema && [schema.name, schema.encoding, text(schema.data)];
  const metadata = [...channel.metadata];
  return [channel.topic, text(message.data), ...times, message.sequence, channel.messageEncoding, metadata, written ?? null];
}

function* streamed(data) {
  const reader = new McapStreamReader({ validateCrcs: true });
  const [channels, schemas] = [new Map(), new Map()];
  reader.append(data);
  for (let record; (record = reader.nextRecord()); ) {
    if (record.type === "Channel") channels.set(record.id, record);
    if (record.type === "Schema") schemas.set(record.id, record);
    if (record.type === "Message") {
      const channel = channels.get(record.channelId);
      yield described(record, channel, schemas.get(channel.schemaId));
    }
  }
}

async function messages(path) {
  const data = new Uint8Array(readFileSync(path));
  const read = async (offset, size) => data.slice(Number(offset), Number(offset + size));
  const readable = { size: async () => BigInt(data.length), read };
  const reader = await McapIndexedReader.Initialize({ readable }).catch(() => undefined);
  if (!reader?.chunkIndexes.length) return [...streamed(data)];
  const found = [];
  for await (const message of reader.readMessages()) {
    const channel = reader.channelsById.get(message.channelId);
    found.push(described(message, channel, reader.schemasById.get(channel.schemaId)));
  }
  return found;
}

const found = [];
for (const path of JSON.parse(readFileSync(0, "utf8"))) found.push(await messages(path));
console.log(JSON.stringify(found));
