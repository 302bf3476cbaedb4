import type { BlobStore } from '../../../blobs/blob-store.ts';
import { unlessLost } from '../../../blobs/offload.ts';
import type { WithoutId } from '../../../core/records/base.ts';
import type { StoredFile } from '../../../core/records/input.ts';
import type { FullText, ToolResponse } from '../../../core/records/results.ts';
import { outcomeText } from '../../../core/tool-records.ts';
import { parsedJson } from '../../../lib/json.ts';
import type { CallReply } from '../kernel/kernel-calls.ts';

interface ReplySources {
  blobs: BlobStore;
  sessionId: string;
  /** The maximum bytes (UTF-8) of a result for code. */
  maxBytes: number;
}

/** The reply to code for the result of a tool call. Without a result, the call was not executed. */
export async function replyOf(
  { number, name }: { number: number; name: string },
  response: WithoutId<ToolResponse> | undefined,
  sources: ReplySources,
): Promise<CallReply> {
  if (!response) return { number, status: 'failed', message: `${name}: ${outcomeText('cancelled')}` };
  const { outcome, content } = response;
  switch (outcome) {
    case 'succeeded': {
      const structured = await structuredOf(response, sources);
      // The text of a result that was cut when it was stored is in the blob store.
      const text = response.fullText && (await textOf(response.fullText, sources));
      return { number, status: 'succeeded', content: text ?? content, ...(structured !== undefined && { structured }) };
    }
    case 'denied':
      return { number, status: 'denied', message: `${name} was denied${content === '' ? '' : `: ${content}`}` };
    case 'expired':
    case 'unknown_outcome':
      return { number, status: outcome, message: `${name}: ${content}` };
    case 'failed':
    case 'cancelled':
      return { number, status: 'failed', message: `${name}: ${content}` };
  }
}

/** Structured content that differs from the text is stored as a file; otherwise the text may be JSON. */
async function structuredOf(
  { content, structuredContent }: Pick<ToolResponse, 'content' | 'structuredContent'>,
  sources: ReplySources,
): Promise<unknown> {
  const json = structuredContent ? await textOf(structuredContent, sources) : content;
  return json === undefined ? undefined : parsedJson(json);
}

/** The text of a file; undefined if it is too large, or lost. */
async function textOf(
  file: StoredFile | FullText,
  { blobs, sessionId, maxBytes }: ReplySources,
): Promise<string | undefined> {
  if (file.bytes > maxBytes) return undefined;
  if ('base64' in file) return Buffer.from(file.base64, 'base64').toString();
  const bytes = await unlessLost(blobs.get(sessionId, file.blob));
  return bytes?.toString();
}
