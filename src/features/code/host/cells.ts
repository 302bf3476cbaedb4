import { LRUCache } from 'lru-cache';
import { z } from 'zod';
import type { BlobStore } from '../../../blobs/blob-store.ts';
import type { Turns } from '../../../catalog/turns.ts';
import { resultId } from '../../../core/ids.ts';
import type { OutputPart } from '../../../core/output-parts.ts';
import { withoutOutput } from '../../../core/records/sandbox.ts';
import type { SubAgent } from '../../../core/records/threads.ts';
import type { CallToolInput, ResumeCellInput } from '../../../core/history.ts';
import { callKey, outcomeText } from '../../../core/tool-records.ts';
import { newId } from '../../../engine/new-id.ts';
import { retryWhileUnavailable } from '../../../engine/retry.ts';
import type { McpTools } from '../../../tools/mcp-tools.ts';
import { NEVER_ABORTED } from '../../../lib/abort.ts';
import { errorMessage } from '../../../lib/errors.ts';
import type { OutputBus } from '../../../live/output-link.ts';
import { knownKernel } from '../last-cell.ts';
import { codeRules } from '../permissions/code-rules.ts';
import type { PermissionRules } from '../permissions/rule-rows.ts';
import { mayHaveSavedTools, savedToolsOf } from '../saved-tools/saved-tool.ts';
import { savedModules, type SavedModules } from '../saved-tools/saved-modules.ts';
import type { SavedTools } from '../saved-tools/saved-tool-rows.ts';
import { answerRequests, type ReplyOptions } from './answer-requests.ts';
import { shownText, writeDisplays } from './cell-files.ts';
import { cellResult, kernelEvents } from './cell-result.ts';
import { codeMessage, type CodeMessage, type Requested } from './code-message.ts';
import {
  prependRecords,
  ofTool,
  type CodeCall,
  type CodeStep,
  type EndedCall,
  type RunningCall,
  type WaitingCode,
} from './code-step.ts';
import { commandResult, cellThreadDone } from './code-thread-records.ts';
import { loadCodeToolset, type CodeToolset, type CodeToolSources } from './code-toolset.ts';
import {
  resumeCode,
  hasThreadBegun,
  lostCell,
  threadBegin,
  cellWait,
  type CodeThread,
  type RunningThread,
  type Stop,
  type WaitingCell,
} from './code-thread.ts';
import { begun, DirectCalls } from './direct-calls.ts';
import { Interrupts } from './interrupts.ts';
import { Piece } from './piece.ts';
import { PublishedOutput } from './published-output.ts';
import type { SandboxHost } from './sandbox-host.ts';
import { fileOf, shownImages, type ShownImage } from './shown-images.ts';
import type { RanCell, StoppedCell, ThreadKernel } from './thread-kernel.ts';

export interface CellsOptions extends CodeToolSources {
  host: Pick<SandboxHost, 'environment' | 'metrics'>;
  catalog: {
    turns: Pick<Turns, 'chain'>;
    permissionRules: Pick<PermissionRules, 'in' | 'deleteCell'>;
    savedTools: Pick<SavedTools, 'list' | 'get'>;
  } & Parameters<typeof codeRules>[0];
  blobs: BlobStore;
  /** The bus on which the outputs of cells are published. */
  outputs: OutputBus;
  mcpTools: Pick<McpTools, 'tools' | 'run'>;
  /** The time-out of a tool call. */
  toolTimeoutMs: number;
}

/** The maximum number of turns of a conversation between two cells of a kernel. */
const MAX_TURNS_BETWEEN = 1_000;

/** More pieces than run at once. */
const MAX_PAUSED = 1_000;

const cellInput = z.object({ code: z.string(), timeout_seconds: z.int().positive().optional() });

/** Waiting code, and the turn in which it made the calls for which it waits. */
export interface AskingCode {
  sessionId: string;
  turnId: string;
  threadId: string;
}

/** The call of a cell, and the turn in which it runs. */
type CellInTurn = Pick<CallToolInput, 'turnId' | 'threadId' | 'toolCallId'>;

