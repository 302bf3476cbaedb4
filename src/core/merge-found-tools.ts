import type { FoundTool, UnplacedRecord } from './records.ts';

/** Providers take some 128 tools at most, and every one costs tokens. */
const MAX_FOUND = 64;

/**
 * The tools that a thread has found by searching, in the order in which it found them; of very many the last. Like the
 * transcript this is a projection of the records of its branch, so a fork knows what was found before it, and no more.
 */
export function foundTools(records: UnplacedRecord[], threadId: string): FoundTool[] {
  const found = new Map<string, FoundTool>();
  for (const record of records) {
    if (record.kind !== 'tool.response' || record.threadId !== threadId) continue;
    for (const tool of record.foundTools ?? []) {
      const key = toolKey(tool);
      // One that is found again keeps its place: providers cache what they are sent up to the first difference.
      if (!found.has(key)) found.set(key, tool);
      const [oldest] = found.keys();
      if (found.size > MAX_FOUND && oldest !== undefined) found.delete(oldest);
    }
  }
  return [...found.values()];
}

/** Of a tool within an agent. */
export function toolKey({ server, name }: FoundTool): string {
  return JSON.stringify([server, name]);
}
