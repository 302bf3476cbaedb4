import { totalmem } from 'node:os';

/** The memory of the machine, or of the container, if that is limited. */
export function availableBytes(): number {
  return Math.min(totalmem(), process.constrainedMemory() || Infinity);
}
