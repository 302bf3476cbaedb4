import path from 'node:path';
import { z } from 'zod';
import { OUTPUT_CHANNELS } from '../core/output-parts.ts';
import { MAX_OUTPUT_PARTS } from './bus.ts';

/** What a kernel host sends to the server that has started it, line by line: see `OutputLink`. */
const id = z.string().max(256);
/** A time. */
const attempt = z.int().nonnegative().max(8_640_000_000_000_000);

export const outputMessage = z.union([
  z.strictObject({
    output: z.strictObject({
      turnId: id,
      threadId: id,
      toolCallId: id,
      id,
      after: z.int().nonnegative(),
      attempt,
      from: z.int().nonnegative(),
      parts: z.array(z.strictObject({ channel: z.enum(OUTPUT_CHANNELS), text: z.string() })).max(MAX_OUTPUT_PARTS),
    }),
  }),
  z.strictObject({ ended: z.strictObject({ turnId: id, id, attempt }) }),
]);

export type OutputMessage = z.infer<typeof outputMessage>;

/** A whole output has at most 256 KiB, of which each byte may take 6 in JSON. */
export const MAX_MESSAGE_BYTES = 2 * 1024 * 1024;

/** The folder of the socket in the data folder, which no other user can enter. */
export function socketFolder(dataDir: string): string {
  return path.join(dataDir, 'kernel-host');
}

export const SOCKET = 'output.sock';
