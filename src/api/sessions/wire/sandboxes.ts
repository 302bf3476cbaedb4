import { z } from 'zod';
import { timestamp } from './event.ts';

export const kernelResource = z.object({
  thread_id: z.string(),
  generation: z.int(),
  status: z.enum(['ready', 'busy', 'suspended', 'stopped']).describe('suspended: its cell waits for a decision'),
  last_used_at: timestamp,
  memory_bytes: z.int(),
});

export const sandboxResource = z
  .object({
    id: z.string().nullable(),
    session_id: z.string(),
    status: z
      .enum(['none', 'ready', 'busy', 'suspended', 'stopped'])
      .describe('none: no code has run yet; suspended: code waits for a decision; stopped: no kernel runs'),
    isolation: z.enum(['sandbox', 'confined', 'none']).nullable(),
    kernels: z.array(kernelResource),
    workspace: z.object({ path: z.string(), files: z.int(), bytes: z.int() }).describe('as it is stored'),
    expires_at: timestamp.nullable().describe('when the last kernel is stopped if it is not used'),
    created_at: timestamp.nullable(),
  })
  .meta({ id: 'Sandbox' });

export const workspaceFile = z
  .object({
    path: z.string().describe('from the workspace'),
    bytes: z.int(),
    media_type: z.string().nullable().describe('by its name; null for a folder'),
    sha256: z.string().nullable(),
    modified_at: timestamp.nullable(),
    is_dir: z.boolean(),
  })
  .meta({ id: 'WorkspaceFile' });
