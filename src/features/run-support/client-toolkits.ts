import type { ModelCallPart } from '../../agents/model-call-part.ts';
import type { CallModelInput } from '../../core/history.ts';
import type { WithoutId } from '../../core/records/base.ts';
import type { NewRecord, UnsequencedRecord } from '../../core/records/log.ts';
import { violatesSchema } from '../../core/records/message.ts';
import { ROOT_THREAD } from '../../core/records/threads.ts';
import type { RefreshRequired, ToolkitRefreshed, TurnError } from '../../core/records/turn.ts';
import { hasNoResult } from '../../core/tool-records.ts';
import type { AgentSpec, ClientToolkit } from '../../spec/agent-spec.ts';

/** The part of a toolkit that its client refreshes. */
type ToolkitContent = Pick<ClientToolkit, 'system_prompt' | 'tools'>;

/** Gives agents the current toolkits of their clients. */
export const TOOLKITS_PART: ModelCallPart = {
  agent: async (spec, records) => (spec.clientToolkits ? withToolkits(spec, refreshedToolkits(await records)) : spec),
};

/** The toolkits that a turn's client has refreshed, as they are now, by their names. */
export function refreshedToolkits(records: readonly UnsequencedRecord[]): Map<string, ToolkitContent> {
  const refreshed = records.filter((record) => record.kind === 'toolkit.refreshed');
  return new Map(refreshed.map((record) => [record.toolkit, contentOf(record)]));
}

export function contentOf({ systemPrompt, tools }: Pick<ToolkitRefreshed, 'systemPrompt' | 'tools'>): ToolkitContent {
  return { tools: toolsOf(tools), ...(systemPrompt !== undefined && { system_prompt: systemPrompt }) };
}

/** The tools of a toolkit that was refreshed, from the record's text. */
export function toolsOf(json: string): ClientToolkit['tools'] {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- validated by the API before it was recorded
  return JSON.parse(json) as ClientToolkit['tools'];
}

/** An agent with the instructions and tools of its toolkits added, as they are after `refreshed`. */
export function withToolkits(
  spec: AgentSpec,
  refreshed: ReadonlyMap<string, ToolkitContent> = new Map<string, ToolkitContent>(),
): AgentSpec {
  const toolkits = (spec.clientToolkits ?? []).map(
    (toolkit): ToolkitContent => (toolkit.isDynamic && refreshed.get(toolkit.name)) || toolkit,
  );
  const prompts = [spec.instructions ?? '', ...toolkits.map(({ system_prompt: prompt }) => prompt ?? '')];
  const order = spec.toolOrder?.flatMap((source) =>
    'toolkit' in source ? (toolkits[source.toolkit]?.tools ?? []).map(({ name }) => ({ tool: name })) : [source],
  );
  return {
    ...spec,
    ...(order && { toolOrder: order }),
    instructions: prompts.filter((text) => text !== '').join('\n') || null,
    client_tools: [...(spec.client_tools ?? []), ...toolkits.flatMap(({ tools }) => tools)],
  };
}

/** The toolkits that the client refreshes. */
export function dynamicToolkits({ clientToolkits = [] }: Pick<AgentSpec, 'clientToolkits'>): string[] {
  return clientToolkits.filter(({ isDynamic }) => isDynamic).map(({ name }) => name);
}

/**
 * The error of a turn whose toolkits, which `spec` includes, have two tools of the same name. Each refresh is checked
 * before it is accepted, but two concurrent refreshes are checked independently.
 */
export function repeatedTool({ clientToolkits, client_tools: tools = [] }: AgentSpec): TurnError | undefined {
  if (!clientToolkits) return undefined;
  const names = (tools ?? []).map(({ name }) => name);
  const repeated = names.find((name, i) => names.indexOf(name) !== i);
  if (repeated === undefined) return undefined;
  const message = `Two toolkits were refreshed with a tool named ${repeated}: tools need unique names.`;
  return { status: 'error', message, code: 'repeated_tool_name' };
}

interface CompletedCall {
  spec: AgentSpec;
  input: Pick<CallModelInput, 'threadId' | 'isLast' | 'isForced'>;
  /** The records of the model call. */
  records: readonly NewRecord[];
}

/** The request to refresh an agent's toolkits, if its root agent calls its model again after this message. */
export function refreshAfter({ spec, input, records }: CompletedCall): WithoutId<RefreshRequired>[] {
  const toolkits = dynamicToolkits(spec);
  const message = records.find((record) => record.kind === 'model.message');
  if (toolkits.length === 0 || !message || input.threadId !== ROOT_THREAD) return [];
  // Before its first model call, a turn has the toolkits of its request.
  if (message.isGiven || input.isLast || input.isForced) return [];
  if (message.toolCalls.length === 0 && !violatesSchema(message)) return [];
  if (spec.failsWithTools && records.some((one) => one.kind === 'tool.response' && hasNoResult(one))) return [];
  return [{ kind: 'toolkit.refresh_required', at: new Date().toISOString(), messageId: message.id, toolkits }];
}
