import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { ChatRequest, ModelCall } from '../../support/scripted-model.ts';

/**
 * The script of a turn, written into the message that starts it. The model reads it there and knows its position by the
 * messages after it, so every repetition of a request after any fault gets the same response, and the checker knows what
 * was expected.
 */
const planSchema = z.object({
  id: z.string(),
  steps: z.array(
    z.object({
      say: z.string(),
      /** The time between two words. */
      pauseMs: z.number().optional(),
      tools: z
        .array(z.object({ name: z.string(), args: z.record(z.string(), z.unknown()), id: z.string() }))
        .optional(),
      /** The text of the first attempt, if different: distinguishes the two where it must leave no trace. */
      sayFirst: z.string().optional(),
      /**
       * Each attempt calls other tools than the one before it, under the same ids and with the same arguments: the tools
       * are shifted by one place.
       */
      shuffles: z.boolean().optional(),
      /** The first attempt, or those of a list, pauses after this many words, until `goOn` or until the reader disconnects. */
      hold: z.number().or(z.array(z.number())).optional(),
      /** The faults of the first attempts; later ones succeed. */
      faults: z.array(z.string()).optional(),
    }),
  ),
});
export type Plan = z.infer<typeof planSchema>;
export type PlanStep = Plan['steps'][number];

/** How a provider fails in one attempt. */
export type ProviderFault = (call: ModelCall, step: PlanStep) => void | Promise<void>;

export const TOKENS = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };

const half = (text: string): string => text.slice(0, Math.ceil(text.length / 2));

export const PROVIDER_FAULTS: Record<string, ProviderFault> = {
  'rate limit': (call) => call.fail(429, 'slow down', { 'retry-after': '1' }),
  'come back tomorrow': (call) => call.fail(429, 'come back tomorrow', { 'retry-after': '86400' }),
  'bad request': (call) => call.fail(400, 'messages.3: that is no role'),
  'time-out': (call) => call.fail(504, 'upstream'),
  'server error': (call) => call.fail(500, 'oops'),
  overloaded: (call) => call.fail(529, 'overloaded'),
  'no answer': (call) => call.closed,
  'headers, then silence': (call) => call.raw(': here I am\n\n').closed,
  'broken connection': async (call, { say }) => (await call.text(half(say)).sent()).cut(),
  'broken connection behind the calls': async (call, { say, tools = [] }) => {
    call.text(say);
    for (const { name, args, id } of tools) call.toolCall(name, args, id);
    (await call.sent()).cut();
  },
  'truncated JSON': (call, { say }) => call.text(half(say)).raw('data: {"choices":[{"index":0,"del\n\n').end(),
  'broken arguments': (call, { say, tools = [] }) => {
    call.text(say);
    for (const { name, id } of tools) call.toolCall(name, '{"amount": 10', id);
    call.finish(undefined, TOKENS);
  },
  'empty body': (call) => call.raw('').end(),
  'empty answer': (call) => call.finish(undefined, TOKENS),
  'end without a finish': (call, { say }) => call.text(half(say)).end(),
  'error in the stream': (call, { say }) =>
    call
      .text(half(say))
      .chunk({ error: { message: 'the model fell over', type: 'server_error', code: 500 } })
      .end(),
  'cost, then an error': (call, { say }) =>
    call
      .text(half(say))
      .chunk({ choices: [], usage: TOKENS })
      .chunk({ error: { message: 'too late' } })
      .end(),
};

/** With these the model has not started to work. */
const REFUSALS = new Set(['rate limit', 'come back tomorrow', 'bad request', 'time-out', 'server error', 'overloaded']);

/** A request to the model. */
interface Asked {
  /** Milliseconds of a monotonic clock. */
  at: number;
  /** It was to answer without tools. */
  isForced: boolean;
}

/** Responds as the last plan in the conversation says. */
export class PlannedModel {
  /** The number of faults among its responses. */
  faults = 0;
  readonly #asked = new Map<string, Asked[]>();
  readonly #goOn = new Map<string, PromiseWithResolvers<void>>();

  /** How often a step of a plan was requested. */
  attempts(plan: Plan, step: number): number {
    return this.asked(plan, step).length;
  }

  /** When a step of a plan was requested: milliseconds of a monotonic clock. */
  askedAt(plan: Plan, step: number): number[] {
    return this.asked(plan, step).map(({ at }) => at);
  }

  /** The requests for a step of a plan. */
  asked(plan: Plan, step: number): Asked[] {
    return this.#asked.get(`${plan.id}/${step}`) ?? [];
  }