/** The results for waiting code. */
type Results = Pick<ReplyOptions, 'responses' | 'commands'>;

/** The cells of this host: running ones, and those that wait for the results of their calls. */
export class Cells {
  readonly #options: CellsOptions;
  /** By the threads of their code. */
  readonly #waiting = new Map<string, WaitingCell>();
  readonly #interrupts = new Interrupts();
  /** The pieces of cells in which turns were paused. */
  readonly #paused = new LRUCache<string, true>({ max: MAX_PAUSED });
  readonly #directCalls: DirectCalls;

  constructor(options: CellsOptions) {
    this.#options = options;
    this.#directCalls = new DirectCalls(options);
  }

  /** Runs a cell until it ends, or waits. */
  async run(call: CodeCall, running: RunningCall): Promise<CodeStep> {
    const { sandbox, limits, signal, actions } = running;
    const { turnId, threadId, toolCallId } = call.input;
    const { code, timeout_seconds: seconds = Infinity } = cellInput.parse(JSON.parse(call.call.arguments));
    const timeoutMs = Math.min(seconds, limits.timeout_seconds) * 1000;
    const known = knownKernel(call.records, threadId);
    const isOnBranch = await this.#isOnBranch(call, sandbox.lastTurns.get(threadId));
    const codeThread = newId('code');
    const cell = { id: codeThread, turnId, code, timeoutMs, known, isOnBranch };
    const kernel = sandbox.kernel(threadId, { limits, actions });
    const modules = await this.writeModules(call, { sandbox, signal });
    const published = { bus: this.#options.outputs, maxBytes: actions.results.inline_bytes };
    const output = new PublishedOutput(
      { ...published, call: { threadId, toolCallId, attempt: Date.now() } },
      { turnId, id: resultId(turnId, call.input.source), after: ordinalOf(call.records) },
    );
    const onOutput = (part: OutputPart): void => output.add(part);
    this.#endRunningOn(kernel);
    const stop = new AbortController();
    return this.#interrupts.during(keyOf(call.input), signal, stop, async () => {
      const ran = await kernel.run({ ...cell, modules, onOutput, signal: stop.signal }).catch((error: unknown) => {
        output.end();
        throw error;
      });
      sandbox.lastTurns.set(threadId, turnId);
      const { begun: started } = ran;
      if (started && 'reason' in started) this.#options.host.metrics.restarts.inc({ reason: started.reason });
      const { pythonVersion: python } = this.#options.host.environment();
      const at = new Date().toISOString();
      const events = kernelEvents(ran, { sandboxId: sandbox.id, threadId, python, at });
      const piece = new Piece(stop.signal, call.input.callsUntilMs);
      const thread = {
        kernel,
        threadId: codeThread,
        turnId,
        step: 1,
        waitedMs: 0,
        output,
        stop,
        piece,
        found: {},
        code,
      };
      return prependRecords(events, await this.#advance(call, { ...running, ...thread }, Promise.resolve(ran)));
    });
  }

  /** Why the cell of a thread no longer waits for the calls of its message number `step`; undefined if it does. */
  lossOf(threadId: string, step: number): string | undefined {
    const waiting = this.#waiting.get(threadId);
    if (!waiting) return 'it does not wait on its kernel host any more';
    if (waiting.step !== step) return 'it has gone on in another branch of the conversation';
    if (waiting.runsOn) return undefined;
    const loss = waiting.kernel.lossOf(threadId);
    if (loss !== undefined) this.#forget(threadId);
    return loss;
  }

  /** The sandbox and limits of a waiting cell; undefined if no cell of the thread waits. */
  runningOf(threadId: string): WaitingCell['running'] | undefined {
    return this.#waiting.get(threadId)?.running;
  }

