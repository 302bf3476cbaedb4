import { onAbort } from '../lib/abort.ts';
import { SilenceTimer } from '../lib/timeout.ts';
import { tooLongError } from './http-failure.ts';
import { ModelError } from './model-error.ts';
import { MAX_SILENCE_SECONDS, type ModelChunk, type SilenceLimits } from './provider.ts';

/** Characters in the texts, names and arguments of a message: many times what models write, and all that streams live. */
const MAX_TEXT_LENGTH = 4 * 1024 * 1024;

/** Characters of base64 media: nearly 3 min of speech as samples. A Runs API event of at most 32 MiB has it twice. */
const MAX_MEDIA_LENGTH = 10 * 1024 * 1024;

/** Usage follows the finish reason immediately; some servers then keep the connection open. */
export const AFTER_FINISH_MS = 1_000;

interface ResponseOptions {
  signal: AbortSignal;
  /** A response of which nothing arrives for longer than this has stalled. */
  silence: SilenceLimits;
  /** As in the request. */
  stalls: number | undefined;
  /** Converts an error of the provider's client to a ModelError; unknown errors are returned unchanged. */
  failureOf: (error: unknown) => unknown;
}

export interface RequestGuard {
  /** Aborts the request. Without a reason: clients recognize an aborted stream by the AbortError that results. */
  controller: AbortController;
  /** Copies the response, to detect silence. `onBytes` gets the bytes that are read of the body. */
  watch: (response: Response, onBytes?: (bytes: Uint8Array) => void) => Response;
}

/**
 * Reads a response under the limits that hold for every provider: silence, length, and the time after the end. Ends
 * without an error if `signal` is aborted.
 * @throws ModelError
 */
export async function* guardedResponse(
  { signal, silence, stalls = 0, failureOf }: ResponseOptions,
  read: (guard: RequestGuard) => AsyncIterable<ModelChunk>,
): AsyncGenerator<ModelChunk> {
  const patience = (seconds: number) => Math.min(seconds * 2 ** stalls, MAX_SILENCE_SECONDS);
  let limit = patience(silence.firstChunkSeconds);
  const idle = new SilenceTimer(limit * 1000);
  let hasBegun = false;
  const controller = new AbortController();
  let isStopped = false;
  const stop = (): void => {
    isStopped = true;
    controller.abort();
  };
  const stopListening = onAbort(signal, stop);
  onAbort(idle.signal, stop);
  let finishing: NodeJS.Timeout | undefined;
  let rest: BodyReader | undefined;
  let length = 0;
  let mediaLength = 0;
  const watch: RequestGuard['watch'] = (response, onBytes) => {
    idle.reset();
    const reader = response.body?.getReader();
    if (!reader) return response;
    const body = new ReadableStream<Uint8Array>(
      {
        async pull(stream) {
          const { done, value } = await reader.read();
          idle.reset();
          if (value) onBytes?.(value);
          if (done) stream.close();
          else stream.enqueue(value);
        },
        // OpenAI's client does not read on after `[DONE]`.
        cancel: () => (finishing ? void (rest = reader) : reader.cancel()),
      },
      { highWaterMark: 0 },
    );
    return new Response(body, response);
  };
  try {
    for await (const part of read({ controller, watch })) {
      length += lengthOf(part);
      if (length > MAX_TEXT_LENGTH) throw tooLongError(`is longer than ${MAX_TEXT_LENGTH} characters`);
      mediaLength += (part.audio?.data?.length ?? 0) + (part.image?.base64.length ?? 0);
      if (mediaLength > MAX_MEDIA_LENGTH) {
        throw tooLongError(`has more than ${MAX_MEDIA_LENGTH} characters of audio and images`);
      }
      if (!hasBegun && isPiece(part)) {
        hasBegun = true;
        limit = patience(silence.idleSeconds);
        idle.change(limit * 1000);
      }
      if (part.finishReason !== undefined) finishing ??= setTimeout(stop, AFTER_FINISH_MS);
      yield part;
    }
  } catch (error) {
    // OpenAI's client aborts the request itself when it fails.
    if (!isStopped) throw failureOf(error);
  } finally {
    idle.stop();
    stopListening();
    const end = (): void => clearTimeout(finishing);
    // Only a connection whose response was read to its end serves the next call. `finishing` limits the time.
    if (rest) {
      void readToEnd(rest).then(end);
    } else {
      end();
      controller.abort();
    }
  }
  // Some servers keep the connection open after a complete message.
  if (finishing || signal.aborted) return;
  if (idle.signal.aborted) throw new ModelError('stalled', `the model sent nothing for ${limit} seconds`);
  throw new ModelError('broken_stream', 'the model ended its answer in the middle');
}

/** Whether the model has written something: the beginning of a message or of a thought may come long before. */
function isPiece({ content, refusal, reasoning, toolCalls, audio, image }: ModelChunk): boolean {
  return [content, refusal, reasoning, toolCalls, audio, image].some((one) => one !== undefined);
}

type BodyReader = ReadableStreamDefaultReader<Uint8Array>;

/** Never throws: what is left is not used. */
async function readToEnd(reader: BodyReader): Promise<void> {
  try {
    while (!(await reader.read()).done);
  } catch {
    // The connection is closed.
  }
}

function lengthOf(chunk: ModelChunk): number {
  const { content = '', refusal = '', reasoning = '', toolCalls = [], audio, image } = chunk;
  const calls = toolCalls.map(
    (call) => (call.id ?? '') + (call.name ?? '') + (call.arguments ?? '') + json(call.providerFields),
  );
  const data = [chunk.providerFields, chunk.hosted, chunk.citations, image?.providerFields].map(json);
  const texts = [content, refusal, reasoning, audio?.transcript ?? '', ...data, ...calls];
  return texts.reduce((sum, text) => sum + text.length, 0);
}

function json(fields: object | undefined): string {
  return fields ? JSON.stringify(fields) : '';
}
