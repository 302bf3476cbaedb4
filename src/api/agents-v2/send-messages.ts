import type { Caller } from '../../core/subject.ts';
import type { SessionRow } from '../../catalog/schema.ts';
import type { InputItem, UserContentPart } from '../../core/records.ts';
import { controlTurn } from '../../engine/control-turn.ts';
import type { Engine } from '../../engine/engine.ts';
import { EngineError } from '../../engine/errors.ts';
import { TurnRequest } from '../../engine/turn-request.ts';
import { hashOf } from '../../lib/hash.ts';
import type { ApiContext } from '../http/context.ts';
import type { ApiError } from '../http/errors.ts';
import { checkFiles, readFiles, type SentFile } from '../http/sent-files.ts';
import type { UserMessage } from './wire/messages.ts';

type MessageServices = Engine & Pick<ApiContext, 'allowPrivateUrls'>;

interface SentMessages {
  /** From `authorizeSession`: the caller may send messages to it. */
  session: SessionRow;
  caller: Caller;
  messages: UserMessage[];
  /** Names the request, so that it is carried out once; undefined: equal requests within seconds are one. */
  key: string | undefined;
  rateLimitError: ApiError | undefined;
  /** This server's name in the request. */
  host: string | undefined;
}

/**
 * Gives messages to the running turn of a session, which resumes if it was paused, or starts one. When this returns, the
 * session has them, and every reader finds that it works.
 * @throws ApiError or EngineError
 */
export async function sendMessages(context: MessageServices, sent: SentMessages): Promise<void> {
  const { session, caller, messages, key, rateLimitError, host } = sent;
  using request = new TurnRequest(context, {
    sessionId: session.id,
    caller,
    key,
    bodyHash: hashOf(messages),
    previous: { turn: 'last' },
    onRunning: 'steer',
    answersCalls: false,
  });
  const files = filesToSend(messages);
  const loadInput = async () => toInput(messages, await readFiles(files, { ...context, caller, host }));
  const input = files.length > 0 ? loadInput : toInput(messages, []);
  await using turn = await request.claim({ session, input, rateLimitError });
  if ((await turn.steer()) === undefined) {
    await turn.start();
    await turn.whenIndexed();
  } else {
    await resume(context, { session, caller });
  }
  turn.acknowledge();
}

/** Resumes the running turn, whether its pause is in the log or takes effect after what it is doing. */
async function resume(context: MessageServices, turn: Pick<SentMessages, 'session' | 'caller'>): Promise<void> {
  try {
    await controlTurn(context, { ...turn, type: 'resume' });
  } catch (error) {
    // It has ended, or stays paused for its budget: the messages are part of it nevertheless.
    if (!(error instanceof EngineError) || !['nothing_running', 'budget_exceeded'].includes(error.code)) throw error;
  }
}

/** The files of messages, checked without reading them. @throws ApiError */
export function filesToSend(messages: UserMessage[]): SentFile[] {
  const files = messages.flatMap(filesOf);
  checkFiles(files);
  return files;
}

/** The files of a message, in order: its images, then its files. */
function filesOf({ images, files }: UserMessage, i: number): SentFile[] {
  return [
    ...(images ?? []).map((data, j) => ({ name: `image-${j + 1}`, data, param: `messages.${i}.images.${j}` })),
    ...(files ?? []).map(({ type, source, name, media_type: mediaType }, j) => {
      const data = type === 'url' ? source : `data:${mediaType ?? 'application/octet-stream'};base64,${source}`;
      return { name, data, param: `messages.${i}.files.${j}.source` };
    }),
  ];
}

function toInput(messages: UserMessage[], contents: Awaited<ReturnType<typeof readFiles>>): InputItem[] {
  const rest = [...contents];
  return messages.map((message, i): InputItem => {
    const own = rest.splice(0, filesOf(message, i).length);
    if (own.length === 0) return { type: 'user.message', content: message.message };
    const parts: UserContentPart[] = own.map(({ name, mimeType, base64 }) => ({
      type: 'file',
      name,
      mimeType,
      bytes: Buffer.byteLength(base64, 'base64'),
      base64,
    }));
    return { type: 'user.message', content: [{ type: 'text', text: message.message }, ...parts] };
  });
}
