import type { SessionOwner } from '../core/history.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { EngineError } from './errors.ts';
import type { SchemaBudget } from './schema-budget.ts';

/** The media that all models of an agent accept. */
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

/** A problem of the agent's definition itself, at the path `param`. */
export function invalidAgent(param: string, message: string): AgentProblem {
  return { code: 'invalid_agent', message, param };
}

/** For whom an agent is checked, and within what bounds. */
export interface CheckScope {
  /** The owner of the session that the agent is for, or null. */
  owner: SessionOwner | null;
  /** The budget of the request, for all its agents; undefined for an agent that was checked when it was accepted. */
  budget: SchemaBudget | undefined;
}

/** A version of a registered agent, as it is stored. */
export interface RegisteredVersion {
  name: string;
  version: number;
  spec: AgentSpec;
}

/** Checks whether and with what input this server can run an agent: see `AgentValidator` in `src/agents`. */
export interface AgentCheck {
  firstProblem(spec: AgentSpec, scope: CheckScope): Promise<AgentProblem | undefined>;
  /** Why no turn can start with an agent yet, although it has no problem. Waits for a few seconds. */
  notReady(spec: AgentSpec): Promise<string | undefined>;
  /** A mistake in an agent that could run: a new agent is rejected for it, a stored one gets a warning. */
  firstMistake(spec: AgentSpec): AgentProblem | undefined;
  /** Warnings for the author of an agent that can run. Connects to none of its servers. */
  warnings(spec: AgentSpec): Promise<string[]>;
  /** The same for an agent that is being written: connects to its inline servers; `warnings` then has their results. */
  newWarnings(spec: AgentSpec): Promise<string[]>;
  /** Logs the warnings of a version of a registered agent, unless this process has done so. */
  logWarnings(agent: RegisteredVersion): Promise<void>;
  acceptedInput(spec: AgentSpec): AcceptedMedia;
}

/** What a request checks an agent with. */
interface CheckOptions extends Pick<CheckScope, 'owner'> {
  agentCheck: AgentCheck;
  /** The position of the spec in the request, for `param`. */
  path?: string;
}

/** Checks that this server can run an agent that is stored as it is. @throws EngineError */
export async function checkAgent(spec: AgentSpec, { owner, agentCheck, path = '' }: CheckOptions): Promise<void> {
  throwProblem(await agentCheck.firstProblem(spec, { owner, budget: undefined }), path);
}

/** Checks an agent that a request contains, and that is not stored yet. @throws EngineError */
export async function checkNewAgent(
  spec: AgentSpec,
  { owner, budget, agentCheck, path = '' }: CheckOptions & { budget: SchemaBudget },
): Promise<void> {
  throwProblem(agentCheck.firstMistake(spec) ?? (await agentCheck.firstProblem(spec, { owner, budget })), path);
}

function throwProblem(problem: AgentProblem | undefined, path: string): void {
  if (problem) throw new EngineError(problem.code, problem.message, { param: path + problem.param });
}
