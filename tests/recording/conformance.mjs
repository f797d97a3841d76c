// Writes MCAP files with the builders of @mcap/core. Run by test_conformance.py in the folder that has the package; what
// to write comes on the standard input as JSON: [{path, features, records}], numbers beyond 2^53 as strings.
import { readFileSync, writeFileSync } from "node:fs";
import { McapChunkBuilder, McapRecordBuilder, Opcode } from "@mcap/core";
import { crc32 } from "@foxglove/crc";

const bytes = (base64) => new Uint8Array(Buffer.from(base64, "base64"));

function parsed(record) {
  const found = { ...record, type: undefined };
  if (record.data !== undefined) found.data = bytes(record.data);
  if (record.metadata !== undefined) found.metadata = new Map(record.metadata);
  for (const name of ["logTime", "publishTime", "createTime"])
    if (record[name] !== undefined) found[name] = BigInt(record[name]);
  return found;
}

class File {
  constructor(features) {
    this.has = (feature) => features.includes(feature);
    this.builder = new McapRecordBuilder({ padRecords: this.has("pad") });
    this.chunk = this.has("ch") ? new McapChunkBuilder({ useMessageIndex: this.has("mx") }) : undefined;
    this.schemas = [];
    this.channels = [];
    this.messages = [];
    this.attachments = [];
    this.metadata = [];
    this.chunks = [];
  }

  here() {
    return BigInt(this.builder.length);
  }

  add(kind, record) {
    const offset = this.here();
    if (kind === "Attachment") {
      const { name, mediaType, logTime, createTime, data } = record;
      const length = this.builder.writeAttachment(record);
      this.attachments.push({ name, mediaType, logTime, createTime, dataSize: BigInt(data.length), offset, length });
    } else if (kind === "Metadata") {
      this.metadata.push({ name: record.name, offset, length: this.builder.writeMetadata(record) });
    } else {
      (this.chunk?.[`add${kind}`] ?? this.builder[`write${kind}`]).call(this.chunk ?? this.builder, record);
      ({ Schema: this.schemas, Channel: this.channels, Message: this.messages })[kind].push(record);
    }
  }

  closeChunk() {
    const { buffer, messageStartTime, messageEndTime, indices } = this.chunk;
    const size = BigInt(buffer.length);
    const times = { messageStartTime, messageEndTime, compression: "", uncompressedSize: size };
    const chunkStartOffset = this.here();
    const chunkLength = this.builder.writeChunk({ ...times, uncompressedCrc: crc32(buffer), records: buffer });
    const messageIndexOffsets = new Map();
    let messageIndexLength = 0n;
    for (const index of indices) {
      messageIndexOffsets.set(index.channelId, this.here());
      messageIndexLength += this.builder.writeMessageIndex(index);
    }
    const place = { chunkStartOffset, chunkLength, messageIndexOffsets, messageIndexLength };
    this.chunks.push({ ...times, ...place, compressedSize: size });
  }

  statistics() {
    const times = this.messages.map((message) => message.logTime).sort((a, b) => (a < b ? -1 : 1));
    const channelMessageCounts = new Map();
    for (const { channelId } of this.messages)
      channelMessageCounts.set(channelId, (channelMessageCounts.get(channelId) ?? 0n) + 1n);
    return {
      messageCount: BigInt(this.messages.length),
      schemaCount: this.schemas.length,
      channelCount: this.channels.length,
      attachmentCount: this.attachments.length,
      metadataCount: this.metadata.length,
      chunkCount: this.chunks.length,
      messageStartTime: times.at(0) ?? 0n,
      messageEndTime: times.at(-1) ?? 0n,
      channelMessageCounts,
    };
  }

  summary() {
    const offsets = [];
    const groups = [
      ["rsh", Opcode.SCHEMA, "Schema", this.schemas],
      ["rch", Opcode.CHANNEL, "Channel", this.channels],
      ["st", Opcode.STATISTICS, "Statistics", [this.statistics()]],
      ["mdx", Opcode.METADATA_INDEX, "MetadataIndex", this.metadata],
      ["ax", Opcode.ATTACHMENT_INDEX, "AttachmentIndex", this.attachments],
      ["chx", Opcode.CHUNK_INDEX, "ChunkIndex", this.chunks],
    ];
    for (const [feature, groupOpcode, kind, records] of groups) {
      const groupStart = this.here();
      if (this.has(feature)) for (const record of records) this.builder[`write${kind}`](record);
      if (this.here() > groupStart) offsets.push({ groupOpcode, groupStart, groupLength: this.here() - groupStart });
    }
    return offsets;
  }

  written(records) {
    this.builder.writeMagic();
    this.builder.writeHeader({ profile: "", library: "" });
    for (const record of records) this.add(record.type, parsed(record));
    if (this.chunk) this.closeChunk();
    this.builder.writeDataEnd({ dataSectionCrc: crc32(this.builder.buffer) });
    const start = this.here();
    const offsets = this.summary();
    const summaryStart = this.here() > start ? start : 0n;
    const summaryOffsetStart = this.has("sum") ? this.here() : 0n;
    if (this.has("sum")) for (const offset of offsets) this.builder.writeSummaryOffset(offset);
    const footer = { summaryStart, summaryOffsetStart, summaryCrc: 0 };
    const ending = new McapRecordBuilder({ padRecords: false });
    ending.writeFooter(footer);
    const covered = [this.builder.buffer.subarray(Number(start)), ending.buffer.subarray(0, -4)];
    this.builder.writeFooter({ ...footer, summaryCrc: crc32(Buffer.concat(covered)) });
    this.builder.writeMagic();
    return this.builder.buffer;
  }
}

for (const { path, features, records } of JSON.parse(readFileSync(0, "utf8")))
  writeFileSync(path, new File(features).written(records));
