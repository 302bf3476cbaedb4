import type { LanguageModelV4Message, SharedV4ProviderOptions } from '@ai-sdk/provider';
import { z } from 'zod';
import type { ModelMessage } from '../../core/records/message.ts';
import { parsedJson } from '../../lib/json.ts';
import { acceptedId, acceptedName, isBlank } from '../accepted.ts';
import type { Dialect } from './ai-sdk.ts';
import type { AssistantPart, HostedSearch } from './hosted-search.ts';
import { partsOf, type MessagePart } from '../message-blocks.ts';
import type { ModelRequest } from '../provider.ts';

/** An earlier message, in the order in which the provider wrote its parts. */
export async function assistantMessage(
  message: ModelMessage,
  { key, search, callId = acceptedId }: Pick<Dialect, 'key' | 'search' | 'callId'>,
  { webSearch, fileContent }: Pick<ModelRequest, 'webSearch' | 'fileContent'>,
): Promise<LanguageModelV4Message & { role: 'assistant' }> {
  const options = (fields: Record<string, unknown> | undefined) => {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- JSON of the same provider
    const own = fields as SharedV4ProviderOptions[string] | undefined;
    return own && Object.keys(own).length > 0 ? { providerOptions: { [key]: own } } : {};
  };
  const parts = partsOf(message);
  const searches = sentSearches(parts, webSearch && search);
  const sent = (part: MessagePart): AssistantPart[] => {
    switch (part.type) {
      case 'hosted':
        return [searches?.get(part) ?? []].flat();
      case 'call': {
        const { id, name, arguments: args, providerFields } = part.call;
        const call = { toolCallId: callId(id), toolName: acceptedName(name), input: parsedArguments(args) };
        return [{ type: 'tool-call', ...call, ...options(providerFields) }];
      }
      case 'reasoning':
        return [{ type: 'reasoning', text: part.text, ...options(part.fields) }];
      case 'text': {
        const cited = searches && part.citations.length > 0 ? search?.citing?.(part.citations) : undefined;
        const fields = { ...part.fields, ...cited };
        if (isBlank(part.text) && Object.keys(fields).length === 0) return [];
        return [{ type: 'text', text: part.text, ...options(fields) }];
      }
    }
  };
  const content = parts.flatMap(sent);
  for (const { file, providerFields } of message.images ?? []) {
    const data = { type: 'data' as const, data: await fileContent(file) };
    content.push({ type: 'file', mediaType: file.mimeType, data, ...options(providerFields) });
  }
  return { role: 'assistant', content };
}

/** Providers reject arguments that are not an object, even from their own model; the result describes the error. */
function parsedArguments(text: string): unknown {
  return z.record(z.string(), z.unknown()).safeParse(parsedJson(text)).data ?? {};
}

/**
 * The searches of an earlier message, as a later request contains them; undefined if one of them cannot be sent. The
 * citations are then left out, too, since they refer to the results.
 */
function sentSearches(
  parts: MessagePart[],
  search: HostedSearch | undefined,
): Map<MessagePart, AssistantPart> | undefined {
  const sent = new Map<MessagePart, AssistantPart>();
  for (const part of parts) {
    if (part.type !== 'hosted') continue;
    const one = search?.sent(part.hosted, part.fields);
    if (!one) return undefined;
    sent.set(part, one);
  }
  return sent;
}
