import type { Config } from '../../config.ts';
import type { CheckScope } from '../../engine/agent-check.ts';
import type { ApiContext } from '../http/context.ts';
import { SchemaBudget } from '../../engine/schema-budget.ts';
import type { Caller } from '../../core/subject.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import { agentNotFound, ApiError } from '../http/errors.ts';
import { forRequest, pathInAgent, toSpec, withFields } from './agent-to-spec.ts';
import { checkEnvironments, type EnvironmentServers } from './environment-servers.ts';
import { delegateTrees, type DelegateTree } from './delegates.ts';
import type { PathInRequest } from './errors.ts';
import { AgentExpansion } from './expand-agent.ts';
import { applyOverrides } from './overrides.ts';
import { findAgent } from './registered-agents.ts';
import type { FullAgent } from './wire/agent.ts';
import type { SessionRequest } from './wire/session.ts';

/** The services that resolve agents. */
export interface ResolveContext extends Pick<ApiContext, 'catalog' | 'agentCheck'> {
  config: Pick<Config, 'defaultModel'>;
  registry: EnvironmentServers;
}

/** The agent of a new session. */
interface ResolvedAgent {
  /** With everything that its definition refers to, for readers of the session. */
  agent: FullAgent;
  /** What the engine runs. */
  spec: AgentSpec;
  /** Its sub-agents. */
  delegates: DelegateTree[];
  /** The registered agent that runs unchanged; undefined if the caller has defined the agent, or changed it. */
  registered: { name: string; revision: number } | undefined;
  /** The registered agent that the request names, also if its overrides have changed it. */
  named: { name: string; revision: number } | undefined;
}

/**
 * Resolves the agent of a request, and checks that this server can run it. `isStored`: the request is that of a schedule.
 * @throws ApiError or EngineError
 */
export async function resolveAgent(
  context: ResolveContext,
  request: SessionRequest,
  { caller: { subject, roles }, isStored }: { caller: Caller; isStored: boolean },
): Promise<ResolvedAgent> {
  const { catalog, config, registry } = context;
  const found = typeof request.agent === 'string' ? await findAgent(catalog, request.agent) : undefined;
  const given = found?.definition ?? request.agent;
  if (typeof given === 'string') throw agentNotFound(given);
  // The request does not contain the definition of a registered agent, so its errors are at the name.
  const pathOf = (inner: string) => (found || inner === '' ? 'agent' : `agent.${inner}`);
  const expansion = new AgentExpansion(catalog);
  if (found) expansion.stored.add(given);
  const { specs, stored } = expansion;
  const expanded = await expansion.expand(given, pathOf, found?.name);
  const { agent: overridden, changed } = applyOverrides(expanded, request.overrides);
  const agent = changed.size > 0 ? await new AgentExpansion(catalog, expansion).expand(overridden, pathOf) : expanded;
  checkEnvironments(agent, registry, pathOf);
  const own = toSpec(agent, { defaultModel: config.defaultModel, registry, pathOf });
  const spec = forRequest(found?.spec ? withFields(found.spec, changed, own) : own, request);
  const named = found && { name: found.name, revision: found.revision };
  const registered = changed.size === 0 ? named : undefined;
  // An agent that the caller has defined has the rights of the caller.
  const owner = registered ? null : { subjectId: subject.subjectId, draftRoles: roles };
  const budget = new SchemaBudget();
  const isNew = !isStored && !stored.has(expanded);
  await checkSpec(context, spec, {
    owner,
    pathOf,
    budget,
    hasNewModel: isNew || (!isStored && changed.has('model')),
    isStored: isStored || (!isNew && changed.size === 0),
  });
  const { defaultModel } = config;
  const check = (inner: FullAgent, innerSpec: AgentSpec, path: PathInRequest) => {
    checkEnvironments(inner, registry, path);
    const isOld = isStored || stored.has(inner);
    return checkSpec(context, innerSpec, { owner, pathOf: path, budget, hasNewModel: !isOld, isStored: isOld });
  };
  const { timezone } = request;
  const delegates = await delegateTrees(agent, { timezone, defaultModel, registry, pathOf, specs, check });
  return { agent, spec, delegates, registered, named };
}

interface SpecChecks extends Pick<CheckScope, 'owner'> {
  budget: SchemaBudget;
  /** The spec was checked when it was accepted. */
  isStored: boolean;
  pathOf: PathInRequest;
  /** The model is named by the request, not by a stored agent. */
  hasNewModel: boolean;
}

/** Checks that this server can run a spec. @throws ApiError with a path in the agent */
export async function checkSpec(
  { agentCheck }: Pick<ResolveContext, 'agentCheck'>,
  spec: AgentSpec,
  { pathOf, hasNewModel, isStored, owner, budget }: SpecChecks,
): Promise<void> {
  const mistake = hasNewModel ? agentCheck.firstMistake(spec) : undefined;
  const problem = mistake ?? (await agentCheck.firstProblem(spec, { owner, budget: isStored ? undefined : budget }));
  if (problem) throw new ApiError(problem.code, problem.message, { param: pathOf(pathInAgent(problem.param)) });
}
