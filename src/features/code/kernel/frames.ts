import { z } from 'zod';
import { LineReader } from '../../../lib/line-reader.ts';
import type { Bait } from './bait.ts';
import { kernelCalls, type CallReply } from './kernel-calls.ts';

/** A display of 8 MiB in base64, and its frame. Calls of one frame have 8 MiB. */
const MAX_FRAME_BYTES = 12 * 1024 * 1024;

/** Longer names and messages are cut. */
export const MAX_NAME_LENGTH = 256;
export const MAX_MESSAGE_LENGTH = 4_096;

const name = z.string().max(MAX_NAME_LENGTH);
const count = z.int().nonnegative();

/** The types of displays that become files. */
export const displayType = z.enum(['image/png', 'image/jpeg', 'image/svg+xml', 'text/html', 'application/json']);

/** The variables that a task has kept, and the lost ones, at most 200 names each. Values that run code can forge it. */
const keptVariables = z.object({
  kept: z.array(name).max(200),
  keptCount: count,
  lost: z.array(name).max(200),
  lostCount: count,
});

export type KeptVariables = z.infer<typeof keptVariables>;

/** The frames that a kernel sends. User code can forge all of them, because it runs in the same process. */
const kernelFrame = z.discriminatedUnion('type', [
  z.object({ type: z.literal('ready'), pid: z.int().positive() }),
  z.object({ type: z.literal('failed'), reason: z.string().max(8192) }),
  /** The code has started, and can be interrupted. */
  z.object({ type: z.literal('started'), id: z.string() }),
  z.object({
    type: z.literal('output'),
    id: z.string(),
    channel: z.enum(['stdout', 'stderr', 'display', 'error']),
    text: z.string(),
  }),
  /** Further output is discarded. */
  z.object({ type: z.literal('cut'), id: z.string() }),
  /** The code, or some of its threads, wait for the replies to these calls. `token`: the one that the cell was sent. */
  z.object({ type: z.literal('calls'), id: z.string(), token: z.string(), calls: kernelCalls }),
  z.object({ type: z.literal('display'), id: z.string(), mediaType: displayType, data: z.string() }),
  z.object({
    type: z.literal('end'),
    id: z.string(),
    /** Whether the cell's mark was written into the output that is not in frames. */
    isMarked: z.boolean(),
    error: z.object({ name, message: z.string().max(MAX_MESSAGE_LENGTH) }).nullable(),
    /** Whether the error is the denial of a call. */
    isDenied: z.boolean(),
    defined: z.array(name).max(100),
    names: z.array(name).max(200),
    nameCount: count,
    discardedBytes: count,
    notices: z.array(z.string().max(1024)).max(100),
    /** The result of a task with the variables; absent or null: none. */
    variables: keptVariables.nullish(),
  }),
]);

export type KernelFrame = z.infer<typeof kernelFrame>;

/** The outcome of putting up the wall. */
export type ReadyFrame = Extract<KernelFrame, { type: 'ready' | 'failed' }>;

interface WallFrame {
  /** The user to become. */
  uid: number | null;
  gid: number | null;
  /** Paths of files and folders. */
  read: string[];
  write: string[];
  /** Whether files outside of the sandbox have paths inside. */
  seesHost: boolean;
  /** Whether the user of the kernel owns such files. */
  sharesUser: boolean;
}

/** The access of a kernel to the network. */
interface NetworkFrame {
  /** A port of its loopback, for HTTP clients in code. */
  port: number;
  /** The path of the proxy's socket, to which a process of the sandbox forwards the connections to the port. */
  socket: string;
}

/** The frames that a kernel receives. */
export type HostFrame =
  | {
      type: 'start';
      wall: WallFrame | null;
      network: NetworkFrame | null;
      limits: { cpus: number; processes: number | null };
      bait: Bait;
      env: Record<string, string>;
      workspace: string;
      tools: string;
      /** The folder of stored variables; null for a kernel that stores none. */
      variables: string | null;
    }
  | { type: 'run'; id: string; code: string; outputBytes: number; mark: string; token: string; modules: string }
  /** Stores the variables of the user, or restores the stored ones. */
  | { type: 'variables'; id: string; task: 'save' | 'restore'; mark: string }
  /** The replies to all calls of the last frame. */
  | { type: 'results'; answers: CallReply[] };

/**
 * Reads the frames of a kernel.
 *
 * @param onFrame gets each frame; undefined for an invalid line
 */
export function frameReader(onFrame: (frame: KernelFrame | undefined) => void): LineReader {
  return new LineReader(MAX_FRAME_BYTES, (line, isWhole) => onFrame(isWhole ? parseFrame(line) : undefined));
}

function parseFrame(line: string): KernelFrame | undefined {
  try {
    return kernelFrame.safeParse(JSON.parse(line)).data;
  } catch {
    return undefined;
  }
}
