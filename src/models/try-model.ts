import { userText } from '../core/transcript.ts';
import { errorMessage } from '../lib/errors.ts';
import type { Embeddings } from './embeddings.ts';
import { ModelError } from './model-error.ts';
import type { ModelTarget } from './providers.ts';
import { whatToCheck } from './wrong-address.ts';

/** OpenAI accepts no lower limit. */
const MAX_TOKENS = 16;

/** OpenAI's error for a reasoning model that has reached the limit before it has written anything: the model works. */
const LIMIT_REACHED = /model output limit was reached/i;

/**
 * Calls a model for a few tokens, with nothing of any agent or conversation. Returns why it cannot be used, in one text
 * without secrets, or undefined if it has responded. If the signal is aborted before, the model has not responded.
 */
export async function tryModel(
  { provider, model }: Pick<ModelTarget, 'provider' | 'model'>,
  signal: AbortSignal,
): Promise<string | undefined> {
  let hasResponded = false;
  const request = {
    model,
    params: { max_tokens: MAX_TOKENS },
    system: 'Answer with one word.',
    instructionsLength: 0,
    skillsLength: 0,
    transcript: [userText('Are you there?')],
    tools: [],
    responseFormat: undefined,
    fileContent: () => Promise.reject(new Error('there are no files')),
  };
  try {
    // An empty chunk means that the call has left the queue of its provider.
    for await (const chunk of provider.stream(request, signal)) hasResponded ||= Object.keys(chunk).length > 0;
  } catch (error) {
    return LIMIT_REACHED.test(errorMessage(error)) ? undefined : reasonOf(error);
  }
  return hasResponded ? undefined : 'has not answered';
}

/** The same of a model for embeddings. */
export async function tryEmbeddings(
  { embed }: Pick<Embeddings, 'embed'>,
  signal: AbortSignal,
): Promise<string | undefined> {
  try {
    await embed(['Are you there?'], signal);
    return undefined;
  } catch (error) {
    return reasonOf(error);
  }
}

function reasonOf(error: unknown): string {
  if (!(error instanceof ModelError)) return `internal error: ${errorMessage(error)}`;
  const { status, message } = error;
  const advice = whatToCheck(error);
  const reason = status === undefined ? message : `answered ${status}: ${message}`;
  return advice === undefined ? reason : `${reason}: ${advice}`;
}
