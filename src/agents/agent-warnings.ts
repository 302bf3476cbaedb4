import type { AgentProblem } from '../engine/agent-check.ts';
import { nearestName } from '../lib/nearest-name.ts';
import { namingUnknownKeys } from '../lib/unknown-keys.ts';
import { agentSpec, inFormat, type AgentSpec } from '../spec/agent-spec.ts';
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
}

/** What the author of an agent that can run should know of it, each with its place: for answers and the log. */
export function agentWarnings(spec: AgentSpec, { mistakes, subjects, agents }: Known): string[] {
  const all = [
    ...formatWarnings(spec),
    ...mistakes.map(({ param, message }) => `${param}: ${message}`),
    ...variableWarnings(spec),
    ...subAgentWarnings(spec, agents),
    ...(subjects ? policyWarnings(spec, subjects) : []),
  ];
  const others = all.length - MAX_WARNINGS;
  return others > 0 ? [...all.slice(0, MAX_WARNINGS), `${others} more`] : all;
}

/** Why the format would not accept a spec now, which it did when the spec was stored. */
function formatWarnings(spec: AgentSpec): string[] {
  const { error } = agentSpec.safeParse(inFormat(spec), { error: namingUnknownKeys });
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
