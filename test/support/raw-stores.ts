import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { createClient } from '@redis/client';
import { Client, Connection } from '@temporalio/client';
import proto from '@temporalio/proto';
import { sql, type Kysely } from 'kysely';
import type { Tables } from '../../src/catalog/schema.ts';

const run = promisify(execFile);
const { HistoryEvent } = proto.temporal.api.history.v1;
const { DescribeWorkflowExecutionResponse } = proto.temporal.api.workflowservice.v1;

/** A store as a reader without our code sees it: chunks of bytes, under names that show where they were. */
export type RawStore = Map<string, Buffer>;

/** Where a text occurs in a store: literally, or inside of base64. */
export function find(text: string, store: RawStore): string[] {
  const forms = [text, ...inBase64(text)].map((form) => Buffer.from(form));
  return [...store].flatMap(([name, bytes]) => (forms.some((form) => bytes.includes(form)) ? [name] : []));
}

/** The base64 forms of a text, for any number of preceding bytes. */
function inBase64(text: string): string[] {
  return [0, 1, 2].map((before) => {
    const whole = Buffer.concat([Buffer.alloc(before), Buffer.from(text)]).toString('base64');
    return whole.slice(before === 0 ? 0 : 4, Math.floor((before + Buffer.byteLength(text)) / 3) * 4);
  });
}

/**
 * Every file of a folder, read from a copy that another process makes. If this process closed a file of an SQLite database
 * that it also has open elsewhere, SQLite would lose its locks on it, and the database could be corrupted.
 */
export async function readFolder(folder: string): Promise<RawStore> {
  const copy = await mkdtemp(path.join(tmpdir(), 'everturn-copy-'));
  try {
    await run('cp', ['-r', `${folder}/.`, copy]);
    const entries = await readdir(copy, { recursive: true, withFileTypes: true });
    const store: RawStore = new Map();
    for (const entry of entries.filter((one) => one.isFile())) {
      const file = path.join(entry.parentPath, entry.name);
      // File names are searched as well.
      store.set(file, Buffer.concat([Buffer.from(file), await readFile(file)]));
    }
    return store;
  } finally {
    await rm(copy, { recursive: true, force: true });
  }
}

/** Every row of every table. */
export async function readTables(db: Kysely<Tables>): Promise<RawStore> {
  const store: RawStore = new Map();
  for (const { name } of await db.introspection.getTables()) {
    const { rows } = await sql`select * from ${sql.table(name)}`.execute(db);
    store.set(name, Buffer.from(JSON.stringify(rows)));
  }
  return store;
}

interface TemporalAddress {
  address: string;
  namespace: string;
}

/**
 * Every event of every history, as Temporal returns it, and its description of running workflows; or of those that
 * `query` finds.
 */
export async function readTemporal(temporal: TemporalAddress, query?: string): Promise<RawStore> {
  const store: RawStore = new Map();
  for await (const { workflowId, events, description } of executions(temporal, query)) {
    for (const event of events) {
      store.set(`${workflowId} ${String(event.eventId)}`, Buffer.from(HistoryEvent.encode(event).finish()));
    }
    store.set(workflowId, Buffer.from(DescribeWorkflowExecutionResponse.encode(description).finish()));
  }
  return store;
}

/** Where the histories of some workflows contain payloads that are not encrypted. */
export async function plainPayloads(temporal: TemporalAddress, workflowIds: string[]): Promise<Set<string>> {
  const found = new Set<string>();
  const walk = (node: unknown, place: string): void => {
    if (typeof node !== 'object' || node === null || node instanceof Uint8Array) return;
    const { metadata } = node as { metadata?: { encoding?: Uint8Array } | null };
    if (metadata?.encoding) {
      if (Buffer.from(metadata.encoding).toString() !== 'binary/encrypted') found.add(place);
    } else for (const [key, value] of Object.entries(node)) walk(value, /^\d+$/.test(key) ? place : `${place}.${key}`);
  };
  for await (const { workflowId, events } of executions(temporal)) {
    if (workflowIds.includes(workflowId)) for (const event of events) walk(event, '');
  }
  return found;
}

async function* executions({ address, namespace }: TemporalAddress, query?: string) {
  const connection = await Connection.connect({ address });
  const { workflowService: service } = connection;
  try {
    for await (const { workflowId, runId } of new Client({ connection, namespace }).workflow.list({
      ...(query && { query }),
    })) {
      const execution = { workflowId, runId };
      const { history } = await service.getWorkflowExecutionHistory({ namespace, execution });
      const description = await service.describeWorkflowExecution({ namespace, execution });
      yield { workflowId, events: history?.events ?? [], description };
    }
  } finally {
    await connection.close();
  }
}

/** Everything that is published on a Redis from now on, and its stored data. */
export async function listenTo(url: string): Promise<{ store: () => Promise<RawStore>; close: () => void }> {
  const published: RawStore = new Map();
  const subscriber = createClient({ url });
  const commands = createClient({ url });
  await Promise.all([subscriber.connect(), commands.connect()]);
  await subscriber.pSubscribe('*', (text, channel) =>
    published.set(`${channel} ${published.size}`, Buffer.from(`${channel} ${text}`)),
  );
  return {
    store: async () => {
      const stored = new Map(published);
      for (const key of await commands.keys('*')) stored.set(key, Buffer.from(key + String(await commands.get(key))));
      return stored;
    },
    close: () => {
      subscriber.destroy();
      commands.destroy();
    },
  };
}
