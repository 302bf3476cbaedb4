import { ZodError } from 'zod';
import { withoutOutput } from '../../../core/records/sandbox.ts';
import { retryWhileUnavailable } from '../../../engine/retry.ts';
import { errorMessage } from '../../../lib/errors.ts';
import { atMost, codeActionsOf, type KernelLimits } from '../../../spec/code-actions.ts';
import { IPYTHON, IPYTHON_RESET } from '../code-tools.ts';
import { SANDBOX_FOLDERS } from '../kernel/bubblewrap.ts';
import { parsedArguments } from '../permissions/call-action.ts';
import type { RuleSources } from '../permissions/code-rules.ts';
import type { Skills } from '../../skills/skills.ts';
import { DELETE_CODE_TOOL, SAVE_CODE_TOOL } from '../saved-tools/save-tool.ts';
import { linkCheck } from '../permissions/link-check.ts';
import { FILE_TOOLS, READ_FILE, type FileTool } from '../workspace/file-tools.ts';
import { notice } from './cell-result.ts';
import { Cells, type CellsOptions } from './cells.ts';
import { ofTool, type CodeCall, type CodeStep, type EndedCall, type RunningCall } from './code-step.ts';
import { deleteTool, SavedToolError, saveTool, type SavedCallSources } from './saved-calls.ts';
import type { SandboxHost } from './sandbox-host.ts';
import type { SessionSandbox } from './session-sandbox.ts';
import { fileOf, shownImages } from './shown-images.ts';

interface CodeCallsOptions extends CellsOptions, Pick<SavedCallSources, 'mayOnServer'> {
  host: SandboxHost;
  skills: Pick<Skills, 'files'>;
  catalog: CellsOptions['catalog'] & RuleSources & SavedCallSources['catalog'];
  /** The limits that the operator has set. */
  maxima: KernelLimits;
}

/** Runs the calls of the agents that act in code. */
export class CodeCalls {
  readonly cells: Cells;
  readonly #options: CodeCallsOptions;

  constructor(options: CodeCallsOptions) {
    this.cells = new Cells(options);
    this.#options = options;
  }

  /**
   * Runs a call until it ends or its code waits. It always has a result, since the effects of code cannot be undone.
   * @param signal interrupts it
   */
  async run(call: CodeCall, signal: AbortSignal): Promise<CodeStep> {
    try {
      return await this.#run(call, signal);
    } catch (error) {
      const text = `The tool call was not executed: ${problemOf(error)}`;
      const isCell = call.call.name === IPYTHON.name;
      return { ...ofTool(call), outcome: 'failed', text, ...(isCell && { execution: withoutOutput('not_started') }) };
    }
  }

  /** Why a cell no longer waits, also if a client has reset its kernel: see `Cells.lossOf`. */
  async lossOf(
    { threadId, step }: { threadId: string; step: number },
    signal: AbortSignal,
  ): Promise<string | undefined> {
    const sandbox = this.cells.runningOf(threadId)?.sandbox;
    try {
      if (sandbox) await retryWhileUnavailable(() => sandbox.reset(), signal);
    } catch (error) {
      if (signal.aborted) throw error;
      return errorMessage(error);
    }
    return this.cells.lossOf(threadId, step);
  }

  /** Resumes a waiting cell: see `Cells.resume`. `lost`: why it cannot be resumed, and no longer waits. */
  async resume(...resumed: Parameters<Cells['resume']>): Promise<CodeStep | { lost: string }> {
    const [{ threadId }] = resumed;
    const running = this.cells.runningOf(threadId);
    if (!running) return { lost: `the code of ${threadId} does not wait` };
    const resume = async () => stored(running, await this.cells.resume(...resumed));
    try {
      return await running.sandbox.use(running.actions.workspace, resume);
    } catch (error) {
      return { lost: errorMessage(error) };
    }
  }

