import { readFile, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { z } from 'zod';
import { parsedJson } from '../lib/json.ts';
import { isRunning, pidScope, startOf } from '../lib/processes.ts';

const kernelHostRecord = z.object({
  pid: z.int().positive(),
  /** As `startOf` returns it. */
  start: z.string(),
  /** As `pidScope` returns it. */
  scope: z.string(),
  /** What the host was started with: a host with other settings or of another version is replaced. */
  identity: z.string(),
});

type KernelHostRecord = z.infer<typeof kernelHostRecord>;

/** The file that names the kernel host of a data folder, which that host itself writes. */
function kernelHostRecordFile(dataDir: string): string {
  return path.join(dataDir, 'kernel-host.json');
}

/** Records this process as the kernel host of a data folder. The file is complete or absent, whenever it is killed. */
export async function recordKernelHost(dataDir: string, identity: string): Promise<void> {
  const { pid } = process;
  const record: KernelHostRecord = { pid, start: (await startOf(pid)) ?? '', scope: await pidScope(), identity };
  const file = kernelHostRecordFile(dataDir);
  await writeFile(`${file}.part`, JSON.stringify(record));
  await rename(`${file}.part`, file);
}

/** The kernel host that runs for a data folder. */
export async function runningKernelHost(dataDir: string): Promise<KernelHostRecord | undefined> {
  const json = await readFile(kernelHostRecordFile(dataDir), 'utf8').catch(() => '');
  const { data: record } = kernelHostRecord.safeParse(parsedJson(json));
  if (!record || record.scope !== (await pidScope())) return undefined;
  return (await isRunning(record)) ? record : undefined;
}