  /** An attempt at a plan that has paused sends the rest. */
  goOn(plan: Plan, attempt = 0): void {
    this.#mayGoOn(plan, attempt).resolve();
  }

  /** How often the model has started to work on a step. */
  begun(plan: Plan, step: number): number {
    const attempts = this.attempts(plan, step);
    const faults = plan.steps[step]?.faults?.slice(0, attempts) ?? [];
    return attempts - faults.filter((fault) => REFUSALS.has(fault)).length;
  }

  async answer(call: ModelCall): Promise<void> {
    const place = placeOf(call.request);
    const planned = place?.plan.steps[place.step];
    if (!place || !planned) return call.text('Done.').finish();
    const key = `${place.plan.id}/${place.step}`;
    const asked = this.#asked.get(key) ?? [];
    const attempt = asked.length;
    const isForced = call.request['tool_choice'] === 'none';
    this.#asked.set(key, [...asked, { at: performance.now(), isForced }]);
    const step = { ...planned, ...answerOf(planned, attempt, isForced) };
    const fault = PROVIDER_FAULTS[step.faults?.[attempt] ?? ''];
    if (fault) {
      this.faults += 1;
      return fault(call, step);
    }

    let isGone = false;
    void call.closed.then(() => (isGone = true));
    const words = wordsOf(step.say);
    for (const [i, word] of [...words, undefined].entries()) {
      if (i === [step.hold].flat()[attempt]) {
        await Promise.race([call.closed, this.#mayGoOn(place.plan, attempt).promise]);
      }
      if (isGone) return;
      if (word !== undefined) call.text(word);
      if (step.pauseMs) await sleep(step.pauseMs);
    }
    for (const { name, args, id } of step.tools) call.toolCall(name, args, id);
    call.finish(undefined, TOKENS);
  }

  #mayGoOn({ id }: Plan, attempt: number): PromiseWithResolvers<void> {
    const known = this.#goOn.get(`${id}/${attempt}`) ?? Promise.withResolvers<void>();
    this.#goOn.set(`${id}/${attempt}`, known);
    return known;
  }
}

/** The response of an attempt at a step; the first one is 0. */
export function answerOf(
  { say, sayFirst, tools: planned = [], shuffles }: PlanStep,
  attempt: number,
  isForced: boolean,
): { say: string; tools: NonNullable<PlanStep['tools']> } {
  const tools = isForced ? [] : planned;
  const names = tools.map(({ name }) => name);
  if (shuffles) names.push(...names.splice(0, attempt % Math.max(1, names.length)));
  return {
    say: attempt === 0 ? (sayFirst ?? say) : say,
    tools: tools.map((tool, i) => ({ ...tool, name: names[i] ?? tool.name })),
  };
}

export function wordsOf(text: string): string[] {
  return text.match(/\S+\s*/g) ?? [];
}

/** Part of every message, to be searched where none of it may be found. */
export const SECRET = 'for nobody but the model';

/** The message that starts a turn with a plan. */
export function messageFor(plan: Plan): string {
  return JSON.stringify({ ...plan, note: SECRET });
}

/** The answer to a call that waits for a human. */
export function approval(
  status: 'allow' | 'deny',
  toolCallId: string,
  { threadId = 'main', edited }: { threadId?: string | undefined; edited?: object | undefined } = {},
): Record<string, unknown> {
  const decision = { status, ...(edited && { arguments: edited }) };
  return { type: 'user.tool_approval', thread_id: threadId, tool_call_id: toolCallId, approval: decision };
}

/** The answer to a tool that asks the user, with a word that the tool repeats. */
export function answer(toolCallId: string, word: string, threadId = 'main'): Record<string, unknown> {
  const content = JSON.stringify({ action: 'accept', content: { word } });
  return { type: 'user.tool_response', thread_id: threadId, tool_call_id: toolCallId, content };
}

export function planOf(content: unknown): Plan | undefined {
  if (typeof content !== 'string' || !content.startsWith('{')) return undefined;
  return planSchema.safeParse(JSON.parse(content)).data;
}

/** The plan of a request, and its step. */
export function placeOf({ messages }: ChatRequest): { plan: Plan; step: number } | undefined {
  // The server's own messages, which ask for another answer, are not plans.
  const asked = messages.findLastIndex(({ role, content }) => role === 'user' && planOf(content) !== undefined);
  const plan = planOf(messages[asked]?.content);
  if (!plan) return undefined;
  return { plan, step: messages.slice(asked).filter(({ role }) => role === 'assistant').length };
}
