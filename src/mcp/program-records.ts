import { randomUUID } from 'node:crypto';
import { readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { Logger } from 'pino';
import { z } from 'zod';
import { parsedJson } from '../lib/json.ts';
import { makeFolder } from '../lib/make-folder.ts';
import { endGroup, isRunning, pidNamespace, startOf } from '../lib/processes.ts';

const identity = z.object({ pid: z.int().positive(), start: z.string() });

/** The leader of a process group, and what belongs to it. */
const record = z.object({
  leader: identity,
  /** The Everturn that has started it. */
  owner: identity,
  namespace: z.string(),
  /** The folder that was made for it. */
  folder: z.string().optional(),
});

/** How long the processes of a group may take to end after SIGTERM. */
const END_GRACE_MS = 2_000;

/** A record of another container, whose processes cannot be seen from here, is deleted after this time. */
const MAX_FOREIGN_AGE_MS = 30 * 86_400_000;

/**
 * The process groups of the programs that run as MCP servers, in the folder `programs` of the data folder: one file for
 * each. Programs should end with their standard input, but not all do. When an Everturn is killed, its records remain,
 * and the next process that uses the folder ends the groups.
 */
export class ProgramRecords {
  readonly #folder: string;
  readonly #log: Logger;
  /** What all records of this process have. */
  readonly #own: Pick<z.infer<typeof record>, 'owner' | 'namespace'>;

  private constructor(folder: string, log: Logger, own: Pick<z.infer<typeof record>, 'owner' | 'namespace'>) {
    this.#folder = folder;
    this.#log = log;
    this.#own = own;
  }

  /**
   * Ends the groups in the data folder whose owners no longer run.
   * @throws StartupError if the folder cannot be written
   */
  static async open(dataDir: string, log: Logger): Promise<ProgramRecords> {
    const folder = path.join(dataDir, 'programs');
    await makeFolder(folder, 'EVERTURN_DATA');
    const [start = '', namespace] = await Promise.all([startOf(process.pid), pidNamespace()]);
    const records = new ProgramRecords(folder, log, { owner: { pid: process.pid, start }, namespace });
    const names = (await readdir(folder)).filter((name) => name.endsWith('.json'));
    await Promise.all(names.map((name) => records.#endIfLeft(path.join(folder, name))));
    return records;
  }

  /**
   * Records a group by the id of its leader. The process that ends a group that was left deletes its `folder`, too.
   * @returns deletes the record; to be called once the group has ended
   */
  async add(pid: number, folder: string | undefined): Promise<() => Promise<void>> {
    const start = await startOf(pid);
    // It has already ended.
    if (start === undefined) return () => Promise.resolve();
    const file = path.join(this.#folder, `${randomUUID()}.json`);
    const written: z.input<typeof record> = {
      leader: { pid, start },
      ...this.#own,
      ...(folder !== undefined && { folder }),
    };
    // Another process that starts must not read a part of it.
    await writeFile(`${file}.part`, JSON.stringify(written));
    await rename(`${file}.part`, file);
    return () => rm(file, { force: true });
  }

  async #endIfLeft(file: string): Promise<void> {
    const found = record.safeParse(parsedJson(await readFile(file, 'utf8').catch(() => '')));
    if (!found.success) {
      // A crash of the machine may have cut it off. The processes have ended with the machine.
      await rm(file, { force: true });
      return;
    }
    const { leader, owner, namespace, folder } = found.data;
    if (namespace !== this.#own.namespace) {
      const { mtimeMs } = await stat(file).catch(() => ({ mtimeMs: Infinity }));
      if (Date.now() - mtimeMs > MAX_FOREIGN_AGE_MS) await rm(file, { force: true });
      return;
    }
    if (await isRunning(owner)) return;
    if ((await startOf(leader.pid)) === leader.start) {
      this.#log.warn({ pid: leader.pid }, 'a program of an Everturn that was killed was still running: it is ended');
      await endGroup(leader.pid, END_GRACE_MS);
    }
    if (folder !== undefined) await rm(folder, { recursive: true, force: true });
    await rm(file, { force: true });
  }
}
