import { z } from 'zod';
import { parsedJson } from '../../lib/json.ts';
import { ModelError } from '../model-error.ts';
import type { PausedResponse } from '../ai-sdk/ai-sdk.ts';

/** Characters of a message before its pauses: Anthropic takes requests of at most 32 MB. */
const MAX_SENT_LENGTH = 32_000_000;

type Block = Record<string, unknown>;

const block = z.record(z.string(), z.unknown());

const events = z.discriminatedUnion('type', [
  z.object({ type: z.literal('content_block_start'), index: z.int(), content_block: block }),
  z.object({
    type: z.literal('content_block_delta'),
    index: z.int(),
    delta: z.discriminatedUnion('type', [
      z.object({ type: z.literal('text_delta'), text: z.string() }),
      z.object({ type: z.literal('thinking_delta'), thinking: z.string() }),
      z.object({ type: z.literal('signature_delta'), signature: z.string() }),
      z.object({ type: z.literal('input_json_delta'), partial_json: z.string() }),
      z.object({ type: z.literal('citations_delta'), citation: z.unknown() }),
    ]),
  }),
  z.object({ type: z.literal('message_delta'), delta: z.object({ stop_reason: z.string().nullish() }) }),
]);

const request = z.looseObject({ messages: z.array(z.unknown()) });

/**
 * Continues a message that ends with `pause_turn`, as it does after many searches: the request is repeated with the
 * blocks so far, unchanged, as its last message.
 * https://platform.claude.com/docs/en/agents-and-tools/tool-use/server-tools
 */
export class AnthropicPause implements PausedResponse {
  isPaused = false;
  /** The content blocks of the responses before the last pause. */
  readonly #said: Block[] = [];
  /** The content blocks of the response that is being read, by their index; `json`: the input that arrives in pieces. */
  #blocks = new Map<number, { block: Block; json: string }>();

  add(event: unknown): void {
    const { data } = events.safeParse(event);
    if (data?.type === 'content_block_start')
      this.#blocks.set(data.index, { block: { ...data.content_block }, json: '' });
    else if (data?.type === 'content_block_delta') this.#grow(data.index, data.delta);
    else if (data?.delta.stop_reason === 'pause_turn') this.#pause();
  }

  continued(body: string): string {
    this.isPaused = false;
    if (this.#said.length === 0) return body;
    const { messages, ...rest } = request.parse(JSON.parse(body));
    const sent = JSON.stringify({ ...rest, messages: [...messages, { role: 'assistant', content: this.#said }] });
    if (sent.length > MAX_SENT_LENGTH)
      throw new ModelError('bad_request', 'the model has paused an answer that is too long to be continued');
    return sent;
  }

  #pause(): void {
    this.isPaused = true;
    for (const { block: said, json } of this.#blocks.values()) this.#said.push(json ? withInput(said, json) : said);
    this.#blocks = new Map();
  }

  #grow(index: number, delta: (z.infer<typeof events> & { type: 'content_block_delta' })['delta']): void {
    const growing = this.#blocks.get(index);
    if (!growing) return;
    const { block: said } = growing;
    const append = (field: string, text: string): void => {
      const { [field]: before } = said;
      said[field] = typeof before === 'string' ? before + text : text;
    };
    switch (delta.type) {
      case 'text_delta':
        return append('text', delta.text);
      case 'thinking_delta':
        return append('thinking', delta.thinking);
      case 'signature_delta':
        return append('signature', delta.signature);
      case 'input_json_delta':
        growing.json += delta.partial_json;
        return;
      case 'citations_delta':
        said['citations'] = [...(Array.isArray(said['citations']) ? said['citations'] : []), delta.citation];
    }
  }
}

function withInput(said: Block, json: string): Block {
  const input = parsedJson(json);
  return input === undefined ? said : { ...said, input };
}
