import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import type { ModelProviders } from '../models/providers.ts';
import { NO_USAGE } from '../core/records/usage.ts';
import {
  invalidAgent,
  type AcceptedMedia,
  type AgentProblem,
  type CheckScope,
  type RegisteredVersion,
} from '../engine/agent-check.ts';
import { hashOf } from '../lib/hash.ts';
import { isGiven } from '../lib/is-given.ts';
import { withTimeout } from '../lib/timeout.ts';
import type { McpRegistry } from '../mcp/registry.ts';
import { mayUse } from '../mcp/server-policy.ts';
import { NO_CREDENTIALS } from '../mcp/server-secrets.ts';
import { takesSignIn } from '../mcp/sign-in-required.ts';
import { modelNames, type AgentSpec, type ModelOptions, type WebSearch } from '../spec/agent-spec.ts';
import { policyProblem, type PolicyServer } from './policy-problem.ts';
import { aboutServer, agentWarnings } from './agent-warnings.ts';
import type { KnownSubjects } from './policy-warnings.ts';
import { specSchemaProblem } from './spec-schema-problem.ts';
import type { SystemTool } from '../tools/system-tool.ts';
import { reservedNames } from '../tools/system-tools.ts';

/**
 * Features of the agent format that this server does not support. They may be omitted or disabled; an agent that enables
 * one is rejected, because it would silently lack a feature that its author relies on.
 */
const NOT_AVAILABLE: { param: string; isEnabled: (spec: AgentSpec) => boolean }[] = [
  { param: 'skills', isEnabled: ({ skills }) => (skills ?? []).some(({ type }) => isGiven(type)) },
  { param: 'config.generative_ui', isEnabled: ({ config }) => config?.generative_ui?.enabled === true },
];

function delegatesProblem({ delegates = [], config }: AgentSpec): AgentProblem | undefined {
  if (delegates.length === 0 || config?.pause === 'wait') return undefined;
  return invalidAgent('delegates', 'an agent that delegates requires pause: "wait"');
}

interface AgentValidatorOptions {
  models: ModelProviders;
  registry: McpRegistry;
  /** The first problem of the parts of an agent that belong to features. */
  featureProblem: (spec: AgentSpec) => Promise<AgentProblem | undefined>;
  /** What features need for the agent and is not ready yet. */
  notReady: (spec: AgentSpec) => Promise<string | undefined>;
  /** The tools of the server, whose names its clients' tools cannot have. */
  systemTools: readonly SystemTool<never>[];
  /** Called for each check: keys may be created at any time. */
  policyServer: () => PolicyServer;
  knownSubjects: () => Promise<KnownSubjects>;
  /** Returns those of the names under which agents are registered. */
  registered: (names: string[]) => Promise<string[]>;
  /** Asks inline servers for their tools: see `unaskedTools`. */
  unasked: (spec: AgentSpec) => Promise<string[]>;
  log: Pick<Logger, 'warn'>;
}

/** Agents whose warnings are remembered as logged. */
const MAX_LOGGED = 10_000;

/** Agents whose warnings are kept for their calls, and for how long. */
const MAX_RECENT = 100;
const RECENT_MS = 60_000;

/** How long a model call may wait for warnings while the catalog is unavailable, in milliseconds. */
const WARNINGS_MS = 500;

const MAY_NOT_WORK = 'a registered agent may not work as intended';

/** Checks whether this server can run an agent, beyond what the schema can check. */
export class AgentValidator {
  readonly #options: AgentValidatorOptions;
  /** The versions of agents of which the log has the warnings. */
  readonly #logged = new LRUCache<string, true>({ max: MAX_LOGGED });

