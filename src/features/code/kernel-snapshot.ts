import { z } from 'zod';
import { workspaceList } from './workspace/workspace-list.ts';

const names = z.array(z.string());

const kernelSnapshot = z.object({
  threadId: z.string(),
  /** The generation of the last kernel. */
  generation: z.number(),
  /** The generation since which no variable was lost. */
  intactSince: z.number(),
  /** The turn of the last cell. */
  turnId: z.string(),
  /** The files with the variables. */
  list: workspaceList,
  /** The names of the stored variables, at most 200, and their number. */
  kept: names,
  keptCount: z.number(),
  /** The variables that are not stored, and would be lost. */
  others: names,
  otherCount: z.number(),
  /** The variables of the kernel host whose values it may contain. */
  hidden: names,
  /** A cell has run since, which may have changed variables. */
  isBehind: z.boolean(),
});

/** The stored variables of the kernel of a thread, as they were after the last cell that has succeeded. */
export type KernelSnapshot = z.infer<typeof kernelSnapshot>;

/** The snapshots in the row of a sandbox, the last written one at the end. */
export function snapshotsOf({ snapshots }: { snapshots: string | null }): KernelSnapshot[] {
  return snapshots === null ? [] : z.array(kernelSnapshot).parse(JSON.parse(snapshots));
}
