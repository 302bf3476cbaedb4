import { appendFileSync } from 'node:fs';
import { z } from 'zod';
import { inputRequired, type InputRequiredResult } from '@modelcontextprotocol/server';
import type { RunningCall, TestMcpServerOptions, TestTool } from '../../support/mcp-server.ts';

/** A received tool call, and its effect. */
export interface Effect {
  operation: string;
  /** It ran before its activity was scheduled, and its operation id named the attempt at its message too. */
  isSpeculative: boolean;
  /** The MCP server that received it, and its session on that server. */
  server: string;
  mcpSession: string | undefined;
  /** The access token with which it was called. */
  token: string | undefined;
  tool: string;
  arguments: Record<string, unknown>;
  /** False: a repetition that an idempotent tool recognized by its operation id, or a tool that only reads. */
  tookEffect: boolean;
  /** On the clock of the recorded frames. */
  at: number;
}

const behaviour = z.looseObject({
  /** Applies before the effect. */
  ms: z.number().optional(),
  /** Waits before the effect until `goOn` with the same word. */
  hold: z.string().optional(),
  /**
   * What happens after the effect at the first call of an operation: `hang` never responds, `swallow` cuts the connection
   * where the result would have been sent.
   */
  first: z.enum(['hang', 'swallow']).optional(),
  /** The size of the result, in bytes. */
  size: z.number().optional(),
  /** A note for the desk. */
  note: z.string().optional(),
});

interface Behaviour {
  name: string;
  effect: 'once' | 'once per operation' | 'none';
  annotations?: TestTool['annotations'];
  /** Asks the user before its effect, as servers of this protocol do: its own server speaks it. */
  asks?: Protocol;
}

type Protocol = NonNullable<TestMcpServerOptions['protocol']>;

/** One for each way in which Everturn treats tools. */
const TOOLS: Behaviour[] = [
  { name: 'pay', effect: 'once' },
  { name: 'refund', effect: 'once', annotations: { destructiveHint: true } },
  { name: 'sync', effect: 'once per operation', annotations: { idempotentHint: true } },
  { name: 'look', effect: 'none', annotations: { readOnlyHint: true } },
  { name: 'ask', effect: 'once', asks: '2026-07-28' },
];

/** All of these put their note on the desk of their MCP session, and return all notes that are there. */
const DESK_TOOLS: Behaviour[] = [
  { name: 'keep', effect: 'once' },
  { name: 'recall', effect: 'none', annotations: { readOnlyHint: true } },
  { name: 'shred', effect: 'once', annotations: { destructiveHint: true } },
  { name: 'ask_older', effect: 'once', asks: '2025-11-25' },
];

const EFFECTS = new Map([...TOOLS, ...DESK_TOOLS].map(({ name, effect }) => [name, effect]));

/** How often a tool has its effect: at every call, at the first call of an operation, or never. */
export function effectOf(tool: string): Behaviour['effect'] | undefined {
  return EFFECTS.get(tool);
}

