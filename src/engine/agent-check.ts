import type { SessionOwner } from '../core/history.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import type { Logger } from 'pino';
import { EngineError } from './errors.ts';

/** What all models of an agent take. */
export interface AcceptedMedia {
  /** The types of audio in messages of users. */
  audioTypes: ReadonlySet<string>;
  /** Images in messages of models. */
  ownImages: boolean;
}

/** Why this server does not accept an agent, or cannot run it. */
export interface AgentProblem {
  code: 'invalid_agent' | 'feature_not_available' | 'unsupported_part' | 'forbidden';
  message: string;
  param: string;
}

/** Tells whether and with what input this server can run an agent: see `AgentValidator` in `src/agents`. */
export interface AgentCheck {
  firstProblem(spec: AgentSpec, owner: SessionOwner | null): Promise<AgentProblem | undefined>;
  /** What is wrong in an agent that could run: it is not accepted, but remains a warning if it was stored before. */
  firstMistake(spec: AgentSpec): AgentProblem | undefined;
  /** What the author of an agent that can run should know of it. */
  warnings(spec: AgentSpec): Promise<string[]>;
  acceptedInput(spec: AgentSpec): AcceptedMedia;
}

/**
 * Checks that this server can run an agent that is stored. `owner` is the owner of the session that the agent is for, or
 * null; `path` is the position of the spec in the request, for `param`.
 * @throws EngineError
 */
export async function checkAgent(
  spec: AgentSpec,
  owner: SessionOwner | null,
  check: AgentCheck,
  path = '',
): Promise<void> {
  throwProblem(await check.firstProblem(spec, owner), path);
}

/** Checks an agent that a request or a file has written, and that is not stored yet. @throws EngineError */
export async function checkNewAgent(
  spec: AgentSpec,
  owner: SessionOwner | null,
  check: AgentCheck,
  path = '',
): Promise<void> {
  throwProblem(check.firstMistake(spec), path);
  await checkAgent(spec, owner, check, path);
}

function throwProblem(problem: AgentProblem | undefined, path: string): void {
  if (problem) throw new EngineError(problem.code, problem.message, { param: path + problem.param });
}

/** Called once for each version of an agent: its readers get the warnings with the agent. */
export function logWarnings(log: Pick<Logger, 'warn'>, agent: string, warnings: string[]): void {
  if (warnings.length > 0) log.warn({ agent, warnings }, 'an agent was registered, and may not work as intended');
}