  /** Called when all calls of a waiting cell were decided, and its tools are about to be called. */
  decided({ threadId, turnId }: { threadId: string; turnId: string }): void {
    const waiting = this.#waiting.get(threadId);
    if (!waiting) return;
    waiting.checkedAt ??= Date.now();
    waiting.asks ||= turnId !== waiting.turnId;
    // The code ends if this turn is cancelled, and is not left to another turn.
    waiting.turnId = turnId;
  }

  /** Interrupts a cell in a turn, also one that begins later in it. The cell then ends in the ordinary way. */
  interrupt(cell: CellInTurn): void {
    this.#interrupts.interrupt(keyOf(cell));
  }

  /** Called when the turn is paused: in this piece of the cell (numbered from 0), the host begins no more calls. */
  pause(cell: CellInTurn, piece: number): void {
    this.#paused.set(pieceKey(cell, piece), true);
  }

  /** The ids of the calls whose results a waiting cell needs. */
  awaited(threadId: string): string[] {
    return this.#waiting.get(threadId)?.requested.flatMap(({ ids }) => ids) ?? [];
  }

  /**
   * Resumes a waiting cell in a turn.
   * @param results the responses to its calls, and the commands that may run now
   * @param cancelled interrupts it, because the turn ends
   */
  async resume(
    resumed: Pick<ResumeCellInput, 'threadId' | 'turnId' | 'isInterrupted' | 'waitedMs' | 'callsUntilMs'>,
    results: Results,
    cancelled: AbortSignal,
  ): Promise<CodeStep> {
    const { threadId, turnId, isInterrupted } = resumed;
    const waiting = this.#waiting.get(threadId);
    if (!waiting) throw new Error(`the code of ${threadId} does not wait`);
    this.#waiting.delete(threadId);
    const { call, kernel, step, waitedMs, output, stop, runsOn } = waiting;
    const cell = { ...call.input, turnId };
    if (isInterrupted) this.interrupt(cell);
    const running = { ...waiting.running, signal: cancelled };
    return this.#interrupts.during(keyOf(cell), cancelled, stop, async () => {
      kernel.keep(threadId);
      // In another turn than the one in which the code began, its output may follow the first record.
      output.resumeIn({ turnId, id: resultId(turnId, call.input.source), after: 1 });
      const piece = new Piece(stop.signal, resumed.callsUntilMs);
      const thread = { ...running, kernel, threadId, turnId, step: step + 1, waitedMs, output, stop, piece, found: {} };
      const went = runsOn
        ? await this.#advance(call, thread, runsOn)
        : await this.#answer(waiting, { ...thread, ...cellWait(waiting, resumed) }, results);
      running.sandbox.lastTurns.set(call.input.threadId, turnId);
      return went;
    });
  }

  /** Replies to the requests of a waiting cell, and continues it. */
  async #answer(
    { call, requested }: WaitingCell,
    { calledAt, ...thread }: RunningThread & { calledAt: number },
    results: Results,
  ): Promise<CodeStep> {
    const { threadId, kernel } = thread;
    const deadline = calledAt + kernel.leftMs;
    // No command runs for code that was lost.
    const isLost = kernel.lossOf(threadId) !== undefined;
    const notRun = results.commands.map((id) => commandResult({ threadId, id }, 'cancelled', outcomeText('cancelled')));
    const answered = isLost ? [] : await this.#answers(call, requested, { ...thread, ...results, deadline });
    const answers = answered.map(({ answer }) => answer);
    const went = await this.#advance(call, thread, resumeCode(thread, answers, calledAt));
    return prependRecords(isLost ? notRun : answered.flatMap(({ records }) => records), went);
  }

  #answers(
    { input: { sessionId } }: CodeCall,
    requested: readonly Requested[],
    { stop, ...options }: RunningThread & Results & Pick<ReplyOptions, 'deadline'>,
  ): ReturnType<typeof answerRequests> {
    // Otherwise, a command that begins just after the death of the kernel would run until the time limit of the code.
    const signal = AbortSignal.any([stop.signal, options.kernel.whileWaiting(options.threadId)]);
    return answerRequests(requested, { ...options, signal, sessionId, blobs: this.#options.blobs });
  }

  /** Interrupts the cells that will get no replies: their turns have ended without leaving them to the next one. */
  async sweep(isLeft: (code: AskingCode) => Promise<boolean>): Promise<void> {
    for (const [threadId, waiting] of this.#waiting) {
      const { call, kernel, turnId, stop } = waiting;
      if (await isLeft({ sessionId: call.input.sessionId, turnId, threadId })) continue;
      // The cell may have resumed meanwhile.
      if (this.#waiting.get(threadId) !== waiting) continue;
      this.#forget(threadId);
      stop.abort();
      await kernel.abandon(threadId);
    }
  }

  /** Before another cell runs in a kernel, ends code that still runs there for an ended turn. */
  #endRunningOn(kernel: ThreadKernel): void {
    for (const [threadId, waiting] of this.#waiting) {
      if (waiting.kernel !== kernel || !waiting.runsOn) continue;
      this.#forget(threadId);
      waiting.stop.abort();
    }
  }

  /** Removes a waiting cell that will not resume. */
  #forget(threadId: string): void {
    this.#waiting.get(threadId)?.output.end();
    this.#waiting.delete(threadId);
  }

  /** The MCP tools that the code of a call may call. */
  loadToolset({ spec, input: { sessionId, owner } }: CodeCall, signal: AbortSignal): Promise<CodeToolset> {
    return loadCodeToolset(this.#options, { spec, scope: { sessionId, owner }, signal });
  }

  /** Writes the modules of the code's tools into the sandbox. Returns their hash. */
  async writeModules(call: CodeCall, { sandbox, signal }: Pick<RunningCall, 'sandbox' | 'signal'>): Promise<string> {
    const { sessions, savedTools } = this.#options.catalog;
    const load = async (): Promise<[CodeToolset, SavedModules]> => {
      const session = mayHaveSavedTools(call.spec) ? await sessions.get(call.input.sessionId) : undefined;
      const place = session && savedToolsOf(session, call.spec);
      return Promise.all([this.loadToolset(call, signal), savedModules(savedTools, place)]);
    };
    const [toolset, saved] = await retryWhileUnavailable(load, signal);
    return sandbox.writeModules(toolset, { ...saved, files: () => retryWhileUnavailable(saved.files, signal) });
  }

  /** Restarts the kernel of a thread. */
  async reset(call: CodeCall, kernel: ThreadKernel): Promise<EndedCall> {
    const generation = await kernel.reset(knownKernel(call.records, call.input.threadId));
    return { ...ofTool(call), text: 'The kernel was reset.', execution: { ...withoutOutput('ok'), generation } };
  }

  /** Runs a piece of a cell. @param next the next stop of its code */
  async #advance(call: CodeCall, thread: RunningThread, next: Promise<Stop>): Promise<CodeStep> {
    const { piece } = thread;
    const step = await this.#untilStep(call, thread, next).catch((error: unknown) => this.#lost(call, thread, error));
    piece.end();
    return prependRecords(piece.records, step);
  }

  /** Runs the calls that need no decision, until the code ends or needs its turn, or the piece ends. */
  async #untilStep(call: CodeCall, thread: RunningThread, next: Promise<Stop>): Promise<CodeStep> {
    const { piece, output } = thread;
    let stop = await next;
    while ('calls' in stop) {
      const stoppedAt = Date.now();
      output.flush();
      const asked = await this.#ask(call, stop, thread);
      const called = this.#mayCall(call, asked, thread) ? await this.#callDirectly(call, asked, thread) : asked;
      const isAnswered = called !== asked && called.results.length === called.message.toolCalls.length;
      const fits = !isAnswered || piece.fits([called.message, ...called.results]);
      if (!isAnswered || !fits) return this.#wait(call, { ...(fits ? called : begun(asked)), stop, stoppedAt }, thread);
      piece.records.push(...threadBegin(call, thread, called.message));
      piece.add([called.message, ...called.results]);
      const responses = new Map(called.results.map((result) => [result.toolCallId, result]));
      const answered = await this.#answers(call, called.requested, { ...thread, responses, commands: [], deadline: 0 });
      const answers = answered.map(({ answer }) => answer);
      const going = resumeCode(thread, answers, stoppedAt);
      const first = await Promise.race([going, piece.over]);
      if (!first) return this.#runOn(call, thread, going);
      stop = first;
    }
    if ('end' in stop) return this.#end(call, stop, thread);
    output.end();
    return lostCell(call, thread, { outcome: 'failed', text: `The code did not go on: ${stop.lost}` });
  }

  /** Whether the host may run the calls of a message itself. */
  #mayCall({ input }: CodeCall, asked: CodeMessage, { piece, turnId, step }: RunningThread): boolean {
    const isPaused = this.#paused.has(pieceKey({ ...input, turnId }, step - 1));
    return !isPaused && piece.mayCall && this.#directCalls.takes(asked);
  }

  #callDirectly(
    { input, spec }: CodeCall,
    asked: CodeMessage,
    { turnId, stop, piece }: RunningThread,
  ): Promise<CodeMessage> {
    piece.begin();
    return this.#directCalls.run(asked, { ...input, turnId, spec, stop: stop.signal, ending: piece.ending });
  }

  /** Ends a cell. Its code has run, so that later failures are reported as notices only. */
  async #end(call: CodeCall, ran: RanCell, thread: RunningThread): Promise<CodeStep> {
    const { sandbox, actions, signal, threadId, waitedMs, output } = thread;
    output.end();
    const isBegun = hasThreadBegun(thread);
    const { toolCallId } = call.input;
    const { files: displays, notices } = await writeDisplays(ran, { sandbox, toolCallId });
    const seen = actions.images === 'show' ? await shownImages(imagesOf(ran), sandbox) : { images: [], problems: [] };
    notices.push(...seen.problems);
    const { outcome, text, execution } = cellResult(ran, { files: displays, notices, isCancelled: signal.aborted });
    this.#options.host.metrics.cells.inc({ exit: execution.exit });
    if (isBegun) await this.#deleteRules(call);
    const shown = await shownText(text, { sandbox, toolCallId, results: actions.results });
    const files = [...shown.files, ...displays];
    return {
      ...ofTool(call),
      outcome,
      text: shown.text,
      files: seen.images.map(fileOf),
      ...(files.length > 0 && { saved: { sandboxId: sandbox.id, files } }),
      execution: { ...execution, ...(isBegun && { waitedMs }) },
      events: isBegun ? [cellThreadDone(call, { threadId, outcome, text, exit: execution.exit })] : [],
    };
  }

  /** The message with the calls of the code, as the policies and rules currently decide on them. */
  async #ask(call: CodeCall, { calls: requests }: StoppedCell, thread: RunningThread): Promise<CodeMessage> {
    const { spec, input } = call;
    const { sessionId } = input;
    const { catalog } = this.#options;
    const { threadId, sandbox, found } = thread;
    // Ignores the signal of the step, since the calls of the code have to be recorded.
    const signal = NEVER_ABORTED;
    found.toolset ??= await retryWhileUnavailable(() => this.loadToolset(call, signal), signal);
    const requesters = () => Promise.resolve(call.requesters);
    const cell = { threadId: input.threadId, toolCallId: input.toolCallId };
    const subAgent = subAgentOf(call.records, input.threadId);
    const sessions = { get: async (id: string) => (found.session ??= await catalog.sessions.get(id)) };
    const findRules = () =>
      codeRules({ permissionRules: catalog.permissionRules, sessions }, spec, { sessionId, subAgent, cell });
    const rules = await retryWhileUnavailable(findRules, signal);
    if (!rules) throw new Error('the agent does not act in code');
    const mask = (text: string): string => sandbox.hidden.mask(text);
    const options = { messageId: newId('msg'), threadId, cell, spec, toolset: found.toolset, rules, requesters, mask };
    return codeMessage(requests, options);
  }

  /** Stores a waiting cell. Returns the message with its calls. */
  #wait(
    call: CodeCall,
    { message, results, requested, asks, stop, stoppedAt }: CodeMessage & { stop: StoppedCell; stoppedAt: number },
    thread: RunningThread,
  ): WaitingCode {
    const { piece } = thread;
    if (piece.records.length > 0 && !piece.fits([message, ...results]))
      return this.#runOn(call, thread, Promise.resolve(stop));
    this.#noteWaiting(call, thread, { requested, asks, stoppedAt });
    return { records: [...threadBegin(call, thread, message), message, ...results] };
  }

  /** Ends a piece while the code continues: the turn begins the next piece at once. */
  #runOn(call: CodeCall, thread: RunningThread, runsOn: Promise<Stop>): WaitingCode {
    // The next piece handles the outcome.
    runsOn.catch(() => undefined);
    void thread.sandbox.runsOn(runsOn);
    this.#noteWaiting(call, thread, { runsOn, requested: [], asks: false, stoppedAt: Date.now() });
    return { records: [] };
  }

  #noteWaiting(
    call: CodeCall,
    { kernel, threadId, turnId, step, waitedMs, output, stop, sandbox, limits, actions }: RunningThread,
    asked: Pick<WaitingCell, 'runsOn' | 'requested' | 'asks' | 'stoppedAt'>,
  ): void {
    const running = { sandbox, limits, actions };
    this.#waiting.set(threadId, { call, turnId, step, running, kernel, waitedMs, output, stop, ...asked });
  }

  /** Deletes the rules that apply until the end of the cell. A rule that remains after an error is never read again. */
  async #deleteRules({ input }: CodeCall): Promise<void> {
    const { sessionId, threadId, toolCallId } = input;
    await this.#options.catalog.permissionRules.deleteCell(sessionId, { threadId, toolCallId }).catch(() => undefined);
  }

  /** Ends the kernel of a cell after an error: the code has run, but it is unknown how far. */
  async #lost(call: CodeCall, thread: CodeThread, error: unknown): Promise<EndedCall> {
    await thread.kernel.stop('died').catch(() => undefined);
    thread.output.end();
    const outcome = 'unknown_outcome';
    const text = `${outcomeText(outcome)} (${errorMessage(error)}; the variables of the kernel are lost)`;
    return lostCell(call, thread, { outcome, text });
  }

  /** Whether the conversation follows the turn of a kernel's last cell, so that the model has seen its variables. */
  async #isOnBranch({ records }: CodeCall, lastTurn: string | undefined): Promise<boolean> {
    const turns = records.flatMap((record) => (record.kind === 'turn.created' ? [record] : []));
    if (lastTurn === undefined || turns.some(({ turnId }) => turnId === lastTurn)) return true;
    const before = turns[0]?.previousTurnId;
    if (!before) return false;
    const chain = await this.#options.catalog.turns.chain(before, MAX_TURNS_BETWEEN);
    return chain.some(({ id }) => id === lastTurn);
  }
}

function keyOf(cell: CellInTurn): string {
  return `${cell.turnId} ${callKey(cell)}`;
}

/** The ordinal of the last record in the last turn of a conversation. */
function ordinalOf(records: CodeCall['records']): number {
  return records.length - records.findLastIndex(({ kind }) => kind === 'turn.created');
}

function pieceKey(cell: CellInTurn, piece: number): string {
  return `${keyOf(cell)} ${piece}`;
}

/** The images of a cell that models can see. */
function imagesOf({ end }: RanCell): ShownImage[] {
  const displays = 'cell' in end ? end.cell.displays : [];
  return displays.filter(({ mediaType }) => mediaType === 'image/png' || mediaType === 'image/jpeg');
}

/** The sub-agent whose model wrote the code. */
function subAgentOf(records: CodeCall['records'], threadId: string): SubAgent | undefined {
  const created = records.find((record) => record.kind === 'thread.created' && record.thread.threadId === threadId);
  return created?.kind === 'thread.created' ? created.thread : undefined;
}
