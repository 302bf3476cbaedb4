import type { AgentProblem } from '../engine/agent-check.ts';
import { nearestName } from '../lib/nearest-name.ts';
import { namingUnknownKeys } from '../lib/unknown-keys.ts';
import { agentSpec, type AgentSpec } from '../spec/agent-spec.ts';
import { policyWarnings, type KnownSubjects } from './policy-warnings.ts';
import { undefinedVariables } from './prompt.ts';

/** The most warnings of one agent. */
const MAX_WARNINGS = 50;

interface Known {
  /** Problems for which the agent would be rejected now. */
  mistakes: readonly AgentProblem[];
  /** Undefined for an agent without decision policies. */
  subjects: KnownSubjects | undefined;
  /** The agents that it may start and that are registered. */
  agents: readonly string[];
  /** The warnings for inline servers whose tools run unasked. */
  unasked: readonly string[];
}

/** The warnings for the author of an agent that can run, each with its path: for responses and the log. */
export function agentWarnings(spec: AgentSpec, { mistakes, subjects, agents, unasked }: Known): string[] {
  const all = [
    ...formatWarnings(spec),
    ...mistakes.map(({ param, message }) => `${param}: ${message}`),
    ...variableWarnings(spec),
    ...subAgentWarnings(spec, agents),
    ...unasked,
    ...(subjects ? policyWarnings(spec, subjects) : []),
  ];
  const others = all.length - MAX_WARNINGS;
  return others > 0 ? [...all.slice(0, MAX_WARNINGS), `${others} more`] : all;
}

/** The warnings of an agent that concern one of its MCP servers, or a policy for the calls of that server. */
export function aboutServer(server: string, { mcp_servers, config }: AgentSpec, warnings: string[]): string[] {
  const paths = [
    ...(mcp_servers ?? []).flatMap(({ name }, i) => (name === server ? `mcp_servers.${i}` : [])),
    ...(config?.decision_policies ?? []).flatMap(({ match }, i) =>
      match.server === server ? `config.decision_policies.${i}` : [],
    ),
  ];
  return warnings.filter((warning) =>
    paths.some((path) => warning.startsWith(`${path}.`) || warning.startsWith(`${path}:`)),
  );
}

/**
 * Why the current format rejects a spec that was accepted when it was stored. Unknown keys at the top level are the
 * server's own and are skipped; those below are reported, since earlier formats kept them in some parts.
 */
function formatWarnings(spec: AgentSpec): string[] {
  const inFormat = Object.entries(spec).filter(([key]) => key in agentSpec.shape);
  const { error } = agentSpec.safeParse(Object.fromEntries(inFormat), { error: namingUnknownKeys });
  return (error?.issues ?? []).map(({ path, message }) => `${path.join('.')}: ${message}`);
}

function variableWarnings(spec: AgentSpec): string[] {
  return undefinedVariables(spec).map(({ param, name }) => {
    const near = nearestName(name, Object.keys(spec.variables ?? {}));
    const advice = near === undefined ? '' : `, did you mean ${near}?`;
    return `${param}: {{${name}}} stays as it is, since variables has no ${name}${advice}`;
  });
}

function subAgentWarnings({ agents }: AgentSpec, registered: readonly string[]): string[] {
  return (agents ?? []).flatMap((name, i) =>
    registered.includes(name)
      ? []
      : [`agents.${i}: no agent is registered under the name ${name}, and turns are rejected until there is one`],
  );
}
