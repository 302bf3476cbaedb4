import { LRUCache } from 'lru-cache';
import type { ModelCallPart } from '../../agents/model-call-part.ts';
import type { TranscriptItem } from '../../core/transcript.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import { codeActionsOf, type CodeActions } from '../../spec/code-actions.ts';
import type { Toolset } from '../../tools/toolset.ts';
import { IPYTHON, IPYTHON_RESET } from './code-tools.ts';
import { listedSavedTools, type SavedToolSources } from './saved-tools/listed-saved-tools.ts';
import { SAVED_PACKAGE, type SavedToolAbout } from './saved-tools/saved-tool.ts';
import { LIST_CODE_TOOLS } from './tools/list-code-tools.ts';
import { categoriesOf, listedTools } from './tools/listed-tools.ts';
import { workspaceSkills } from './workspace-skills.ts';
import type { OpenedWorkspace, StoredWorkspaces } from './workspace/stored-workspace.ts';

const ABOUT_CODE =
  `You can run Python with ${IPYTHON.name}. It starts in your workspace, a folder whose files are kept for the whole ` +
  'session: use relative paths. Variables are kept from call to call as long as the kernel runs; a result says if it was ' +
  `restarted and which variables are lost, and ${IPYTHON_RESET.name} restarts it. pandas and matplotlib are installed. ` +
  'Save what must last as a file, and print only what you need to read.';

const ABOUT_COMMANDS =
  'Run commands with ! or %%bash, since subprocess is not available; a person may have to allow each, and an exception ' +
  'says if they did not.';

const aboutNetwork = (hosts: readonly string[]): string =>
  `Of the network, code and commands can reach these hosts: ${hosts.join(', ')}. Use http:// or https:// on its usual port; the ` +
  'environment has the proxy for it.';

/** The prompt's text about tools. It contains no names and signatures, which could fill it: the model requests them. */
const aboutTools = (categories: ReadonlyMap<string, number>): string =>
  'Your code can call tools, which are Python modules. Their categories, with the number of tools: ' +
  `${counted(categories)}. ${LIST_CODE_TOOLS.name} says ` +
  'how the tools of a category are imported, search_tools finds some by words, and read_file shows the source of one; ' +
  '`run(Params(...))` calls it. Calls that do not depend on each other are made together with `asyncio.gather` of ' +
  '`run_async`. mcptools.ToolRunnerError is raised for a call that fails.';

const counted = (categories: ReadonlyMap<string, number>): string =>
  [...categories].map(([category, tools]) => `${category} (${tools})`).join(', ');

/** The prompt's text about saved tools; empty if there are none. */
function aboutSaved(tools: readonly SavedToolAbout[]): string[] {
  if (tools.length === 0) return [];
  return [
    `Tools that you have saved are modules of ${SAVED_PACKAGE}, in these categories, with the number of tools: ` +
      `${counted(categoriesOf(tools))}. Prefer one that fits to the tools of servers and to new code: ` +
      `${LIST_CODE_TOOLS.name} says how they are imported.`,
  ];
}

const MAX_INSTRUCTIONS_BYTES = 64 * 1024;

/** The number of turns whose texts are cached. */
const MAX_TURNS = 200;

const TAG = 'project-instructions';

/** The texts in the prompts of a turn whose sources may change during it. */
interface TurnTexts {
  project: string | undefined;
  /** The texts about saved tools, and about skills. */
  notes: string[];
}

export interface CodePartOptions {
  catalog: SavedToolSources;
  workspaces: Pick<StoredWorkspaces, 'open'>;
  /** Starts a kernel host during the model call, in a server with all roles. */
  ensureHost: (() => unknown) | undefined;
}

/** Adds to the prompts of agents that act in code how they do, and the instructions of the project in the workspace. */
export function codePart({ catalog, workspaces, ensureHost }: CodePartOptions): ModelCallPart {
  // Cached by turn: a turn may change files and saved tools, and changed texts would invalidate the provider's cache.
  const read = new LRUCache<string, TurnTexts>({ max: MAX_TURNS });
  const readTexts = async (spec: AgentSpec, actions: CodeActions, sessionId: string): Promise<TurnTexts> => {
    const files = await workspaces.open(sessionId, actions.workspace);
    const project = await instructions(files, actions);
    const skills = await workspaceSkills(files);
    return { project, notes: [...aboutSaved(await listedSavedTools(catalog, spec, { sessionId })), ...skills] };
  };
  return {
    prompt: async (spec, { turnId, sessionId, specHash }, toolset) => {
      const actions = codeActionsOf(spec);
      if (!actions) return {};
      ensureHost?.();
      const key = `${turnId} ${specHash}`;
      const texts = read.get(key) ?? (await readTexts(spec, actions, sessionId));
      read.set(key, texts);
      const { project, notes } = texts;
      return {
        ...(project !== undefined && { project }),
        notes: [...aboutCode(await toolset, actions.network.allow), ...notes],
      };
    },
    conversation: (items) => ({ items: items.map(({ item, at }) => ({ item: withPaths(item), at })) }),
  };
}

function aboutCode({ tools }: Pick<Toolset, 'tools'>, hosts: readonly string[]): string[] {
  const categories = categoriesOf(listedTools(tools.values()));
  const network = hosts.length > 0 ? [aboutNetwork(hosts)] : [];
  return [ABOUT_CODE, ABOUT_COMMANDS, ...network, ...(categories.size > 0 ? [aboutTools(categories)] : [])];
}

/** A user message, with the workspace paths of its files added. */
function withPaths(item: TranscriptItem): TranscriptItem {
  if (item.role !== 'user') return item;
  const paths = item.content.flatMap((part) => ('workspacePath' in part ? (part.workspacePath ?? []) : []));
  if (paths.length === 0) return item;
  const text = `[In your workspace: ${paths.map((path) => JSON.stringify(path)).join(', ')}]`;
  return { ...item, content: [...item.content, { type: 'text', text }] };
}

/** The instructions in the workspace, if there are any in UTF-8. */
async function instructions(files: OpenedWorkspace, { workspace }: CodeActions): Promise<string | undefined> {
  const { instructions_file: path } = workspace;
  const text = path === null ? undefined : await files.text(path, MAX_INSTRUCTIONS_BYTES);
  if (!text?.trim()) return undefined;
  // Escapes the closing tag, so that the file cannot continue outside of its tag in the prompt.
  const inside = text.replaceAll(`</${TAG}`, `< /${TAG}`).trimEnd();
  return `The file ${JSON.stringify(path)} of your workspace says:\n<${TAG}>\n${inside}\n</${TAG}>`;
}
