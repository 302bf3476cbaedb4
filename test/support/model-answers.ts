import { pino } from 'pino';
import { SectionDeltas } from '../../src/models/section-deltas.ts';
import { applyDelta, emptyText, type MessageText } from '../../src/core/message.ts';
import type { FinishReason, ModelMessage } from '../../src/core/records/message.ts';
import type { Usage } from '../../src/core/records/usage.ts';
import { storedSections } from '../../src/core/sections.ts';
import type { TranscriptItem } from '../../src/core/transcript.ts';
import { openProviders } from '../../src/models/open-providers.ts';
import type { ProviderConfig } from '../../src/models/provider-file.ts';
import type { ModelProvider, ModelRequest } from '../../src/models/provider.ts';
import type { ModelTarget } from '../../src/models/providers.ts';
import { Metrics } from '../../src/telemetry/metrics.ts';
import type { Endpoint } from './model-protocols.ts';
import { modelRequest } from './model-request.ts';

const log = pino({ level: 'silent' });
export const USER: TranscriptItem = { role: 'user', content: [{ type: 'text', text: 'hi' }] };
export const LOOK = { name: 'look', description: 'looks', parameters: { type: 'object', properties: { at: {} } } };
const never = new AbortController().signal;

export function requestOf(more: Partial<ModelRequest> = {}): ModelRequest {
  return modelRequest({
    model: 'm-1',
    system: 'Be brief.',
    instructionsLength: 9,
    transcript: [USER],
    fileContent: () => Promise.resolve(Buffer.from('image').toString('base64')),
    ...more,
  });
}

export interface Answer extends MessageText {
  usage: Usage | undefined;
  finishReason: FinishReason | undefined;
  blocks: unknown[];
}

/** Reads an answer to its end. */
export async function read(provider: ModelProvider, request = requestOf(), signal = never): Promise<Answer> {
  const text: MessageText = emptyText();
  const sections = new SectionDeltas();
  const answer = { usage: undefined as Usage | undefined, finishReason: undefined as FinishReason | undefined };
  const blocks: unknown[] = [];
  for await (const chunk of provider.stream(request, signal)) {
    const { toolCalls = [], usage, finishReason, providerFields, ...texts } = chunk;
    const info = { type: 'system' as const, name: 'look' };
    const { content, refusal, reasoning } = texts;
    const begun = sections.before(chunk, text);
    applyDelta(text, {
      ...(content && { content }),
      ...(refusal && { refusal }),
      ...(reasoning && { reasoning }),
      toolCalls: toolCalls.map((call) => ({ ...call, ...(call.name && { info }) })),
      ...(begun.length > 0 && { sections: begun }),
    });
    const more = sections.after(chunk, text);
    if (more.length > 0) applyDelta(text, { sections: more });
    if (usage) answer.usage = usage;
    if (finishReason) answer.finishReason = finishReason;
    if (Array.isArray(providerFields?.['blocks'])) blocks.push(...providerFields['blocks']);
  }
  return { ...text, ...answer, blocks };
}

/** The answer as the log keeps it. */
export function messageOf({ content, refusal, reasoning, toolCalls, sections, blocks }: Answer): TranscriptItem {
  const message: ModelMessage = {
    kind: 'model.message',
    id: 'msg_1',
    at: '2026-01-01T00:00:00.000Z',
    threadId: 'main',
    content,
    refusal,
    reasoning,
    toolCalls: toolCalls.map((call) => ({
      ...call,
      route: { to: 'server', effect: 'once', approval: false, callHash: '' },
    })),
    ...storedSections(sections),
    finishReason: 'tool_calls',
    providerFields: { blocks },
  };
  return { role: 'assistant', message };
}

/** A model of a provider at an endpoint of the test. */
export function openModel(
  { url: baseUrl }: Pick<Endpoint, 'url'>,
  kind: ProviderConfig['kind'],
  { idleSeconds = 1, headers = { 'x-team': 'a' } }: { idleSeconds?: number; headers?: Record<string, string> } = {},
): ModelTarget {
  const config = { kind, apiKey: 'the-key', baseUrl, headers, limits: undefined };
  const provider = { ...config, models: new Map(), acceptsSlashes: false };
  const access = { name: '', defaultName: 'p', providers: new Map([['p', provider]]) };
  return openProviders(access, {
    firstChunkSeconds: idleSeconds,
    idleSeconds,
    metrics: new Metrics(),
    log,
    shared: undefined,
    onResponse: () => undefined,
  }).resolve('m-1');
}
