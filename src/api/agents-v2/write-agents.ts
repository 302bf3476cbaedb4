import type { Caller } from '../../core/subject.ts';
import { SchemaBudget } from '../../engine/schema-budget.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import { agentNotFound, ApiError } from '../http/errors.ts';
import { parsePart } from '../http/request.ts';
import { AGENTS_V2_ERRORS, invalidField, type PathInRequest } from './errors.ts';
import { patched } from './agent-parts.ts';
import { toSpec } from './agent-to-spec.ts';
import { delegateTrees, storeDelegates } from './delegates.ts';
import { refuseReserved, requireSameName } from './catalog-queries.ts';
import { AgentExpansion } from './expand-agent.ts';
import { readAgent, type RegisteredAgent } from './registered-agents.ts';
import { checkSpec, type ResolveContext } from './resolve-agent.ts';
import { agent as agentShape, type Agent, type FullAgent } from './wire/agent.ts';

/** The author, the message and the base of a change of an agent. */
interface Change {
  caller: Caller;
  message?: string | undefined;
  /** The revision on which the change is based; undefined: any. */
  ifMatch?: number | undefined;
}

/** A revision that the catalog has now. */
export interface StoredAgent {
  agent: Agent;
  revision: number;
}

const OF_OTHER_API =
  'was registered through the Sessions API, and has settings that this API does not show: change it there, or replace it with PUT';

/** Writes registered agents. Each change is a new revision, stored with the spec that the engine runs. */
export class AgentWriter {
  readonly #context: ResolveContext;

  constructor(context: ResolveContext) {
    this.#context = context;
  }

  /** @throws ApiError */
  async create(agent: Agent, change: Change): Promise<StoredAgent> {
    const { name } = agent;
    if (name.endsWith('/revisions')) throw invalidField('name', 'must not end with /revisions');
    const definition = await this.#definition(agent, change);
    const stored = await this.#context.catalog.agentDefinitions.create(definition, now());
    if (stored.outcome === 'stored') return this.#stored(agent, definition.spec, stored.version);
    throw new ApiError(AGENTS_V2_ERRORS.already_exists, `there is already an agent ${JSON.stringify(name)}`);
  }

  /** @throws ApiError */
  async replace(name: string, agent: Agent, change: Change): Promise<StoredAgent> {
    requireSameName('name', { body: agent.name, url: name });
    return this.#put(agent, change);
  }

  /** Changes some fields of an agent. @throws ApiError */
  async patch(name: string, fields: Record<string, unknown>, change: Change): Promise<StoredAgent> {
    refuseReserved(name);
    const current = await this.#read(name);
    const agent = parsePart(agentShape, patched(current.definition, fields), 'body');
    return this.#put(agent, { ...change, ifMatch: change.ifMatch ?? current.revision });
  }

  /** Makes an earlier revision the current one again. @throws ApiError */
  async restore(name: string, revision: number, change: Omit<Change, 'message'>): Promise<StoredAgent> {
    refuseReserved(name);
    const { definition } = await this.#read(name, revision);
    return this.#put(definition, { ...change, message: `Restored from v${revision}` }, revision);
  }

  /** @throws ApiError */
  async delete(name: string, ifMatch: number | undefined): Promise<void> {
    refuseReserved(name);
    if (!(await readAgent(this.#context.catalog, name))) throw agentNotFound(name);
    if (!(await this.#context.catalog.agents.delete(name, ifMatch))) throw changedMeanwhile(name);
  }

  async #put(agent: Agent, change: Change, restoredFrom?: number): Promise<StoredAgent> {
    const definition = await this.#definition(agent, change);
    const stored = await this.#context.catalog.agentDefinitions.put(
      { ...definition, ...(restoredFrom !== undefined && { restoredFrom }) },
      change.ifMatch,
      now(),
    );
    if (stored.outcome === 'stored') return this.#stored(agent, definition.spec, stored.version);
    throw stored.outcome === 'moved' ? changedMeanwhile(agent.name) : agentNotFound(agent.name);
  }

  async #stored(agent: Agent, spec: AgentSpec, revision: number): Promise<StoredAgent> {
    await this.#context.agentCheck.logWarnings({ name: agent.name, version: revision, spec });
    return { agent, revision };
  }

  async #definition(agent: Agent, { caller, message }: Change) {
    const { name, description } = agent;
    refuseReserved(name);
    return {
      name,
      description,
      definition: JSON.stringify(agent),
      spec: await this.#spec(agent),
      message,
      createdBy: caller.subject.subjectSlug,
    };
  }

  /** The agent's spec as of now, which sessions of the Sessions API run. @throws ApiError */
  async #spec(agent: Agent) {
    const { registry, config, catalog } = this.#context;
    const pathOf = (inner: string) => inner;
    const options = { defaultModel: config.defaultModel, registry, pathOf };
    const budget = new SchemaBudget();
    const expansion = new AgentExpansion(catalog);
    const { specs, stored } = expansion;
    const full = await expansion.expand(agent, pathOf, agent.name);
    // An environment may be stored before a server provides it: the creation of a session reports that.
    const check = async (one: FullAgent, path: PathInRequest) => {
      const provided = one.environments.filter(({ kind }) => registry.environmentServer(kind) !== undefined);
      const spec = specs.get(one) ?? toSpec({ ...one, environments: provided }, { ...options, pathOf: path });
      const isStored = stored.has(one);
      await checkSpec(this.#context, spec, { owner: null, pathOf: path, budget, hasNewModel: !isStored, isStored });
    };
    await check(full, pathOf);
    const delegates = await delegateTrees(full, { ...options, specs, check: (one, _, path) => check(one, path) });
    return storeDelegates(catalog, { spec: toSpec(full, options), delegates }, now());
  }

  async #read(name: string, revision?: number): Promise<RegisteredAgent> {
    const agent = await readAgent(this.#context.catalog, name, revision);
    if (!agent) throw agentNotFound(name);
    if (!agent.spec) return agent;
    throw new ApiError('invalid_request', `${JSON.stringify(name)} ${OF_OTHER_API}`);
  }
}

function changedMeanwhile(name: string): ApiError {
  return new ApiError(
    AGENTS_V2_ERRORS.precondition_failed,
    `the agent ${JSON.stringify(name)} was changed meanwhile: read it again`,
  );
}

function now(): string {
  return new Date().toISOString();
}
