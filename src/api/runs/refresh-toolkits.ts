import { contentOf, withToolkits } from '../../features/run-support/client-toolkits.ts';
import type { ToolkitRefresh } from '../../core/turn-command.ts';
import type { TurnView } from '../../core/turn-view.ts';
import { hashOf } from '../../lib/hash.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import { addedTools, requireShortPrompt, requireUsableTools, toClientToolkit } from './agent-to-spec.ts';
import { refusal } from './errors.ts';
import type { RefreshedToolkit } from './wire/agent-params.ts';

interface Refreshing {
  spec: AgentSpec;
  view: TurnView;
  /** The message after which the toolkits apply. */
  messageId: string;
}

/**
 * The toolkits of a request in the form of a command. Toolkits that a run waits for now must fit its other tools; the
 * engine decides whether a toolkit was refreshed before, and how.
 * @throws ApiError
 */
export function readRefreshes(given: RefreshedToolkit[], { spec, view, messageId }: Refreshing): ToolkitRefresh[] {
  const { refresh, toolkits: known } = view;
  const isCurrent = refresh?.messageId === messageId;
  const strange = given.findIndex(({ name }) => !refresh?.toolkits.includes(name));
  if (strange >= 0) {
    const message = `the run does not wait for a toolkit ${given[strange]?.name}`;
    throw refusal('call_not_pending', ['refresh', strange, 'name'], message);
  }
  const names = given.map(({ name }) => name);
  const twice = names.findIndex((name, i) => names.indexOf(name) !== i);
  if (twice >= 0) {
    throw refusal('call_answered_twice', ['refresh', twice, 'name'], `the toolkit ${names[twice]} is refreshed twice`);
  }
  const added = isCurrent ? names.filter((name) => refresh.pending.has(name)) : [];
  const current = new Map([...known].map(([name, record]) => [name, contentOf(record)]));
  const others = (spec.clientToolkits ?? []).filter(({ name, isDynamic }) => !isDynamic || !added.includes(name));
  const tools = given.flatMap((one, i) => (added.includes(one.name) ? addedTools(one, ['refresh', i]) : []));
  requireUsableTools(withToolkits({ ...spec, clientToolkits: others }, current), tools, ['refresh']);
  for (const one of given) if (added.includes(one.name)) current.set(one.name, toClientToolkit(one));
  requireShortPrompt(withToolkits(spec, current), ['refresh']);
  return given.map((one) => {
    const { name: toolkit, system_prompt: systemPrompt, ...rest } = toClientToolkit(one);
    const content = { ...(systemPrompt !== undefined && { systemPrompt }), tools: JSON.stringify(rest.tools) };
    return { messageId, toolkit, ...content, hash: hashOf(content) };
  });
}
