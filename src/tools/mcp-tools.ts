import type { Logger } from 'pino';
import type { ToolScope } from '../core/history.ts';
import type { ToolCall, ToolInfo } from '../core/records/calls.ts';
import type { CallOutcome } from '../mcp/call-outcome.ts';
import { callInRounds, type AskingCall, type RoundsOptions } from '../mcp/call-rounds.ts';
import { instrumentCall } from '../mcp/instrument-call.ts';
import { OpenCalls } from '../mcp/open-calls.ts';
import { listedSchemaOf, resultSchemaOf } from '../mcp/read-tools.ts';
import { McpUnavailableError, type McpPool, type McpServerTools } from '../mcp/pool.ts';
import type { McpRegistry } from '../mcp/registry.ts';
import { withSecrets, type ServerForRun, type ServerSecrets } from '../mcp/server-secrets.ts';
import type { SignInNeed } from '../mcp/sign-in-required.ts';
import { OnceLog } from '../lib/once-log.ts';
import { retryWhileUnavailable } from '../engine/retry.ts';
import { approvalFloor, mayUse, type ServerPolicy } from '../mcp/server-policy.ts';
import type { AgentSpec, McpServer } from '../spec/agent-spec.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { parseArguments } from './arguments.ts';
import { decisionPolicyWarnings, unaskedWarnings } from './decision-policy.ts';
import { isListed, selectorWarnings, selectTools, type OperatorLimits } from './selectors.ts';
import type { KindTools, RunOptions, ToolKind } from './tool-kind.ts';
import { toolNames } from './tool-names.ts';
import type { AgentTool, Toolset } from './toolset.ts';

type McpToolInfo = Extract<ToolInfo, { type: 'mcp' }>;
type McpTool = AgentTool & { info: McpToolInfo };

/** Finds an agent's server, with its policy; `refusal` is why the session may not use it. */
type LookUp = (server: McpServer) => Partial<Omit<ServerForRun, 'endpoint'>> & {
  /** Undefined if no server is registered under its name. */
  endpoint: ServerForRun['endpoint'] | undefined;
  policy: ServerPolicy;
  refusal?: string;
};

interface McpToolsOptions {
  registry: McpRegistry;
  pool: McpPool;
  metrics: Metrics;
  /** What clients give to the MCP servers of a session; undefined for a session without such values. */
  runSecrets: { get: (sessionId: string) => Promise<string | undefined> };
  /** The warnings for the author of an agent that concern one of its servers. Never rejects. */
  warningsAbout: (server: string, spec: AgentSpec) => Promise<string[]>;
  log: Logger;
}

/** The tools of a server that an agent may use, under their own names. */
export function agentTools(
  server: McpServer,
  { id, name, tools }: Pick<McpServerTools, 'id' | 'name' | 'tools'>,
  { limits, ordered }: { limits?: OperatorLimits; ordered?: boolean | undefined } = {},
): McpTool[] {
  return selectTools(server, tools, limits).map(
    ({ tool, approval, isFloor, annotation, effect, deferred }): McpTool => ({
      name: tool.name,
      description: tool.description ?? tool.title ?? '',
      parameters: tool.inputSchema,
      ...listedSchemaOf(tool),
      info: { type: 'mcp', serverId: id, serverName: name, name: tool.name, ...(deferred && { deferred }) },
      run: {
        to: 'server',
        effect,
        approval,
        ...(isFloor && { isFloor }),
        ...(ordered && { order: { server: id, ...(annotation === '@read-only' && { isReadOnly: true }) } }),
      },
      annotation,
      ...(server.allowed_callers && { callers: server.allowed_callers }),
      ...(server.allowed_callers?.includes('code') && resultSchemaOf(tool)),
      ...(annotation === '@read-only' && mayBeginAhead(server) && { beginsAhead: true }),
    }),
  );
}

/** By default only annotations of the operator's servers are trusted to say that a tool changes nothing. */
function mayBeginAhead({ type, begin_ahead: isAllowed }: McpServer): boolean {
  return isAllowed ?? type !== 'inline';
}

/** The tools of an agent's MCP servers. */
export class McpTools implements ToolKind {
  readonly type = 'mcp';
  readonly #options: McpToolsOptions;
  readonly #openCalls = new OpenCalls();
  readonly #log: OnceLog;

  constructor(options: McpToolsOptions) {
    this.#options = options;
    this.#log = new OnceLog(options.log);
  }

