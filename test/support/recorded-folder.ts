import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

/** The facts on the data folder of another version: see `test/data-folders/record.ts`. */
export interface RecordedFolder {
  /** The turns by what they are. */
  turns: Record<string, { sessionId: string; turnId: string }>;
  /** The responses of that version to reads of the ended ones, by path. */
  reads: Record<string, object>;
}

/** Unpacks a recorded data folder into `folder`, as its subfolder `data`. */
export async function unpackRecorded(commit: string, folder: string): Promise<RecordedFolder> {
  const archive = fileURLToPath(new URL(`../data-folders/${commit}.tar.gz`, import.meta.url));
  await promisify(execFile)('tar', ['-xzf', archive, '-C', folder]);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by the recorder
  return JSON.parse(await readFile(path.join(folder, 'recorded.json'), 'utf8')) as RecordedFolder;
}
