import type { Tool } from '@modelcontextprotocol/client';
import type { McpServer } from '../spec/agent-spec.ts';

/** A tool that an agent may use. */
export interface SelectedTool {
  tool: Tool;
  /** Whether a human decides on each call. */
  approval: boolean;
  /** `retry` tools may run again with the same operation id, `once` tools never. */
  effect: 'retry' | 'once';
  /** Whether the model has to search for it first. */
  deferred: boolean;
}

/** What the operator says of a server's tools. */
export interface OperatorLimits {
  idempotentTools?: readonly string[];
  allowed?: readonly string[];
  floor?: readonly string[];
}

/**
 * The tools of a server that an agent may use, and how: `enable_tools` without `disable_tools`.
 *
 * What a tool is, by its annotations (MCP, "Tool annotations"); absent hints are not filled with MCP's defaults:
 * - read-only: `readOnlyHint` is true. `destructiveHint` has no meaning then.
 * - destructive: `destructiveHint` is true, and it is not read-only.
 * - annotated: it has at least one of the four hints. A title alone says nothing about what the tool does.
 *
 * In lists to enable and disable, `@read-only` selects the read-only tools. In lists for approval, `@destructive`
 * selects the destructive ones, and `@write` those that are annotated and neither read-only nor destructive. A tool
 * that is not annotated is selected by `@all` or its name only. `effect` is `retry` for tools that are read-only, have
 * `idempotentHint`, or that the operator calls idempotent. Deferred are, if the agent turns `preload` off, all but those
 * that `preload_tools` selects as the lists to enable do.
 *
 * The operator's limits come on top: no other tools than those of `allowed`, and approval also for those of `floor`,
 * where `@unannotated` selects the tools that are not annotated.
 */
export function selectTools(
  spec: McpServer,
  tools: readonly Tool[],
  { idempotentTools = [], allowed = ['@all'], floor = [] }: OperatorLimits = {},
): SelectedTool[] {
  const enabled = spec.enable_tools ?? ['@all'];
  const disabled = spec.disable_tools ?? [];
  const approved = spec.require_approval_for_tools ?? ['@write', '@destructive'];
  return tools
    .filter((tool) => isListed(tool, allowed) && isListed(tool, enabled) && !isListed(tool, disabled))
    .map((tool) => {
      const retry = isReadOnly(tool) || tool.annotations?.idempotentHint === true || isNamed(tool, idempotentTools);
      const deferred = spec.preload === false && !isListed(tool, spec.preload_tools ?? []);
      const approval = needsApproval(tool, approved) || isBelow(tool, floor);
      return { tool, approval, effect: retry ? 'retry' : 'once', deferred };
    });
}

/** Whether a server may have deferred tools, whatever tools it has. */
export function mayDefer({ preload, preload_tools: preloaded }: McpServer): boolean {
  return preload === false && !preloaded?.includes('@all');
}

export function isListed(tool: Tool, selectors: readonly string[]): boolean {
  return isNamed(tool, selectors) || (selectors.includes('@read-only') && isReadOnly(tool));
}

function needsApproval(tool: Tool, selectors: readonly string[]): boolean {
  if (isNamed(tool, selectors)) return true;
  if (!isAnnotated(tool) || isReadOnly(tool)) return false;
  return selectors.includes(tool.annotations?.destructiveHint === true ? '@destructive' : '@write');
}

function isBelow(tool: Tool, floor: readonly string[]): boolean {
  return needsApproval(tool, floor) || (floor.includes('@unannotated') && !isAnnotated(tool));
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
