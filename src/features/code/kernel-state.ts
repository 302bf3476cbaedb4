import { z } from 'zod';

const kernelState = z.object({
  generation: z.number(),
  /** `suspended`: a cell waits for a decision. */
  status: z.enum(['ready', 'busy', 'suspended', 'stopped']),
  /** In milliseconds since 1970. */
  lastUsedAt: z.number(),
  /** When it is stopped if it is not used, in milliseconds since 1970. */
  expiresAt: z.number().nullable(),
  /** When it was measured last. */
  memoryBytes: z.number(),
});

/** The kernel of a thread, as its host has last written it into the row of the sandbox. */
export type KernelState = z.infer<typeof kernelState>;

const threadKernels = z.array(kernelState.extend({ threadId: z.string() }));

export type ThreadKernelState = z.infer<typeof threadKernels>[number];

/** The kernels that the row of a sandbox has. */
export function kernelsOf({ kernels }: { kernels: string | null }): ThreadKernelState[] {
  return kernels === null ? [] : threadKernels.parse(JSON.parse(kernels));
}

const kernelResets = z.array(
  z.object({
    threadId: z.string(),
    /** Unique, so that a host does each once. */
    id: z.string(),
    /** No kernel is started before the next cell. */
    stops: z.boolean(),
    /** Its thread is done: it has no other kernel. */
    ends: z.boolean().optional(),
  }),
);

/** A client has the kernel of a thread restarted, or it ends with its thread. */
export type KernelReset = z.infer<typeof kernelResets>[number];

/** What a host has not done yet. */
export function resetsOf({ resets }: { resets: string | null }): KernelReset[] {
  return resets === null ? [] : kernelResets.parse(JSON.parse(resets));
}

const resetIds = z.array(z.string());

/** The ids of the last resets, done or not. */
export function resetIdsOf({ reset_ids: ids }: { reset_ids: string | null }): string[] {
  return ids === null ? [] : resetIds.parse(JSON.parse(ids));
}
