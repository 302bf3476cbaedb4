import type { SessionOwner } from '../core/history.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { EngineError } from './errors.ts';

/** Tells whether and with what input this server can run an agent: see `AgentValidator` in `src/agents`. */
export interface AgentCheck {
  firstProblem(
    spec: AgentSpec,
    owner: SessionOwner | null,
  ): Promise<
    { code: 'invalid_agent' | 'feature_not_available' | 'forbidden'; message: string; param: string } | undefined
  >;
  /** The types of audio that all models of an agent take in messages of users. */
  audioTypes(spec: AgentSpec): ReadonlySet<string>;
}

/**
 * Checks that this server can run an agent. `owner` is the owner of the session that the agent is for, or null; `path`
 * is the position of the spec in the request, for `param`.
 * @throws EngineError
 */
export async function checkAgent(
  spec: AgentSpec,
  owner: SessionOwner | null,
  check: AgentCheck,
  path = '',
): Promise<void> {
  const problem = await check.firstProblem(spec, owner);
  if (problem) throw new EngineError(problem.code, problem.message, { param: path + problem.param });
}
