import type { Tool } from '@modelcontextprotocol/client';
import { ALL_BUT_READ_ONLY } from '../mcp/server-policy.ts';
import type { McpServer } from '../spec/agent-spec.ts';

/** What a tool does according to its annotations. */
export type Annotation = '@read-only' | '@destructive' | '@write' | '@unannotated';

/** A tool that an agent may use, and how. */
export interface SelectedTool {
  tool: Tool;
  /** Whether each call needs a person's approval. */
  approval: boolean;
  /** Whether the operator requires that. */
  isFloor: boolean;
  annotation: Annotation;
  /** Whether a call may be repeated with the same operation id: `retry` tools yes, `once` tools never. */
  effect: 'retry' | 'once';
  /** Whether the model must search for the tool before it is offered. */
  deferred: boolean;
}

/** The operator's rules for the tools of a server. */
export interface OperatorLimits {
  idempotentTools?: readonly string[];
  allowed?: readonly string[];
  floor?: readonly string[];
}

/**
 * Selects the tools of a server that an agent may use: `enable_tools` without `disable_tools`.
 *
 * Tools are classified by their annotations (MCP, "Tool annotations"); absent hints are not filled with MCP's defaults:
 * - read-only: `readOnlyHint` is true. `destructiveHint` is then ignored.
 * - destructive: `destructiveHint` is true, and the tool is not read-only.
 * - annotated: at least one of the four hints is present. A title alone does not describe what the tool does.
 *
 * In lists to enable and disable, `@read-only` selects the read-only tools. In lists for approval, `@destructive`
 * selects the destructive ones, `@write` those that are annotated and neither read-only nor destructive, and
 * `@unannotated` those that are not annotated; docs/approvals.md has the default. `effect` is `retry` for tools that are
 * read-only, have `idempotentHint`, or are listed as idempotent by the operator. If the agent sets `preload` to false,
 * all tools are deferred except those that `preload_tools` selects, with the selectors of the lists to enable.
 *
 * The operator's limits apply in addition: only the tools in `allowed`, and approval also for those in `floor`.
 */
export function selectTools(
  spec: McpServer,
  tools: readonly Tool[],
  { idempotentTools = [], allowed = ['@all'], floor = [] }: OperatorLimits = {},
): SelectedTool[] {
  const enabled = spec.enable_tools ?? ['@all'];
  const disabled = spec.disable_tools ?? [];
  const approved = approvalSelectors(spec, tools);
  return tools
    .filter((tool) => isListed(tool, allowed) && isListed(tool, enabled) && !isListed(tool, disabled))
    .map((tool) => {
      const retry = isReadOnly(tool) || tool.annotations?.idempotentHint === true || isNamed(tool, idempotentTools);
      const deferred = spec.preload === false && !isListed(tool, spec.preload_tools ?? []);
      const isFloor = needsApproval(tool, floor);
      const approval = needsApproval(tool, approved) || isFloor;
      return { tool, approval, isFloor, annotation: annotationOf(tool), effect: retry ? 'retry' : 'once', deferred };
    });
}

const INLINE_DEFAULT = ['@write', '@destructive'];

/**
 * An agent's list replaces the default. If it names tools and the server has none of them, it is a mistake, which must
 * not drop the default protection.
 */
function approvalSelectors(
  { type, require_approval_for_tools: listed }: McpServer,
  tools: readonly Tool[],
): readonly string[] {
  const names = toolNamesIn(listed);
  const isMistaken = names.length > 0 && names.every((name) => !hasTool(tools, name));
  if (listed && !isMistaken) return listed;
  return [...(listed ?? []), ...(type === 'inline' ? INLINE_DEFAULT : ALL_BUT_READ_ONLY)];
}

const LISTS = ['enable_tools', 'disable_tools', 'preload_tools', 'require_approval_for_tools'] as const;

/** The most warnings for one server of an agent. */
const MAX_WARNINGS = 10;

/** Warnings for the agent's author: the entries of its lists that name no tool of the server. */
export function selectorWarnings(spec: McpServer, tools: readonly Tool[]): string[] {
  const unknown = LISTS.flatMap((list) =>
    toolNamesIn(spec[list])
      .filter((name) => !hasTool(tools, name))
      .map((name) => `${list} names ${name}, which is no tool of the server`),
  );
  const [shown, others] = [unknown.slice(0, MAX_WARNINGS), unknown.length - MAX_WARNINGS];
  return others > 0 ? [...shown, `${others} more names in these lists are no tools of the server`] : shown;
}

function toolNamesIn(selectors: readonly string[] | null | undefined): string[] {
  return (selectors ?? []).filter((selector) => !selector.startsWith('@'));
}

function hasTool(tools: readonly Tool[], name: string): boolean {
  return tools.some((tool) => tool.name === name);
}

/** Whether tools of a server may be deferred; depends on the agent alone, not on the server's tools. */
export function mayDefer({ preload, preload_tools: preloaded }: McpServer): boolean {
  return preload === false && !preloaded?.includes('@all');
}

export function isListed(tool: Tool, selectors: readonly string[]): boolean {
  return isNamed(tool, selectors) || (selectors.includes('@read-only') && isReadOnly(tool));
}

function needsApproval(tool: Tool, selectors: readonly string[]): boolean {
  if (isNamed(tool, selectors)) return true;
  const annotation = annotationOf(tool);
  return annotation !== '@read-only' && selectors.includes(annotation);
}

function annotationOf(tool: Tool): Annotation {
  if (isReadOnly(tool)) return '@read-only';
  if (!isAnnotated(tool)) return '@unannotated';
  return tool.annotations?.destructiveHint === true ? '@destructive' : '@write';
}

function isNamed({ name }: Tool, selectors: readonly string[]): boolean {
  return selectors.includes('@all') || selectors.includes(name);
}

function isReadOnly({ annotations }: Tool): boolean {
  return annotations?.readOnlyHint === true;
}

function isAnnotated({ annotations: hints }: Tool): boolean {
  const all = [hints?.readOnlyHint, hints?.destructiveHint, hints?.idempotentHint, hints?.openWorldHint];
  return all.some((hint) => hint !== undefined);
}
