import { callKey } from '../../../core/tool-records.ts';
import type { Agents } from '../../../catalog/agents.ts';
import { subjectOf, type Sessions } from '../../../catalog/sessions.ts';
import type { ServerAction } from '../../../auth/rights.ts';
import { retryWhileUnavailable } from '../../../engine/retry.ts';
import { NamedError } from '../../../lib/errors.ts';
import { listedTools } from '../tools/listed-tools.ts';
import { deleteInput, saveInput } from '../saved-tools/save-tool.ts';
import {
  importOf,
  MAX_SAVED_TOOLS,
  moduleOf,
  savedToolProblem,
  savedToolsOf,
  type SavedTool,
  type SavedToolOwner,
} from '../saved-tools/saved-tool.ts';
import type { SavedTools } from '../saved-tools/saved-tool-rows.ts';
import { sourceProblem } from './check-source.ts';
import type { CodeCall } from './code-step.ts';
import type { CodeToolset } from './code-toolset.ts';
import type { SessionSandbox } from './session-sandbox.ts';

export interface SavedCallSources {
  catalog: {
    agents: Pick<Agents, 'registered'>;
    sessions: Pick<Sessions, 'get'>;
    savedTools: Pick<SavedTools, 'list' | 'get' | 'save' | 'delete'>;
  };
  /** Whether a subject has a right, whatever credential it uses. */
  mayOnServer: (subjectId: string, action: ServerAction) => Promise<boolean>;
}

/** The services that only a save needs. */
interface Saving {
  sandbox: Pick<SessionSandbox, 'runApart'>;
  loadToolset: () => Promise<CodeToolset>;
  signal: AbortSignal;
}

/** A tool cannot be saved or deleted. The message for the model contains what to do. */
export class SavedToolError extends NamedError {}

/** Saves a tool with the approved arguments of a call. @throws SavedToolError */
export async function saveTool(
  sources: SavedCallSources,
  { call, input, spec }: CodeCall,
  { sandbox, loadToolset, signal }: Saving,
): Promise<string> {
  const tool = saveInput.parse(JSON.parse(call.arguments));
  const problem = savedToolProblem(tool);
  if (problem !== undefined) throw new SavedToolError(problem);
  const { session, place } = await retryWhileUnavailable(() => findPlace(sources, { input, spec }), signal);
  if (tool.kind === 'parser') checkParsed(tool, await retryWhileUnavailable(loadToolset, signal));
  const wrong = await sourceProblem(tool, sandbox);
  if (wrong !== undefined) throw new SavedToolError(`Nothing was saved. Correct the code:\n${wrong}`);
  const by = subjectOf(session);
  const request = `${input.turnId} ${callKey(input)}`;
  const save = () => sources.catalog.savedTools.save(place, tool, { by, request }, Date.now());
  const saved = await retryWhileUnavailable(save, signal);
  if (!saved) throw new SavedToolError(`there are ${MAX_SAVED_TOOLS} saved tools: delete some with delete_code_tool`);
  const parsed =
    tool.kind === 'parser' ? `; mcptools.${tool.category}.${tool.name} has run_parsed and ParseResult` : '';
  return `Saved version ${saved.version}. From your next code on: ${importOf(tool)}${parsed}`;
}

/** Deletes a saved tool. @throws SavedToolError */
export async function deleteTool(
  sources: SavedCallSources,
  { call, input, spec }: CodeCall,
  signal: AbortSignal,
): Promise<string> {
  const name = deleteInput.parse(JSON.parse(call.arguments));
  const { place } = await retryWhileUnavailable(() => findPlace(sources, { input, spec }), signal);
  const isDeleted = await retryWhileUnavailable(() => sources.catalog.savedTools.delete(place, name), signal);
  if (isDeleted) return `Deleted ${moduleOf(name)}.`;
  throw new SavedToolError(`there is no saved tool ${moduleOf(name)}`);
}

/** The owner of the tools that the agent of a call saves. @throws SavedToolError */
async function findPlace(
  { catalog, mayOnServer }: SavedCallSources,
  { input, spec }: Pick<CodeCall, 'input' | 'spec'>,
): Promise<{ session: NonNullable<Awaited<ReturnType<Sessions['get']>>>; place: SavedToolOwner }> {
  const session = await catalog.sessions.get(input.sessionId);
  const place = session && savedToolsOf(session, spec);
  const [agent] = place ? await catalog.agents.registered([place.agentName]) : [];
  if (!session || !place || agent === undefined) {
    throw new SavedToolError(
      'only an agent that is registered has saved tools: keep the code as a file of the workspace',
    );
  }
  const { subjectId } = input.owner;
  if (place.subjectId === undefined && !(await mayOnServer(subjectId, 'writeAgents'))) {
    throw new SavedToolError(
      `the saved tools of this agent are shared, and ${subjectId} lacks the right to write agents, which is needed to change them`,
    );
  }
  return { session, place };
}

/** @throws SavedToolError if no tool of a server has the names of a parser */
function checkParsed({ category, name }: SavedTool, { tools }: CodeToolset): void {
  if (listedTools(tools).some((one) => one.category === category && one.name === name)) return;
  throw new SavedToolError(
    `mcptools has no tool ${category}.${name} now: a parser is saved under the category and name that list_code_tools gives`,
  );
}
