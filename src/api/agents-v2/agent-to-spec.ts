import type { AgentSpec } from '../../spec/agent-spec.ts';
import { environmentNote, type EnvironmentServers } from './environment-servers.ts';
import { invalidField, type PathInRequest } from './errors.ts';
import type { Agent, FullAgent, Skill } from './wire/agent.ts';
import type { SessionRequest } from './wire/session.ts';

/** The fields of a request that apply to each turn of its session. */
type Limits = Pick<SessionRequest, 'max_steps' | 'max_time_s' | 'timezone'>;

/** The most model calls that a turn can have. */
const UNBOUNDED_STEPS = 10_000;

export interface SpecOptions {
  defaultModel: string | undefined;
  registry: EnvironmentServers;
  pathOf: PathInRequest;
}

/** An agent as the engine runs it. @throws ApiError `invalid_request` */
export function toSpec(agent: FullAgent, { defaultModel, registry, pathOf }: SpecOptions): AgentSpec {
  const model = agent.model ?? defaultModel;
  if (model === undefined) {
    throw invalidField(pathOf('model'), 'name a model; this server has no default (EVERTURN_DEFAULT_MODEL)');
  }
  const { reasoning_effort: effort, answer_format: format, tools, environments } = agent;
  const notes = environments.map(environmentNote);
  // A kind without a server gets a name that no server has: otherwise the agent would silently lack the environment.
  const servers = new Set(environments.map(({ kind }) => registry.environmentServer(kind) ?? `environment:${kind}`));
  return {
    model: { name: model, ...(effort && effort !== 'disabled' && { params: { reasoning_effort: effort } }) },
    instructions: [agent.instructions, ...notes].filter(Boolean).join('\n\n') || null,
    ...(servers.size > 0 && {
      mcp_servers: [...servers].map((name) => ({
        type: 'truefoundry-mcp-registry' as const,
        name,
        // The agent exists to act in its environment. The operator's policy may still require approvals.
        require_approval_for_tools: [],
      })),
    }),
    client_tools: tools?.map(({ name, description, input_schema: schema }) => ({
      name,
      description,
      input_schema: schema ?? { type: 'object', properties: {} },
    })),
    skills: agent.skills?.map(toSkill),
    ...(format && {
      response_format: { type: 'json_schema', json_schema: { name: nameOf(format), schema: format, strict: null } },
    }),
    config: {
      dynamic_sub_agents: { enabled: false },
      // Otherwise the client would get calls of a tool that it has not defined.
      ask_user_questions: { enabled: false },
    },
  };
}

/** The parts of a spec by the fields of agents from which they are made. */
const PARTS: Partial<Record<keyof Agent, (spec: AgentSpec, changed: AgentSpec) => Partial<AgentSpec>>> = {
  model: ({ model }, changed) => ({ model: { ...model, name: changed.model.name } }),
  reasoning_effort: ({ model }, changed) => {
    const { reasoning_effort: _, ...params } = model.params ?? {};
    return { model: { ...model, params: { ...params, ...changed.model.params } } };
  },
  instructions: (_, { instructions }) => ({ instructions }),
  skills: (_, { skills }) => ({ skills }),
  answer_format: (_, { response_format: format }) => ({ response_format: format }),
  tools: (_, { client_tools: tools }) => ({ client_tools: tools }),
  environments: (spec, changed) => ({
    mcp_servers: [...(spec.mcp_servers ?? []), ...(changed.mcp_servers ?? [])],
    instructions: changed.instructions,
  }),
};

/** A spec of the Sessions API with these fields of the agent changed; `changed` is the spec of the changed agent. */
export function withFields(spec: AgentSpec, fields: Iterable<keyof Agent>, changed: AgentSpec): AgentSpec {
  let result = spec;
  for (const field of new Set(fields)) result = { ...result, ...PARTS[field]?.(result, changed) };
  return result;
}

/**
 * A spec with the limits and the time zone of a request. At a limit the agent is asked for its answer; a request cannot
 * raise the limits of the agent itself. Turns wait for actions, so that a result goes to the turn that asked for it.
 */
export function forRequest(spec: AgentSpec, { max_steps: steps, max_time_s: seconds, timezone }: Limits): AgentSpec {
  const { iteration_limit: ownSteps, answer_after_seconds: ownSeconds } = spec.config ?? {};
  const answerAfter = lowest(seconds, ownSeconds);
  const note = timezone && `The user's time zone is ${timezone}. Use it for dates and times.`;
  return {
    ...spec,
    ...(note && { instructions: [spec.instructions, note].filter(Boolean).join('\n\n') }),
    config: {
      ...spec.config,
      pause: 'wait',
      on_running: 'steer',
      on_limit: 'answer',
      iteration_limit: lowest(steps, ownSteps) ?? UNBOUNDED_STEPS,
      ...(answerAfter !== undefined && { answer_after_seconds: answerAfter }),
    },
  };
}

function lowest(...limits: (number | null | undefined)[]): number | undefined {
  const numbers = limits.filter((limit) => typeof limit === 'number');
  return numbers.length > 0 ? Math.min(...numbers) : undefined;
}

/** The path in an agent for a path in its spec, such as one that the validation has rejected. */
export function pathInAgent(param: string): string {
  const paths: [RegExp, string][] = [
    [/^model\..*/, 'model'],
    [/^client_tools\b/, 'tools'],
    [/^response_format\b.*/, 'answer_format'],
    [/^mcp_servers\.(\d+).*/, 'environments.$1'],
  ];
  const [pattern, path] = paths.find(([one]) => one.test(param)) ?? [];
  return pattern && path ? param.replace(pattern, path) : param;
}

function toSkill(skill: string | Skill): NonNullable<AgentSpec['skills']>[number] {
  if (typeof skill === 'string') return { name: skill };
  return { name: skillNameFor(skill.name), description: skill.description, content: skill.body };
}

/** The name of a skill in a spec, which has no namespaces. */
function skillNameFor(name: string): string {
  return name.replace('/', '-').replaceAll(/-+/g, '-').slice(-64).replace(/^-/, '');
}

/** The name of an answer's schema: its title, in the letters that providers accept. */
function nameOf({ title }: Record<string, unknown>): string {
  const name = typeof title === 'string' ? title.replaceAll(/[^\w-]/g, '_').slice(0, 64) : '';
  return name || 'answer';
}
