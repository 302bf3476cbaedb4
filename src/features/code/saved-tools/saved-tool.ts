import { z } from 'zod';
import type { SessionRow } from '../../../catalog/schema.ts';
import type { Subject } from '../../../core/subject.ts';
import type { AgentSpec } from '../../../spec/agent-spec.ts';
import { codeActionsOf, type CodeActions } from '../../../spec/code-actions.ts';
import { isKeyword } from '../tools/python-names.ts';

/** The package of all saved tools, beside the package of MCP tools. */
export const SAVED_PACKAGE = 'gentools';

/** The maximum number of saved tools per owner. */
export const MAX_SAVED_TOOLS = 100;

/** The limit of one file, in bytes and in characters. */
const MAX_CODE_BYTES = 256 * 1024;
const MAX_DESCRIPTION_LENGTH = 4_096;

/** `tool`: `api` defines `run`. `parser`: `api` defines `ParseResult` and `parse`, for an MCP tool. */
export const savedToolKind = z.enum(['tool', 'parser']);

const NAME_RULE = 'must be a small letter and up to 63 small letters, digits and underscores';

/** The name of a package or module: valid in Python and as a folder, and never a path. */
export const savedToolName = z.string().regex(/^[a-z][a-z0-9_]{0,63}$/, NAME_RULE);

const code = z.string().min(1).max(MAX_CODE_BYTES);

/** The fields of a saved tool. */
export const savedToolFields = {
  description: z.string().min(1).max(MAX_DESCRIPTION_LENGTH).describe('what it does, and when to use it'),
  api: code.describe('the source of the module `api`'),
  impl: code.nullish().describe('the source of the module `impl` beside it, which `api` may import'),
  kind: savedToolKind.default('tool'),
};

export type SavedTool = z.output<z.ZodObject<typeof savedToolFields>> & { category: string; name: string };

export type SavedToolName = Pick<SavedTool, 'category' | 'name'>;

/** A saved tool without its code. */
export type SavedToolAbout = SavedToolName &
  Pick<SavedTool, 'kind' | 'description'> & {
    /** The signature of its function, from `api`. */
    signature: string;
    /** Counts the saves, from 1. */
    version: number;
    /** Equal for equal code, kinds and descriptions. */
    hash: string;
    /** The subject that has saved this version. */
    createdBy: Subject;
    updatedAt: string;
  };

/** The owner of saved tools: a subject, for an agent; or, without a subject, the agent. */
export interface SavedToolOwner {
  agentName: string;
  subjectId?: string;
}

/**
 * The owner of the saved tools for the code of a session: those of its agent, also in the threads of sub-agents, which
 * share its sandbox. Undefined if there are none: a draft has no name by which another session could find them.
 */
export function savedToolsOf(
  session: Pick<SessionRow, 'agent_name' | 'agent_version' | 'subject_id'>,
  spec: AgentSpec,
): SavedToolOwner | undefined {
  const { agent_name: agentName, agent_version: version, subject_id: subjectId } = session;
  if (agentName === null || version === null) return undefined;
  return placeFor(codeActionsOf(spec), { agentName, subjectId });
}

/** Whether an agent may have saved tools. The tools, and the name by which they are found, depend on the session. */
export function mayHaveSavedTools(spec: Pick<AgentSpec, 'code_actions' | 'config'>): boolean {
  return (codeActionsOf(spec)?.savedTools ?? 'none') !== 'none';
}

/** The owner of an agent's saved tools: the subject, or the agent for all of its sessions; undefined if it has none. */
export function placeFor(
  actions: Pick<CodeActions, 'savedTools'> | undefined,
  { agentName, subjectId }: Required<SavedToolOwner>,
): SavedToolOwner | undefined {
  if (!actions || actions.savedTools === 'none') return undefined;
  return actions.savedTools === 'agent' ? { agentName } : { agentName, subjectId };
}

/** Why a tool cannot be saved, whatever its code does; undefined if it can. */
export function savedToolProblem({ category, name, description, api, impl }: SavedTool): string | undefined {
  const odd = [category, name].find((one) => !savedToolName.safeParse(one).success);
  if (odd !== undefined) return `the name ${JSON.stringify(odd)} ${NAME_RULE}`;
  const keyword = [category, name].find(isKeyword);
  if (keyword !== undefined)
    return `${keyword} is a keyword of Python, so that nothing can import it: choose another name`;
  for (const [file, text] of Object.entries({ description, api, impl: impl ?? '' })) {
    if (text.includes('\0') || !text.isWellFormed()) return `${file} must be Unicode without null characters`;
    const bytes = Buffer.byteLength(text);
    if (bytes > MAX_CODE_BYTES) return `${file} may have ${MAX_CODE_BYTES} bytes, and has ${bytes}`;
  }
  return undefined;
}

/** The module of a saved tool, for code. */
export function moduleOf({ category, name }: SavedToolName): string {
  return `${SAVED_PACKAGE}.${category}.${name}`;
}

/** The module with the interface of a saved tool. */
export function apiOf(tool: SavedToolName): string {
  return `${moduleOf(tool)}.api`;
}

/** The line that imports a saved tool. */
export function importOf(tool: SavedToolName & Pick<SavedTool, 'kind'>): string {
  return `from ${apiOf(tool)} import ${tool.kind === 'parser' ? 'parse, ParseResult' : 'run'}`;
}

const MAX_SIGNATURE_LENGTH = 1_000;

/** The signature of a saved tool's function, from its code. It is read only by people and models. */
export function signatureOf({ kind, api }: Pick<SavedTool, 'kind' | 'api'>): string {
  const called = kind === 'parser' ? 'parse' : 'run';
  const [, head] =
    new RegExp(String.raw`^(?:async +)?def +(${called} *\([^]{0,${MAX_SIGNATURE_LENGTH}})`, 'm').exec(api) ?? [];
  const end = head === undefined ? -1 : endOfHead(head);
  return head === undefined || end < 0 ? `${called}(…)` : head.slice(0, end).replaceAll(/\s+/g, ' ').trim();
}

/** The index of the colon that ends the head of a function; -1 if it is not found. */
function endOfHead(head: string): number {
  let depth = 0;
  for (const { 0: token, index } of head.matchAll(/"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|#.*|[()[\]{}:]/g)) {
    if ('([{'.includes(token)) depth += 1;
    else if (')]}'.includes(token)) depth -= 1;
    else if (token === ':' && depth === 0) return index;
  }
  return -1;
}