/** The end of the operation id of a speculative call: the attempt at its message. */
const STAMP = /\/[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/;

/** The tools that need an approval for the agents of a world. */
export const NEED_APPROVAL = new Set(['refund', 'shred']);

/**
 * Every effect of every tool, by its operation id, counted in a process that no fault affects, and in a file that can
 * be read afterwards.
 */
export class EffectLedger {
  readonly effects: Effect[] = [];
  readonly #file: string;
  readonly #seen = new Map<string, number>();
  readonly #held = new Map<string, PromiseWithResolvers<void>>();
  readonly #waiting: { has: () => boolean; resolve: () => void }[] = [];
  /** The notes on each desk, by the id of its MCP session. */
  readonly #desks = new Map<string, Set<string>>();

  constructor(file: string) {
    this.#file = file;
  }

  /** Calls that wait for this word may have their effects. */
  goOn(word: string): void {
    this.#mayGoOn(word).resolve();
  }

  /** Resolves when a call whose operation ends in `suffix` has arrived. */
  started(suffix: string): Promise<void> {
    return this.#until(() => [...this.#seen.keys()].some((operation) => operation.endsWith(suffix)));
  }

  /** The tools of a server whose effects are counted. */
  tools(server: string): TestTool[] {
    return TOOLS.map((one) => this.#tool(server, one));
  }

  /** The tools of a server that keeps state for each of its sessions. */
  deskTools(server: string): TestTool[] {
    return DESK_TOOLS.map((one) => this.#tool(server, one));
  }

  /** How often operations had an effect. */
  count(operation: string): number {
    return this.effects.filter((effect) => effect.operation === operation && effect.tookEffect).length;
  }

  /** Resolves when a call whose operation ends in `suffix` has passed the point of its effect. */
  reached(suffix: string): Promise<void> {
    return this.#until(() => this.effects.some(({ operation }) => operation.endsWith(suffix)));
  }

  async #until(has: () => boolean): Promise<void> {
    if (!has()) await new Promise<void>((resolve) => void this.#waiting.push({ has, resolve }));
  }

  #changed(): void {
    for (const { has, resolve } of this.#waiting) if (has()) resolve();
  }

  #tool(server: string, { name, effect, annotations = {}, asks }: Behaviour): TestTool {
    return {
      name,
      annotations,
      handler: async (args, call) => {
        const answer = asks && (await ask(asks, call));
        if (typeof answer === 'object') return answer;
        const id = String(call.meta['io.everturn/operation-id']);
        const operation = id.replace(STAMP, '');
        const mcpSession = call.headers['mcp-session-id'];
        const { ms = 0, hold, first, size = 0, note } = behaviour.parse(args);
        const arrivals = (this.#seen.get(operation) ?? 0) + 1;
        this.#seen.set(operation, arrivals);
        this.#changed();
        if (ms > 0) await new Promise((resolve) => setTimeout(resolve, ms));
        if (hold !== undefined) await this.#mayGoOn(hold).promise;
        const tookEffect = effect === 'once' || (effect === 'once per operation' && this.count(operation) === 0);
        const at = performance.now();
        this.#note({
          operation,
          isSpeculative: id !== operation,
          server,
          mcpSession,
          token: call.headers['authorization']?.slice('Bearer '.length),
          tool: name,
          arguments: args,
          tookEffect,
          at,
        });
        if (first && arrivals === 1) await misbehave(first, call);
        const desk = mcpSession === undefined ? '' : `; on the desk: ${this.#put(note, mcpSession)}`;
        const told = answer === undefined ? '' : `; told ${answer}`;
        return `${name} has done ${operation}${desk}${told}${'.'.repeat(size)}`;
      },
    };
  }

  /** Returns all notes of a desk. */
  #put(note: string | undefined, mcpSession: string): string {
    const notes = this.#desks.get(mcpSession) ?? new Set();
    this.#desks.set(mcpSession, notes);
    if (note !== undefined) notes.add(note);
    return [...notes].join(', ');
  }

  #mayGoOn(word: string): PromiseWithResolvers<void> {
    const known = this.#held.get(word) ?? Promise.withResolvers<void>();
    this.#held.set(word, known);
    return known;
  }

  #note(effect: Effect): void {
    this.effects.push(effect);
    appendFileSync(this.#file, `${JSON.stringify(effect)}\n`);
    this.#changed();
  }
}

/** Returns the user's answer; the result of a `2026-07-28` server that has none yet. */
async function ask(protocol: Protocol, { elicit, inputResponses }: RunningCall): Promise<string | InputRequiredResult> {
  const requestedSchema = { type: 'object' as const, properties: { word: { type: 'string' as const } } };
  const question = { message: 'Which word?', requestedSchema };
  if (protocol === '2025-11-25') return JSON.stringify(await elicit(question, 'call'));
  const answer = inputResponses?.['word'];
  return answer ? JSON.stringify(answer) : inputRequired({ inputRequests: { word: inputRequired.elicit(question) } });
}

async function misbehave(how: 'hang' | 'swallow', call: RunningCall): Promise<void> {
  if (how === 'swallow') call.cut();
  await new Promise((resolve) => call.signal.addEventListener('abort', resolve));
}
