import { MessageAssembler } from '../../src/agents/message-assembler.ts';
import { firstCallOf } from '../../src/core/turn.ts';
import type { McpInitialized } from '../../src/core/records/servers.ts';
import type { SpeculativeCall } from '../../src/engine/speculation.ts';
import { modelRequest } from './model-request.ts';
import type { LiveBus } from '../../src/live/bus.ts';
import { InProcessBus } from '../../src/live/in-process-bus.ts';
import { OPTIONS_OF } from '../../src/models/model-options.ts';
import type { ModelChunk } from '../../src/models/provider.ts';
import { readAhead } from '../../src/features/speculation/read-ahead.ts';
import type { BegunCall } from '../../src/features/speculation/speculative-calls.ts';

interface BegunCallOptions {
  bus?: LiveBus;
  servers?: McpInitialized['servers'];
}

/** The speculative call of a turn that a worker has begun, for an agent without tools. */
export function begunCall(
  { turnId, createdAt }: SpeculativeCall,
  chunks: AsyncIterable<ModelChunk>,
  { bus = new InProcessBus(), servers = [] }: BegunCallOptions = {},
): BegunCall {
  const toolset = { tools: new Map(), servers, unavailable: [] };
  const provider = { stream: () => chunks, find: () => Promise.resolve(undefined) };
  const target = {
    provider,
    providerName: 'openai',
    model: 'm',
    options: OPTIONS_OF['openai-chat'],
    audioTypes: new Set<string>(),
    cost: () => undefined,
  };
  const message = new MessageAssembler({
    turnId,
    plan: firstCallOf({ turnId, createdAt, hasServers: servers.length > 0 }),
    attempt: 0,
    prepared: {
      toolset,
      conversation: [],
      files: { extracted: [], loadFile: () => undefined },
      request: modelRequest(),
      spec: { model: { name: 'm' } },
      target,
      hasFallback: false,
      repairs: 0,
    },
    bus,
  });
  return { message, parts: readAhead(chunks) };
}
