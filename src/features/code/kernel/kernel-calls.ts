import { z } from 'zod';
import { isJsonObject, parsedJson } from '../../../lib/json.ts';
import { jsonShape } from '../../../lib/json-shape.ts';

/** The maximum calls of one cell, and of one frame. */
export const MAX_CALLS = 1000;
/** The records of a message have to fit into one payload of Temporal. */
const MAX_BATCH = 32;
const MAX_CALL_BYTES = 1024 * 1024;
const MAX_ENVIRONMENT_BYTES = 256 * 1024;
const MAX_NAME = 1024;
/** The limit of Linux. */
const MAX_PATH = 4096;
/** The maximum nesting of arguments, whose readers are recursive. */
const MAX_DEPTH = 64;

/** A call of a cell: a tool of an MCP server, or a command. `number` counts the calls of the cell from 1. */
export type KernelCall = z.infer<typeof kernelCall>;

/** The reply to a call: the result of a tool or command, or the reason why there is none. */
export type CallReply = { number: number } & (
  | { status: 'succeeded'; content: string; structured?: unknown }
  | { status: 'exited'; output: string; exitCode: number }
  | { status: 'failed' | 'denied' | 'expired' | 'unknown_outcome'; message: string }
);

function text(maxBytes: number): z.ZodType<string> {
  return z
    .string()
    .max(maxBytes)
    .refine((value) => Buffer.byteLength(value) <= maxBytes && value.isWellFormed() && !value.includes('\0'));
}

function isEnvironment(env: Record<string, string>): boolean {
  const entries = Object.entries(env);
  const isTooLarge = Buffer.byteLength(entries.flat().join('')) > MAX_ENVIRONMENT_BYTES;
  return !isTooLarge && entries.every(([name, value]) => /^[^=\0]+$/.test(name) && !value.includes('\0'));
}

function isArguments(json: string): boolean {
  return jsonShape(json).depth <= MAX_DEPTH && isJsonObject(parsedJson(json));
}

const number = z.int().min(1).max(MAX_CALLS);

const kernelCall = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('tool'),
    number,
    /** The original names of the server and the tool. */
    server: text(MAX_NAME),
    tool: text(MAX_NAME),
    /** A JSON object. */
    arguments: text(MAX_CALL_BYTES).refine(isArguments),
  }),
  z.object({
    kind: z.literal('command'),
    number,
    /** A line for a shell, or a whole script. */
    text: text(MAX_CALL_BYTES),
    isScript: z.boolean(),
    /** The path inside of the sandbox. */
    cwd: text(MAX_PATH),
    env: z.record(z.string(), z.string()).refine(isEnvironment),
  }),
]);

/** The calls of a frame. */
export const kernelCalls = z.array(kernelCall).min(1).max(MAX_BATCH);

/** The calls of a running cell: those that wait for replies, and the number of all. */
export class CellCalls {
  toolCalls = 0;
  commands = 0;
  #out: readonly KernelCall[] = [];
  #asked = Promise.withResolvers<KernelCall[]>();

  /** Resolves with the next calls. */
  get asked(): Promise<KernelCall[]> {
    return this.#asked.promise;
  }

  /** Whether calls wait for replies. */
  get isWaiting(): boolean {
    return this.#out.length > 0;
  }

  /** Takes the next calls. False if they are forged: their numbers do not follow, or earlier calls wait for replies. */
  take(calls: readonly KernelCall[]): boolean {
    const first = this.toolCalls + this.commands + 1;
    if (this.isWaiting || !calls.every((call, index) => call.number === first + index)) return false;
    for (const { kind } of calls) {
      if (kind === 'tool') this.toolCalls += 1;
      else this.commands += 1;
    }
    this.#out = calls;
    return true;
  }

  /** Resolves `asked` with the calls that were taken last. */
  report(): void {
    this.#asked.resolve([...this.#out]);
  }

  /** Records the replies to the waiting calls, after which the next calls may follow. */
  answer(answers: readonly CallReply[]): void {
    const numbers = new Set(answers.map(({ number }) => number));
    const isComplete = numbers.size === this.#out.length && this.#out.every((call) => numbers.has(call.number));
    if (!isComplete) throw new Error('all calls that a cell has asked for are answered together');
    this.#out = [];
    this.#asked = Promise.withResolvers();
  }

  /** Failure replies for the waiting calls. */
  refusals(message: string): CallReply[] {
    return this.#out.map(({ number }) => ({ number, status: 'failed', message }));
  }
}
