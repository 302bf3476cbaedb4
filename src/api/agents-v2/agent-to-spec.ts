import type { AgentSpec } from '../../spec/agent-spec.ts';
import { ApiError } from '../http/errors.ts';
import type { Agent, Skill } from './wire/agent.ts';
import type { SessionRequest } from './wire/session.ts';

/** The limits of a request that apply to each of its turns. */
type Caps = Pick<SessionRequest, 'max_steps' | 'max_time_s'>;

/** As many model calls as a turn can have. */
const UNBOUNDED_STEPS = 10_000;

/** The agent of a session as the engine runs it. Names in its lists are resolved. @throws ApiError `invalid_request` */
export function toSpec(agent: Agent, caps: Caps, defaultModel: string | undefined): AgentSpec {
  const model = agent.model ?? defaultModel;
  if (model === undefined) {
    const message = 'agent.model: name a model; this server has no default (EVERTURN_DEFAULT_MODEL)';
    throw new ApiError('invalid_request', message, { param: 'agent.model' });
  }
  const { reasoning_effort: effort, answer_format: format, tools } = agent;
  return withCaps(
    {
      model: { name: model, ...(effort && effort !== 'disabled' && { params: { reasoning_effort: effort } }) },
      instructions: agent.instructions ?? null,
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
        // The client would get a call of a tool that it has not defined.
        ask_user_questions: { enabled: false },
      },
    },
    caps,
  );
}

/**
 * A spec with the limits of a request, at which the agent is asked for its answer. Its turns wait for their answers: a
 * result is given to the turn that asked.
 */
export function withCaps(spec: AgentSpec, { max_steps: steps, max_time_s: seconds }: Caps): AgentSpec {
  return {
    ...spec,
    config: {
      ...spec.config,
      pause: 'wait',
      on_running: 'steer',
      on_limit: 'answer',
      iteration_limit: steps ?? UNBOUNDED_STEPS,
      ...(seconds && { answer_after_seconds: seconds }),
    },
  };
}

function toSkill(skill: string | Skill): NonNullable<AgentSpec['skills']>[number] {
  if (typeof skill === 'string') return { name: skill };
  return { name: skill.name, description: skill.description, content: skill.body };
}

/** The name of an answer's schema: its title, in the letters that providers accept. */
function nameOf({ title }: Record<string, unknown>): string {
  const name = typeof title === 'string' ? title.replaceAll(/[^\w-]/g, '_').slice(0, 64) : '';
  return name || 'answer';
}