  async #run(call: CodeCall, signal: AbortSignal): Promise<CodeStep> {
    const { sessionId, owner } = call.input;
    const { host, maxima } = this.#options;
    const actions = codeActionsOf(call.spec);
    if (!actions) throw new Error('the agent does not act in code');
    const { workspace } = actions;
    const sandbox = await host.sandbox(sessionId, { subject: owner.subjectId, workspace });
    const limits = atMost(actions.kernel, maxima);
    const running = { sandbox, limits, actions, signal };
    return sandbox.use(workspace, async () => {
      const step = await this.#runTool(call, running);
      return call.call.name === IPYTHON_RESET.name ? step : stored(running, step);
    });
  }

  async #runTool(call: CodeCall, running: RunningCall): Promise<CodeStep> {
    const { name } = call.call;
    const { sandbox } = running;
    if (name === IPYTHON.name) {
      await this.#writeSkills(call, sandbox);
      return this.cells.run(call, running);
    }
    if (name === IPYTHON_RESET.name) return this.cells.reset(call, sandbox.kernel(call.input.threadId, running));
    if (name === SAVE_CODE_TOOL.name || name === DELETE_CODE_TOOL.name) return this.#changeSavedTools(call, running);
    const tool = FILE_TOOLS.find((one) => one.name === name);
    if (!tool) throw new Error(`there is no tool ${name}`);
    const { path } = parsedArguments(call.call);
    if (tool === READ_FILE && isBelow(SANDBOX_FOLDERS.tools, path)) {
      // Written even if no code has run yet.
      await this.cells.writeModules(call, running);
      return runFileTool(READ_FILE, call, { sandbox, files: sandbox.tools });
    }
    if (tool === READ_FILE && isBelow(SANDBOX_FOLDERS.skills, path)) {
      await this.#writeSkills(call, sandbox);
      return runFileTool(READ_FILE, call, { sandbox, files: sandbox.skills });
    }
    const { permissionRules, sessions } = this.#options.catalog;
    const linked = linkCheck(tool, call, { permissionRules, sessions });
    const ended = await runFileTool(tool, call, { sandbox, files: sandbox.files.withLinks(linked) });
    return { ...ended, text: sandbox.hidden.mask(ended.text) };
  }

  async #changeSavedTools(call: CodeCall, running: RunningCall): Promise<EndedCall> {
    const { sandbox, signal } = running;
    const isDeletion = call.call.name === DELETE_CODE_TOOL.name;
    const loadToolset = () => this.cells.loadToolset(call, signal);
    try {
      const text = isDeletion
        ? await deleteTool(this.#options, call, signal)
        : await saveTool(this.#options, call, { sandbox, loadToolset, signal });
      return { ...ofTool(call), text };
    } catch (error) {
      if (!(error instanceof SavedToolError)) throw error;
      return { ...ofTool(call), outcome: 'failed', text: error.message };
    }
  }

  #writeSkills({ input, spec }: CodeCall, sandbox: SessionSandbox): Promise<void> {
    return sandbox.writeSkills(input, () => this.#options.skills.files(spec));
  }
}

/** Compares paths as written: there are no links in these folders. */
function isBelow(folder: string, path: unknown): boolean {
  return typeof path === 'string' && path.startsWith(`${folder}/`);
}

/** Why a call failed. The arguments are checked here if their check took too long when the call was routed. */
function problemOf(error: unknown): string {
  if (!(error instanceof ZodError)) return errorMessage(error);
  const problems = error.issues.map(({ path, message }) => [path.join('.'), message].filter(Boolean).join(': '));
  return `its arguments do not fit the tool's schema: ${problems.join('; ')}`;
}

/** Stores the files that a step has changed. */
async function stored(
  { sandbox, actions }: Pick<RunningCall, 'sandbox' | 'actions'>,
  step: CodeStep,
): Promise<CodeStep> {
  const notices = await sandbox.store(actions.workspace).catch((error: unknown) => {
    // The call has run, so it does not fail: the next call stores the files.
    return [`changed files are not stored yet, and are lost if this host is: ${errorMessage(error)}`];
  });
  if ('records' in step) return step;
  return { ...step, text: [step.text, ...notices.map(notice)].filter((part) => part !== '').join('\n') };
}

async function runFileTool<Files>(
  tool: FileTool<Files>,
  call: CodeCall,
  { sandbox, files }: { sandbox: SessionSandbox; files: Files },
): Promise<EndedCall> {
  const { text, isError, media } = await tool.run(JSON.parse(call.call.arguments), files, sandbox.hidden.values);
  const isImage = media?.mediaType.startsWith('image/') === true;
  const { images, problems } = isImage
    ? await shownImages([media], sandbox)
    : { images: media ? [media] : [], problems: [] };
  const lines = [text, ...problems.map(notice)].join('\n');
  return { ...ofTool(call), outcome: isError ? 'failed' : 'succeeded', text: lines, files: images.map(fileOf) };
}
