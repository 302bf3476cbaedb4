import { z } from 'zod';
import { parsedJson } from './json.ts';
import { bootId, isRunning, pidScope, startOf } from './processes.ts';

const record = z.object({ pid: z.int().positive(), start: z.string(), scope: z.string() });

/** This process as a text, by which other processes can check later whether it still runs. */
export async function recordOfProcess(): Promise<string> {
  const { pid } = process;
  const own: z.infer<typeof record> = { pid, start: (await startOf(pid)) ?? '', scope: await pidScope() };
  return JSON.stringify(own);
}

/** Whether the process of a record has ended. A process of another container may run: it cannot be seen. */
export async function hasEnded(text: string): Promise<boolean> {
  const { data } = record.safeParse(parsedJson(text));
  if (!data) return false;
  const [boot] = data.scope.split(' ');
  if (boot !== (await bootId())) return true;
  return data.scope === (await pidScope()) && !(await isRunning(data));
}
