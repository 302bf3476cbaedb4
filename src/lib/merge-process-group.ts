import { setTimeout as sleep } from 'node:timers/promises';

const POLL_MS = 20;

/** Ends the processes of a group: asks them to, and kills those that are still there after `graceMs`. */
export async function endGroup(group: number, graceMs: number): Promise<void> {
  signalGroup(group, 'SIGTERM');
  for (const end = performance.now() + graceMs; performance.now() < end; await sleep(POLL_MS)) {
    if (!signalGroup(group, 0)) return;
  }
  signalGroup(group, 'SIGKILL');
}

/** False if nobody is there. */
function signalGroup(group: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(-group, signal);
  } catch {
    return false;
  }
}
