import type { BlobStore } from '../../../blobs/blob-store.ts';
import type { WithoutId } from '../../../core/records/base.ts';
import type { NewRecord } from '../../../core/records/log.ts';
import type { ToolResponse } from '../../../core/records/results.ts';
import { outcomeText } from '../../../core/tool-records.ts';
import { retryWhileUnavailable } from '../../../engine/retry.ts';
import { NEVER_ABORTED } from '../../../lib/abort.ts';
import { errorMessage } from '../../../lib/errors.ts';
import { KeyedSemaphore } from '../../../lib/keyed-semaphore.ts';
import type { CallReply } from '../kernel/kernel-calls.ts';
import { replyOf } from './call-replies.ts';
import { NOT_RUN, type CommandRequest, type Requested } from './code-message.ts';
import type { RunningCall } from './code-step.ts';
import { commandResult } from './code-thread-records.ts';

/** The bytes (UTF-8) of all results that code gets for concurrent requests. */
const MAX_ANSWERS_BYTES = 16 * 1024 * 1024;

/** The number of commands of a sandbox that run at once, each with the limits of a kernel. */
const MAX_COMMANDS = 4;

/** The reply to a request of code, and the results that it adds to the code's thread. */
interface RequestReply {
  answer: CallReply;
  records: NewRecord[];
}

export interface ReplyOptions extends RunningCall {
  threadId: string;
  sessionId: string;
  blobs: BlobStore;
  /** The responses to the calls, by their ids. */
  responses: ReadonlyMap<string, WithoutId<ToolResponse>>;
  /** The ids of the commands that may run now. */
  commands: readonly string[];
  /** When the time limit of the code is reached: milliseconds since 1970. */
  deadline: number;
}

const commandsAtOnce = new KeyedSemaphore(MAX_COMMANDS);

/** Runs the allowed commands, and reads the results of the other calls. A failure is returned as a reply, too. */
export function answerRequests(requested: readonly Requested[], options: ReplyOptions): Promise<RequestReply[]> {
  const maxBytes = Math.floor(MAX_ANSWERS_BYTES / requested.length);
  const { threadId, sessionId, blobs, responses } = options;
  const allowed = new Set(options.commands);
  return Promise.all(
    requested.map(async ({ request, ids }): Promise<RequestReply> => {
      if (request.kind === 'command' && ids.every((id) => allowed.has(id))) {
        return runCommand(request, ids, { ...options, maxBytes });
      }
      const { number } = request;
      const call = { number, name: request.kind === 'tool' ? request.tool : request.text };
      const results = ids.flatMap((id) => responses.get(id) ?? []);
      // A denied piece of a command line is more informative than the pieces that were therefore not executed.
      const response = results.find(({ outcome }) => outcome !== 'cancelled') ?? results[0];
      const read = () => replyOf(call, response, { blobs, sessionId, maxBytes });
      const answer = await retryWhileUnavailable(read, NEVER_ABORTED).catch((error: unknown) => failed(number, error));
      const left = ids.filter((id) => allowed.has(id));
      return { answer, records: left.map((id) => commandResult({ threadId, id }, 'cancelled', NOT_RUN)) };
    }),
  );
}

async function runCommand(
  { number, text, cwd }: CommandRequest,
  ids: readonly string[],
  { sandbox, actions, limits, signal, threadId, deadline, maxBytes }: ReplyOptions & { maxBytes: number },
): Promise<RequestReply> {
  const results = (outcome: 'succeeded' | 'failed' | 'cancelled', content: string): NewRecord[] =>
    ids.map((id) => commandResult({ threadId, id }, outcome, content));
  const run = async (): Promise<RequestReply> => {
    const timeoutMs = deadline - Date.now();
    if (signal.aborted || timeoutMs <= 0) {
      const reason = signal.aborted
        ? outcomeText('cancelled')
        : 'This command was not executed: the time limit was reached.';
      return { answer: { number, status: 'failed', message: reason }, records: results('cancelled', reason) };
    }
    const outputBytes = Math.min(limits.output_bytes, maxBytes);
    // Without the variables that code has set, which the approvers have not seen.
    const env = sandbox.environment(limits);
    const network = sandbox.network.allowing(actions.network.allow);
    const options = { text, cwd, env, network, timeoutMs, outputBytes, hidden: sandbox.hidden, signal };
    const { output, exitCode } = await sandbox.commands(limits).run(options);
    const answer = { number, status: 'exited', output, exitCode } as const;
    return { answer, records: results('succeeded', `exit code ${exitCode}`) };
  };
  try {
    return await commandsAtOnce.run(sandbox.id, run);
  } catch (error) {
    const answer = failed(number, error);
    return { answer, records: results('failed', `The command was not executed: ${errorMessage(error)}`) };
  }
}

function failed(number: number, error: unknown): CallReply {
  return { number, status: 'failed', message: errorMessage(error) };
}
