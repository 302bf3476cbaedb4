import type { AgentProblem } from '../engine/agent-check.ts';
import { nearestName } from '../lib/nearest-name.ts';
import { namingUnknownKeys } from '../lib/unknown-keys.ts';
import { agentSpec, type AgentSpec } from '../spec/agent-spec.ts';
import { policyWarnings, type KnownSubjects } from './policy-warnings.ts';
import { undefinedVariables } from './prompt.ts';

/** The most warnings of one agent. */
const MAX_WARNINGS = 50;

interface Known {
  /** For which the agent would not be accepted now. */
  mistakes: readonly AgentProblem[];
  /** Undefined for an agent without decision policies. */
  subjects: KnownSubjects | undefined;
  /** The registered ones of the agents that it may start. */
  agents: readonly string[];
  /** The warnings for inline servers whose tools run unasked. */
  unasked: readonly string[];
}

/** What the author of an agent that can run should know of it, each with its place: for answers and the log. */
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

/** Those of an agent's warnings that are about one of its MCP servers, or about a policy for the calls of that server. */
export function aboutServer(server: string, { mcp_servers, config }: AgentSpec, warnings: string[]): string[] {
  const places = [
    ...(mcp_servers ?? []).flatMap(({ name }, i) => (name === server ? `mcp_servers.${i}` : [])),
    ...(config?.decision_policies ?? []).flatMap(({ match }, i) =>
      match.server === server ? `config.decision_policies.${i}` : [],
    ),
  ];
  return warnings.filter((warning) =>
    places.some((place) => warning.startsWith(`${place}.`) || warning.startsWith(`${place}:`)),
  );
}

/**
 * Why the format would not accept a spec now, which it did when the spec was stored. The keys that only the spec itself
 * has, and not its parts, are the server's own: earlier formats kept unknown ones in some of the parts.
 */
function formatWarnings(spec: AgentSpec): string[] {
  const given = Object.entries(spec).filter(([key]) => key in agentSpec.shape);
  const { error } = agentSpec.safeParse(Object.fromEntries(given), { error: namingUnknownKeys });
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
