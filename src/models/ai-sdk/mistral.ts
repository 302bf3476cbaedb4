import { createMistral } from '@ai-sdk/mistral';
import type { LanguageModelV4FilePart, LanguageModelV4Message, LanguageModelV4Prompt } from '@ai-sdk/provider';
import { z } from 'zod';
import { sha256 } from '../../lib/hash.ts';
import type { Dialect } from './ai-sdk.ts';
import { errorIn } from './failure.ts';
import { reportedFailure } from '../provider-failure.ts';
import type { ProviderAccess } from '../provider.ts';

const DEFAULT_URL = 'https://api.mistral.ai/v1';

/** The last event has the usage, too. */
const ended = z.object({ choices: z.tuple([z.object({ finish_reason: z.string() })]) });

const failed = z
  .object({ object: z.literal('error'), message: z.string() })
  .or(z.object({ error: z.object({ message: z.string() }) }));

/** Mistral's chat completions, with thoughts among the parts of a message. */
export function mistral({ apiKey, baseUrl = DEFAULT_URL, headers }: ProviderAccess): Dialect {
  return {
    key: 'mistral',
    model: (id, fetch) => createMistral({ apiKey, baseURL: baseUrl, headers, fetch })(id),
    options: ({ params }) => ({ ...(params.parallel_tool_calls === false && { parallelToolCalls: false }) }),
    callId: (id) => (/^[a-zA-Z0-9]{9}$/.test(id) ? id : sha256(id).slice(0, 9)),
    conversation: inOrder,
    isLast: (event) => ended.safeParse(event).success,
    usageIn: () => undefined,
    failureIn: (event) => {
      const sent = failed.safeParse(event).data;
      const message = sent && ('error' in sent ? sent.error.message : sent.message);
      return message === undefined ? undefined : reportedFailure({ message, error: errorIn(event) });
    },
    lookup: { url: `${baseUrl}/models`, ownHeaders: { authorization: `Bearer ${apiKey}` }, headers },
  };
}

/**
 * The conversation in an order that Mistral accepts: it rejects a message of a user that follows results of tools
 * (`invalid_request_message_order`, code 3230), so a message of the model stands between them. Results of tools are
 * texts, so their images follow in a message of the user.
 */
function inOrder(prompt: LanguageModelV4Prompt): LanguageModelV4Prompt {
  const ordered: LanguageModelV4Message[] = [];
  let images: LanguageModelV4FilePart[] = [];
  const say = (message: LanguageModelV4Message & { role: 'user' }): void => {
    if (ordered.at(-1)?.role === 'tool') ordered.push({ role: 'assistant', content: [{ type: 'text', text: 'OK.' }] });
    ordered.push(message);
  };
  const flush = (): void => {
    if (images.length === 0) return;
    say({ role: 'user', content: [{ type: 'text', text: 'Files that the tools returned:' }, ...images] });
    images = [];
  };
  for (const message of prompt) {
    if (message.role === 'tool') {
      const { content, files } = withoutFiles(message);
      ordered.push({ ...message, content });
      images.push(...files);
      continue;
    }
    flush();
    if (message.role === 'user') say(message);
    else if (message.role === 'assistant') ordered.push(...withoutImages(message));
    else ordered.push(message);
  }
  flush();
  return ordered;
}

/** Images that another model has drawn cannot be sent as its own; a message of nothing else is left out. */
function withoutImages(message: LanguageModelV4Message & { role: 'assistant' }): LanguageModelV4Message[] {
  const content = message.content.filter(({ type }) => type !== 'file');
  return content.length > 0 ? [{ ...message, content }] : [];
}

type ToolMessage = LanguageModelV4Message & { role: 'tool' };

function withoutFiles({ content }: ToolMessage): Pick<ToolMessage, 'content'> & { files: LanguageModelV4FilePart[] } {
  const files: LanguageModelV4FilePart[] = [];
  const texts = content.map((part) => {
    if (part.type !== 'tool-result' || part.output.type !== 'content') return part;
    const { value } = part.output;
    files.push(...value.filter((one) => one.type === 'file'));
    const text = value.flatMap((one) => (one.type === 'text' ? one.text : [])).join('');
    return { ...part, output: { type: 'text' as const, value: text } };
  });
  return { content: texts, files };
}