  /** Warnings by spec, which the catalog gives as the same object: each model call asks for them. */
  readonly #recent = new LRUCache<AgentSpec, string[]>({
    max: MAX_RECENT,
    ttl: RECENT_MS,
    fetchMethod: (spec) => this.#warnings(spec, this.#mistakes(spec)),
  });

  /** The warnings about inline servers, by the hash of the spec. */
  readonly #unasked = new LRUCache<string, string[]>({ max: MAX_RECENT });

  constructor(options: AgentValidatorOptions) {
    this.#options = options;
  }

  /** The first problem of an agent, or undefined if it can run. */
  async firstProblem(spec: AgentSpec, { owner, budget }: CheckScope): Promise<AgentProblem | undefined> {
    const unsupported = NOT_AVAILABLE.find(({ isEnabled }) => isEnabled(spec));
    if (unsupported) {
      const message = `${unsupported.param} is not available on this server; omit it`;
      return { code: 'feature_not_available', message, param: unsupported.param };
    }
    const problem =
      policyProblem(spec, owner, this.#options.policyServer()) ??
      delegatesProblem(spec) ??
      (await specSchemaProblem(spec, budget));
    if (problem) return problem;
    for (const [i, server] of (spec.mcp_servers ?? []).entries()) {
      const param = `mcp_servers.${i}.name`;
      const endpoint = this.#options.registry.resolve(server);
      if (!endpoint) {
        return invalidAgent(param, `no MCP server is registered under the name ${server.name}`);
      }
      const given = spec.givenToServers?.find((one) => one.server === server.name);
      if (given?.headers !== undefined && !takesSignIn(endpoint)) {
        return invalidAgent(`mcp_servers.${i}.authorization`, `the MCP server ${server.name} ${NO_CREDENTIALS}`);
      }
      if (owner === null || mayUse(this.#options.registry.policy(server), owner)) continue;
      const message =
        `the MCP server ${server.name} is not open to the drafts of ${owner.subjectId}: use an agent that has it, ` +
        'or ask the operator to list the subject or its role under "drafts" of the server in EVERTURN_MCP_SERVERS';
      return { code: 'forbidden', message, param };
    }
    const servers = (spec.mcp_servers ?? []).map(({ name }) => name);
    const namesake = servers.findIndex((name, i) => servers.indexOf(name) !== i);
    if (namesake >= 0) {
      const message = `two MCP servers are named ${servers[namesake]}: each needs a unique name`;
      return invalidAgent(`mcp_servers.${namesake}.name`, message);
    }
    const own = reservedNames(spec, this.#options.systemTools);
    const names = (spec.client_tools ?? []).map(({ name }) => name);
    const twice = names.find((name, i) => names.indexOf(name) !== i || own.has(name));
    if (twice) {
      return invalidAgent('client_tools', `the name ${twice} is taken: client tools need unique names`);
    }
    return (
      (await this.#options.featureProblem(spec)) ??
      (await this.#unknownModel(spec)) ??
      this.#unknownOption(spec) ??
      this.#unknownSearch(spec) ??
      this.#unknownPrice(spec)
    );
  }

  notReady(spec: AgentSpec): Promise<string | undefined> {
    return this.#options.notReady(spec);
  }

  /** The first mistake in an agent that could run: it is rejected, or gets a warning if it was stored before. */
  firstMistake(spec: AgentSpec): AgentProblem | undefined {
    return this.#mistakes(spec).at(0);
  }

  #mistakes(spec: AgentSpec): AgentProblem[] {
    return modelNames(spec).flatMap((name, i) => {
      const message = this.#options.models.prefixProblem(name);
      return message === undefined ? [] : [invalidAgent(modelParam(i), message)];
    });
  }

  /** The models that their providers do not list, as far as this process has asked: they may exist nevertheless. */
  #unlistedModels(spec: AgentSpec): AgentProblem[] {
    return modelNames(spec).flatMap((name, i) => {
      const alternatives = this.#options.models.alternatives(name);
      if (alternatives === undefined) return [];
      const message = `the model provider does not list the model ${name}: ${alternatives}`;
      return [invalidAgent(modelParam(i), message)];
    });
  }

  /** The warnings for the author of an agent that can run. Connects to none of its servers. */
  async warnings(spec: AgentSpec): Promise<string[]> {
    return this.#warnings(spec, this.#mistakes(spec), this.#unasked.get(hashOf(spec)));
  }

  /** The same for an agent that is being written. Connects to its inline servers; `warnings` then has the results. */
  async newWarnings(spec: AgentSpec): Promise<string[]> {
    this.#unasked.set(hashOf(spec), await this.#options.unasked(spec));
    return this.warnings(spec);
  }

  /** Logs the warnings of a version of a registered agent, unless this process has done so. */
  async logWarnings({ name, version, spec }: RegisteredVersion): Promise<void> {
    const key = `${version} ${name}`;
    if (this.#logged.has(key)) return;
    this.#logged.set(key, true);
    try {
      // `ModelProviders` logs what is wrong with the names of models.
      const warnings = await this.#warnings(spec, []);
      if (warnings.length > 0) this.#options.log.warn({ agent: name, version, warnings }, MAY_NOT_WORK);
    } catch (error) {
      this.#logged.delete(key);
      throw error;
    }
  }

  /** The warnings of an agent that concern one of its MCP servers. Never rejects: without them, the server works. */
  async warningsAbout(server: string, spec: AgentSpec): Promise<string[]> {
    try {
      return aboutServer(server, spec, (await withTimeout(WARNINGS_MS, this.#recent.fetch(spec))) ?? []);
    } catch (error) {
      this.#options.log.warn({ err: error }, 'the warnings of an agent could not be determined');
      return [];
    }
  }

  async #warnings(spec: AgentSpec, mistakes: AgentProblem[], unasked: string[] = []): Promise<string[]> {
    const [subjects, agents] = await Promise.all([
      spec.config?.decision_policies ? this.#options.knownSubjects() : undefined,
      spec.agents ? this.#options.registered(spec.agents) : [],
    ]);
    const unlisted = this.#unlistedModels(spec);
    return agentWarnings(spec, { mistakes: [...mistakes, ...unlisted], subjects, agents, unasked });
  }

  /** The media that all models of an agent take. */
  acceptedInput(spec: AgentSpec): AcceptedMedia {
    const targets = modelNames(spec).map((name) => this.#options.models.resolve(name));
    const [first = new Set<string>(), ...rest] = targets.map(({ audioTypes }) => audioTypes);
    return {
      audioTypes: rest.reduce((all, types) => new Set([...all].filter((type) => types.has(type))), first),
      ownImages: targets.every(({ options }) => options.has('image_output')),
    };
  }

  #unknownOption({ modelOptions = {}, ...spec }: AgentSpec): AgentProblem | undefined {
    for (const name of modelNames(spec)) {
      const { options, providerName } = this.#options.models.resolve(name);
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the keys of its type
      const option = (Object.keys(modelOptions) as (keyof ModelOptions)[]).find((one) => !options.has(one));
      if (option === undefined) continue;
      const message = `the protocol of the model provider ${providerName} has no ${option}: leave it out, or use another model`;
      return { code: 'feature_not_available', message, param: `modelOptions.${option}` };
    }
    return undefined;
  }

  #unknownSearch({ webSearch, ...spec }: AgentSpec): AgentProblem | undefined {
    if (!webSearch) return undefined;
    for (const name of modelNames(spec)) {
      const { search, providerName } = this.#options.models.resolve(name);
      const refused = `the protocol of the model provider ${providerName} has no`;
      if (!search) {
        const message = `${refused} web search: leave the tool out, or use another model`;
        return { code: 'unsupported_part', message, param: 'webSearch' };
      }
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the keys of its type
      const option = (Object.keys(webSearch) as (keyof WebSearch)[]).find((one) => !search.has(one));
      if (option === undefined) continue;
      const message = `${refused} ${option} for its web search: leave it out, or use another model`;
      return { code: 'unsupported_part', message, param: `webSearch.${option}` };
    }
    return undefined;
  }

  #unknownPrice(spec: AgentSpec): AgentProblem | undefined {
    if (!isGiven(spec.config?.budget?.usd)) return undefined;
    const unpriced = modelNames(spec).find((name) => this.#options.models.resolve(name).cost(NO_USAGE) === undefined);
    if (unpriced === undefined) return undefined;
    const message =
      `the price of the model ${unpriced} is unknown, so its use cannot be limited in USD: limit tokens instead, ` +
      'or ask the operator to set the price in EVERTURN_MODEL_PROVIDERS';
    return invalidAgent('config.budget.usd', message);
  }

  async #unknownModel(spec: AgentSpec): Promise<AgentProblem | undefined> {
    const names = modelNames(spec);
    const known = await Promise.all(names.map((name) => this.#options.models.has(name)));
    const unknown = known.indexOf(false);
    if (unknown < 0) return undefined;
    const name = names[unknown] ?? '';
    const alternatives = this.#options.models.alternatives(name);
    const message = `the model provider has no model ${name}${alternatives === undefined ? '' : `: ${alternatives}`}`;
    return invalidAgent(modelParam(unknown), message);
  }
}

/** The path of one of an agent's `modelNames`. */
function modelParam(index: number): string {
  return index === 0 ? 'model.name' : `model.fallbacks.${index - 1}`;
}
