import type { ModelMessage } from '../core/records.ts';
import type { TranscriptItem } from '../core/transcript.ts';
import type { ModelTarget } from './providers.ts';

/**
 * The conversation without the opaque fields of other providers and families of models: a provider rejects a signature
 * that it has not made, and must not learn what another one has encrypted.
 */
export function withoutForeignFields(
  transcript: TranscriptItem[],
  target: Pick<ModelTarget, 'providerName' | 'model'>,
): TranscriptItem[] {
  return transcript.map((item) =>
    item.role !== 'assistant' || isOf(item.message, target) ? item : { ...item, message: withoutFields(item.message) },
  );
}

function isOf({ provider, model = '' }: ModelMessage, target: Pick<ModelTarget, 'providerName' | 'model'>): boolean {
  return provider === target.providerName && family(model) === family(target.model);
}

function withoutFields(message: ModelMessage): ModelMessage {
  const { providerFields: _, sections: __, toolCalls, images, ...rest } = message;
  const calls = toolCalls.map((call) => {
    const { providerFields: ___, ...own } = call;
    return own;
  });
  return { ...rest, toolCalls: calls, ...(images && { images: images.map(({ file }) => ({ file })) }) };
}

/** The name of a model without its version: `gpt-5-2025-08-07`, `claude-sonnet-4-5-20250929`, `claude-3-7-sonnet-latest`. */
function family(model: string): string {
  return model.replace(/-(?:latest|\d{8}|\d{4}-\d{2}-\d{2})$/, '');
}
