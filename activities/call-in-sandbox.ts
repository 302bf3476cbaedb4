import { randomUUID } from 'node:crypto';
import { offloadResult } from '../src/blobs/offload.ts';
import type { Called } from '../src/core/attempts.ts';
import type {
  CallToolInput,
  CallToolResult,
  InterruptCellInput,
  ResumeCellInput,
  ResumeCellResult,
} from '../src/core/history.ts';
import { KERNEL } from '../src/core/call-order.ts';
import { hasSummary } from '../src/core/compacted.ts';
import { newestAuthor } from '../src/core/deciders.ts';
import type { NewRecord, UnsequencedRecord } from '../src/core/records/log.ts';
import { callKey, unsuccessfulResponse } from '../src/core/tool-records.ts';
import { calledTool } from '../src/core/timeline.ts';
import type { BlobStore } from '../src/blobs/blob-store.ts';
import type { Conversations } from '../src/engine/conversations.ts';
import { retryWhileUnavailable, storeWhileUnavailable } from '../src/engine/retry.ts';
import type { TurnLogReader } from '../src/engine/turn-log-reader.ts';
import type { Catalog } from '../src/features/catalog.ts';
import { knownKernel } from '../src/features/code/last-cell.ts';
import type { CodeCalls } from '../src/features/code/host/code-calls.ts';
import type { CodeStep } from '../src/features/code/host/code-step.ts';
import { NEVER_ABORTED } from '../src/lib/abort.ts';
import { rejectResetRun } from '../src/temporal/reject-reset-run.ts';
import { storeToolResult } from '../src/tools/results.ts';
import { StartedOnce } from './started-once.ts';

interface SandboxDependencies {
  catalog: Pick<Catalog, 'agents'>;
  conversations: Pick<Conversations, 'toolCall' | 'soFar'>;
  logs: Pick<TurnLogReader, 'responses'>;
  blobs: BlobStore;
  calls: CodeCalls;
}

/** The activities that the host of a session's sandbox runs, on its own task queue. */
export function createCallsInSandbox(dependencies: SandboxDependencies) {
  const { catalog, conversations, logs, calls } = dependencies;
  const started = new StartedOnce<CodeStep, CallToolResult>();
  const resumed = new StartedOnce<CodeStep | { lost: string }, ResumeCellResult>();

  /** Runs a call until it ends, or until its code waits for the results of its own calls. */
  async function callTool(input: CallToolInput): Promise<CallToolResult> {
    rejectResetRun(input);
    let called: Called = {};
    return started.run({
      key: `${input.turnId} ${callKey(input)}`,
      called: () => called,
      prepare: async (signal) => {
        // The log is read once, since the message of the call was produced by another process.
        const recent = await retryWhileUnavailable(() => conversations.soFar(input, signal), signal);
        const find = () => Promise.all([conversations.toolCall(input), catalog.agents.spec(input.specHash)]);
        const [call, spec] = await retryWhileUnavailable(find, signal);
        called = calledTool(call);
        const usesKernel = call.route.to === 'server' && call.route.order?.server === KERNEL;
        const records = usesKernel ? await conversation(dependencies, { input, recent }, signal) : [];
        const requesters = requestersIn(records, input);
        return (cancelled) => calls.run({ input, call, spec, records, requesters }, cancelled);
      },
      store: async (step) => store(dependencies, input, step),
      notStarted: () => {
        const record = unsuccessfulResponse(input, 'cancelled', new Date().toISOString());
        return { records: [record], stamp: randomUUID() };
      },
    });
  }

  /** Resumes a waiting cell with the results of its calls, and runs it until it ends or waits again. */
  async function resumeCell(input: ResumeCellInput): Promise<ResumeCellResult> {
    rejectResetRun(input);
    const { turnId, threadId, step, cell } = input;
    return resumed.run({
      // If two branches of a conversation resume the same cell, the second one finds it gone.
      key: `${turnId} ${threadId} ${step} ${input.isCheck ? 'check' : ''}`,
      prepare: async (signal) => {
        const lost = await calls.lossOf(input, signal);
        if (lost !== undefined) return () => Promise.resolve({ lost });
        if (input.isCheck) {
          calls.cells.decided(input);
          return () => Promise.resolve({ records: [] });
        }
        const { commands } = input;
        const ids = calls.cells.awaited(threadId).filter((id) => !commands.includes(id));
        const responses = await retryWhileUnavailable(() => logs.responses(input, ids, signal), signal);
        return (cancelled) => calls.resume(input, { responses, commands }, cancelled);
      },
      store: async (end) => {
        if ('lost' in end) return { records: [], stamp: randomUUID(), lost: end.lost };
        return store(dependencies, { ...input, ...cell }, end);
      },
      // The cell is closed with its turn.
      notStarted: () => ({ records: [], stamp: randomUUID() }),
    });
  }

  /** Interrupts a cell that runs or begins later in this turn, or with `heldPiece` only has the host begin no calls. */
  async function interruptCell(input: InterruptCellInput): Promise<void> {
    rejectResetRun(input);
    const { heldPiece } = input;
    if (heldPiece === undefined) calls.cells.interrupt(input);
    else calls.cells.pause(input, heldPiece);
    return Promise.resolve();
  }

  return { callTool, resumeCell, interruptCell };
}

/** The records that name the thread's kernel. A summary does not name it, so the records before it are read as well. */
async function conversation(
  { conversations }: SandboxDependencies,
  { input, recent }: { input: CallToolInput; recent: UnsequencedRecord[] },
  signal: AbortSignal,
): Promise<UnsequencedRecord[]> {
  const { threadId } = input;
  if (knownKernel(recent, threadId) || !hasSummary(recent, threadId)) return recent;
  return retryWhileUnavailable(() => conversations.soFar(input, signal, { isWhole: true }), signal);
}

/** The ids of the subjects that requested the code: the session's owner, and the author of the newest message. */
function requestersIn(records: readonly UnsequencedRecord[], { owner }: Pick<CallToolInput, 'owner'>): string[] {
  return [...new Set([owner.subjectId, newestAuthor(records) ?? owner.subjectId])];
}

/** The effects of code cannot be undone, so storing its result is retried for as long as the store is unavailable. */
async function store(
  { blobs }: Pick<SandboxDependencies, 'blobs'>,
  { sessionId, threadId, toolCallId, edited }: Pick<CallToolInput, 'sessionId' | 'threadId' | 'toolCallId' | 'edited'>,
  step: CodeStep,
): Promise<CallToolResult> {
  const at = new Date().toISOString();
  /** A piece of a cell may have several messages of its code with their results. */
  const offloaded = (records: NewRecord[]): Promise<NewRecord[]> => {
    const messages = records.filter(({ kind }) => kind === 'model.message').length;
    return offloadResult(records, { blobs, sessionId }, Math.max(1, messages));
  };
  const tryToStore = async (): Promise<NewRecord[]> => {
    if ('records' in step) return offloaded(step.records);
    const { outcome, text, files, execution, saved, events, executed } = step;
    const content = await storeToolResult({ text, files }, { blobs, sessionId });
    const ran = { ...(execution && { execution }), ...(saved && { saved }) };
    const own = { ...(edited && { arguments: executed }), ...content, ...ran };
    const record: NewRecord = { kind: 'tool.response', at, threadId, toolCallId, outcome, ...own };
    return offloaded([...events, record]);
  };
  return { records: await storeWhileUnavailable(tryToStore, NEVER_ABORTED), stamp: randomUUID() };
}
