import { existsSync } from 'node:fs';
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { z } from 'zod';
import { parsedJson } from '../lib/json.ts';
import { isRunning, pidScope } from '../lib/processes.ts';

const serverRecord = z.object({
  pid: z.int().positive(),
  /** As `startOf` returns it, because another program may get the id later. */
  start: z.string(),
  /** The start of the machine and the container in which the id is valid. */
  scope: z.string(),
  databaseFile: z.string(),
  port: z.int().min(1).max(65_535),
  /** As `programIdentity` returns it. */
  program: z.string(),
  /** As `settingsArguments` returns them. */
  settings: z.array(z.string()),
});

/** A server that was started on a database. */
type ServerRecord = z.infer<typeof serverRecord>;

/** Beside the database. Only the holder of the data folder's lock writes it. */
function recordFile(databaseFile: string): string {
  return path.join(path.dirname(databaseFile), 'server.json');
}

/** The record is complete or absent, whenever this process is killed. */
export async function writeServerRecord(server: Omit<ServerRecord, 'scope'>): Promise<void> {
  const file = recordFile(server.databaseFile);
  await writeFile(`${file}.part`, JSON.stringify({ ...server, scope: await pidScope() }));
  await rename(`${file}.part`, file);
}

export async function removeServerRecord(databaseFile: string): Promise<void> {
  await rm(recordFile(databaseFile), { force: true });
}

/**
 * Finds the server that is running on a database.
 * @param onIgnored is called with the reason why a record cannot be used
 */
export async function findDevServer(
  databaseFile: string,
  onIgnored: (reason: string) => void = () => {},
): Promise<ServerRecord | undefined> {
  const file = recordFile(databaseFile);
  if (!existsSync(file)) return undefined;
  const record = serverRecord.safeParse(parsedJson(await readFile(file, 'utf8'))).data;
  const problem = await problemOf(record, databaseFile);
  if (problem !== undefined) onIgnored(`${file} is ignored: ${problem}`);
  return record && problem === undefined && (await isRunning(record)) ? record : undefined;
}

async function problemOf(record: ServerRecord | undefined, databaseFile: string): Promise<string | undefined> {
  if (!record) return 'it is damaged';
  if (record.databaseFile !== databaseFile) return `it belongs to ${record.databaseFile}`;
  if (record.scope === (await pidScope())) return undefined;
  return 'it is from another machine or container, or from before a restart of this one';
}
