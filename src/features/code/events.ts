import { z } from 'zod';

/** Why the kernel of a thread was replaced. */
const RESTART_REASONS = [
  'reset',
  'idle',
  'suspended',
  'died',
  'out_of_memory',
  'unresponsive',
  'host_lost',
  'evicted',
  'fork',
] as const;

export type RestartReason = (typeof RESTART_REASONS)[number];

/** The fields of the events of code actions, beside those of all events (`docs/code-actions.md`). */
export const CODE_EVENTS = {
  'sandbox.created': {
    name: 'SandboxCreated',
    fields: {
      sandbox_id: z.string(),
      isolation: z
        .enum(['sandbox', 'confined', 'none'])
        .describe('`sandbox`: namespaces of its own; `confined`: filters alone; `none`: no walls'),
      network: z
        .array(z.string())
        .optional()
        .describe('the hosts that code may reach, as its agent and the operator allow when it is created'),
    },
  },
  'kernel.started': {
    name: 'KernelStarted',
    fields: {
      sandbox_id: z.string(),
      generation: z.int(),
      python: z.string().describe('the version of Python'),
    },
  },
  'kernel.restarted': {
    name: 'KernelRestarted',
    fields: {
      sandbox_id: z.string(),
      generation: z.int(),
      previous_generation: z.int(),
      reason: z.enum(RESTART_REASONS),
      restored: z.array(z.string()).describe('the names of the variables that were stored, at most 200'),
      lost: z.array(z.string()).describe('the names of the variables that are lost, at most 200'),
      lost_count: z.int(),
    },
  },
} as const;