  async tools(spec: AgentSpec, scope: ToolScope, signal: AbortSignal): Promise<KindTools> {
    const lookUp = await this.#lookUp(spec, scope);
    const servers = await Promise.all(
      (spec.mcp_servers ?? []).map((server) => this.#server(server, { spec, lookUp, scope, signal })),
    );
    signal.throwIfAborted();
    const tools = servers.flatMap(({ tools }) => tools);
    return {
      named: (taken) => {
        const nameOf = toolNames(spec, taken);
        return tools.map((tool) => ({ ...tool, name: nameOf(tool.info.serverName, tool.info.name) }));
      },
      servers: servers.flatMap(({ connected }) => connected),
      unavailable: servers.flatMap(({ unavailable }) => unavailable),
      instructions: servers.flatMap(({ instructions = [] }) => instructions),
    };
  }

  async run(call: ToolCall, options: RunOptions): Promise<CallOutcome | AskingCall> {
    const { spec, scope, operationId, signal, mayRepeat, resumed, reliesOn } = options;
    const { info } = call;
    if (info.type !== this.type) throw new TypeError(`not a tool of an MCP server: ${call.name}`);
    let server: ServerForRun;
    try {
      server = await this.#endpoint(spec, scope, info, signal);
    } catch (error) {
      if (!(error instanceof McpUnavailableError) || !error.signIn) throw error;
      return { status: 'sign_in_required', message: error.message, signIn: error.signIn };
    }
    const parsed = parseArguments({}, call.arguments);
    if (!parsed.ok) return { status: 'result', isError: true, content: [{ type: 'text', text: parsed.message }] };
    const { name: tool } = info;
    const { endpoint, context } = server;
    const totalTimeoutMs = options.timeoutMs;
    const timeouts = { timeoutMs: Math.min(totalTimeoutMs, endpoint.timeoutMs ?? Infinity), totalTimeoutMs };
    const rounds: Omit<RoundsOptions, 'resumed'> = {
      openCalls: this.#openCalls,
      send: (more) =>
        this.#options.pool.call(endpoint, scope, tool, parsed.value, {
          operationId,
          ...timeouts,
          context,
          reliesOn,
          ...more,
        }),
      measure: (work) => instrumentCall({ metrics: this.#options.metrics, endpoint, tool }, work),
      signal,
      mayRepeat,
    };
    let end = await callInRounds({ ...rounds, resumed });
    // Cancelled here, so that the questions of a server, and the state that it wants back, are not stored.
    while (spec.declinesQuestions && end.status === 'asks') {
      end = await callInRounds({ ...rounds, resumed: { ...end, answer: { action: 'cancel' } } });
    }
    return end;
  }

  /** @throws an Error that says why the tool must not be called, McpUnavailableError, or the reason of the signal */
  async #endpoint(
    spec: AgentSpec,
    scope: ToolScope,
    { serverId, serverName, name }: McpToolInfo,
    signal: AbortSignal,
  ): Promise<ServerForRun> {
    const lookUp = await retryWhileUnavailable(() => this.#lookUp(spec, scope), signal);
    const servers = spec.mcp_servers ?? [];
    // An agent may have a server twice, with different credentials; and it may have been renamed since the call.
    const namesake = servers.filter((one) => one.name === serverName);
    for (const server of [...namesake, ...servers]) {
      const { endpoint, context, policy, refusal } = lookUp(server);
      if (endpoint?.id !== serverId) continue;
      if (refusal) throw new Error(`its server ${refusal}`);
      // Only a selector such as @read-only depends on the annotations, which must be requested from the server.
      if (!['@all', name].some((selector) => policy.tools.includes(selector))) {
        const { tools } = await this.#options.pool.tools(endpoint, scope, signal);
        const isAllowed = tools.some((tool) => tool.name === name && isListed(tool, policy.tools));
        if (!isAllowed) throw new Error('the operator of this server does not allow this tool.');
      }
      return { endpoint, ...(context && { context }) };
    }
    throw new Error('its server is not configured on this worker.');
  }

  async #server(
    server: McpServer,
    { spec, lookUp, scope, signal }: { spec: AgentSpec; lookUp: LookUp; scope: ToolScope; signal: AbortSignal },
  ): Promise<Pick<Toolset, 'unavailable' | 'instructions'> & { connected: Toolset['servers']; tools: McpTool[] }> {
    const { endpoint, policy, refusal } = lookUp(server);
    const unavailable = (reason: string, signIn?: SignInNeed) => ({
      connected: [],
      tools: [],
      unavailable: [{ server: server.name, reason, ...(signIn && { signIn }) }],
    });
    if (!endpoint) return unavailable('it is not registered on this server');
    if (refusal) return unavailable(`it ${refusal}`);
    const ofAgent = this.#options.warningsAbout(server.name, spec);
    let offered: McpServerTools;
    try {
      offered = await this.#options.pool.tools(endpoint, scope, signal);
    } catch (error) {
      if (!(error instanceof McpUnavailableError)) throw error;
      return unavailable(`it ${error.reason}`, error.signIn);
    }
    const { id, name, sessionId, transport, account } = offered;
    const { idempotentTools, ordered } = endpoint;
    const limits = { idempotentTools, allowed: policy.tools, floor: approvalFloor(policy, scope.owner) };
    const tools = agentTools(server, offered, { limits, ordered });
    const mistakes = [
      ...offered.toolWarnings,
      ...selectorWarnings(server, offered.tools),
      ...decisionPolicyWarnings(spec, server.name, offered.tools),
      ...unaskedWarnings(spec, server, tools),
    ];
    for (const warning of mistakes) {
      this.#log.warn(`${name}: ${warning}`, { server: name }, `the tools of an agent's MCP server: ${warning}`);
    }
    const warnings = [...mistakes, ...(await ofAgent)];
    const connected = {
      id,
      name,
      sessionId,
      transport,
      ...(warnings.length > 0 && { warnings }),
      ...(account && { account }),
    };
    const { instructions: text } = offered;
    const instructions = text !== '' && tools.length > 0 ? [{ server: server.name, text }] : [];
    return { connected: [connected], tools, unavailable: [], instructions };
  }

  /** Looks up the servers of an agent in a session, with the values that the client of a run has given them. */
  async #lookUp({ givenToServers }: AgentSpec, { sessionId, owner }: ToolScope): Promise<LookUp> {
    const stored = givenToServers && (await this.#options.runSecrets.get(sessionId));
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by the Runs API
    const secrets = stored === undefined ? undefined : (JSON.parse(stored) as ServerSecrets);
    return (server) => {
      const policy = this.#options.registry.policy(server);
      const endpoint = this.#options.registry.resolve(server);
      if (!mayUse(policy, owner)) return { endpoint, policy, refusal: 'is not open to the drafts of this user' };
      const given = givenToServers?.find((one) => one.server === server.name);
      if (!endpoint || !given) return { endpoint, policy };
      return { endpoint, policy, ...withSecrets(endpoint, given, { secrets, sessionId }) };
    };
  }
}
