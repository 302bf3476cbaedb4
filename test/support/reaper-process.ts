/** Waits until the process that started it has ended, and kills what that one has left behind. See reaper.ts. */
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { listOwnProcesses } from './own-processes.ts';
import type { ReaperMessage } from './reaper.ts';

const children = new Map<number, NodeJS.Signals>();
const folders = new Set<string>();

for await (const line of createInterface({ input: process.stdin })) {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by reaper.ts
  const message = JSON.parse(line) as ReaperMessage;
  if ('watch' in message) children.set(message.watch, message.signal);
  else if ('release' in message) children.delete(message.release);
  else folders.add(message.folder);
}
for (const [pid, signal] of children) kill(pid, signal);
// A process that is found may be about to start another one.
while (await killUsers()) await sleep(50);

async function killUsers(): Promise<boolean> {
  const processes = await listOwnProcesses();
  const users = processes.filter(
    ({ pid, commandLine }) => pid !== process.pid && [...folders].some((folder) => commandLine.includes(folder)),
  );
  for (const { pid } of users) kill(pid, 'SIGKILL');
  return users.length > 0;
}

function kill(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It has ended.
  }
}
