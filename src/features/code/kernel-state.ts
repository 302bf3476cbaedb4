import { z } from 'zod';

const kernelState = z.object({
  generation: z.number(),
  /** `suspended`: a cell waits for a decision. */
  status: z.enum(['ready', 'busy', 'suspended', 'stopped']),
  /** In milliseconds since 1970. */
  lastUsedAt: z.number(),
  /** When it is stopped if it remains unused, in milliseconds since 1970. */
  expiresAt: z.number().nullable(),
  /** The last measured value. */
  memoryBytes: z.number(),
});

/** The last state of a thread's kernel that its host has written into the row of the sandbox. */
export type KernelState = z.infer<typeof kernelState>;

const threadKernels = z.array(kernelState.extend({ threadId: z.string() }));

export type ThreadKernelState = z.infer<typeof threadKernels>[number];

/** The kernels in the row of a sandbox. */
export function kernelsOf({ kernels }: { kernels: string | null }): ThreadKernelState[] {
  return kernels === null ? [] : threadKernels.parse(JSON.parse(kernels));
}

const kernelResets = z.array(
  z.object({
    threadId: z.string(),
    /** Unique, so that a host performs each reset once. */
    id: z.string(),
    /** No kernel is started before the next cell. */
    stops: z.boolean(),
    /** The thread has ended, and gets no other kernel. */
    ends: z.boolean().optional(),
  }),
);

/** A restart of a thread's kernel that a client has requested, or its end with the thread. */
export type KernelReset = z.infer<typeof kernelResets>[number];

/** The resets that the host has not performed yet. */
export function resetsOf({ resets }: { resets: string | null }): KernelReset[] {
  return resets === null ? [] : kernelResets.parse(JSON.parse(resets));
}

const resetIds = z.array(z.string());

/** The ids of the last resets, performed or not. */
export function resetIdsOf({ reset_ids: ids }: { reset_ids: string | null }): string[] {
  return ids === null ? [] : resetIds.parse(JSON.parse(ids));
}
