import type { Catalog } from '../../features/catalog.ts';
import { isGiven } from '../../lib/is-given.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import { ApiError } from '../http/errors.ts';
import { environmentsOf, skillsOf } from './agent-parts.ts';
import { invalidField, pathsIn, type PathInRequest } from './errors.ts';
import { findAgent } from './registered-agents.ts';
import type { Agent, FullAgent, Skill } from './wire/agent.ts';
import type { Environment } from './wire/environment.ts';

/** How deep sub-agents may be nested below an agent. */
const MAX_NESTING = 16;

/** How many sub-agents an agent may have, those of its sub-agents included. */
const MAX_SUBAGENTS = 100;

/** The most JSON of an agent with all that it refers to, in characters. */
const MAX_LENGTH = 5_000_000;

interface Position {
  pathOf: PathInRequest;
  /** The names of the registered agents around it. */
  around: string[];
}

/** Replaces names in agents by the definitions that they refer to. */
export class AgentExpansion {
  readonly #catalog: Catalog;
  /** The specs of sub-agents that were registered through the Sessions API: their definitions are for display only. */
  readonly specs: WeakMap<Agent, AgentSpec>;
  /** The registered agents, and the sub-agents that they define: a mistake in them was stored before. */
  readonly stored: WeakSet<Agent>;
  #subagents = 0;
  #length = 0;

  /** @param earlier an expansion whose result is a part of the agents that this one expands */
  constructor(catalog: Catalog, earlier?: Pick<AgentExpansion, 'specs' | 'stored'>) {
    this.#catalog = catalog;
    this.specs = earlier?.specs ?? new WeakMap();
    this.stored = earlier?.stored ?? new WeakSet();
  }

  /**
   * An agent with the definitions of all that it refers to. The name of a skill that is not in the catalog remains: the
   * operator may have configured it.
   * @param name the name under which the agent is registered, if it is
   * @throws ApiError that names the path
   */
  async expand(agent: Agent, pathOf: PathInRequest, name?: string): Promise<FullAgent> {
    return this.#expand(agent, { pathOf, around: name === undefined ? [] : [name] }, 0);
  }

  async #expand(agent: Agent, position: Position, depth: number): Promise<FullAgent> {
    const { pathOf } = position;
    const { environments: named, skills: namedSkills, subagents: namedAgents, ...rest } = agent;
    this.#count(rest, pathOf);
    const environments: Environment[] = [];
    for (const [i, one] of named.entries()) {
      const path = pathOf(`environments.${i}`);
      const environment = typeof one === 'string' ? await environmentsOf(this.#catalog).find(one) : one;
      if (!environment) throw invalidField(path, `there is no environment ${JSON.stringify(one)}`);
      const { kind } = environment;
      if (environments.some((other) => other.kind === kind)) {
        throw invalidField(path, `an agent has at most one environment of the kind ${kind}`);
      }
      environments.push(environment);
    }
    const skills: (string | Skill)[] = [];
    for (const one of namedSkills ?? []) {
      const skill = typeof one === 'string' ? ((await skillsOf(this.#catalog).find(one)) ?? one) : one;
      this.#count(skill, pathOf);
      skills.push(skill);
    }
    const subagents: FullAgent[] = [];
    for (const [i, one] of (namedAgents ?? []).entries()) {
      if (typeof one !== 'string' && this.stored.has(agent)) this.stored.add(one);
      const inner = { ...position, pathOf: pathsIn(pathOf, `subagents.${i}`) };
      subagents.push(await this.#subagent(one, inner, depth + 1));
    }
    const expanded = {
      ...rest,
      environments,
      ...(isGiven(namedSkills) && { skills }),
      ...(isGiven(namedAgents) && { subagents }),
    };
    const spec = this.specs.get(agent);
    if (spec) this.specs.set(expanded, spec);
    if (this.stored.has(agent)) this.stored.add(expanded);
    return expanded;
  }

  async #subagent(one: string | Agent, { pathOf, around }: Position, depth: number): Promise<FullAgent> {
    const path = pathOf('');
    this.#subagents += 1;
    if (depth > MAX_NESTING) throw invalidField(path, `sub-agents may be nested ${MAX_NESTING} deep`);
    if (this.#subagents > MAX_SUBAGENTS) {
      throw invalidField(path, `an agent may have ${MAX_SUBAGENTS} sub-agents, those of its sub-agents included`);
    }
    if (typeof one !== 'string') return this.#expand(one, { pathOf, around }, depth);
    const found = await findAgent(this.#catalog, one);
    if (!found) throw invalidField(path, `there is no agent ${JSON.stringify(one)}`);
    const { name, definition, spec } = found;
    if (spec) this.specs.set(definition, spec);
    this.stored.add(definition);
    if (around.includes(name)) {
      throw invalidField(path, `its sub-agents lead back to it: ${[...around, name].join(' → ')}`);
    }
    // The client has not sent this definition, so its errors are reported at the path of its name.
    return this.#expand(definition, { pathOf: () => path, around: [...around, name] }, depth);
  }

  #count(part: unknown, pathOf: PathInRequest): void {
    this.#length += JSON.stringify(part).length;
    if (this.#length <= MAX_LENGTH) return;
    const message = `the agent, with all that it refers to, is longer than ${MAX_LENGTH} characters`;
    throw new ApiError('content_too_large', message, { param: pathOf('') });
  }
}
