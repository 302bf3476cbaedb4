import { KernelCatalog, type CatalogOptions } from '../catalog/catalog.ts';
import type { CatalogFeatures } from '../catalog/log-reader.ts';
import { writeEvents } from './event-rows.ts';
import { AgentDefinitions } from './agent-sessions/agent-definitions.ts';
import { AgentParts } from './agent-sessions/agent-parts.ts';
import { IdleTimeouts } from './agent-sessions/idle-timeouts.ts';
import { SessionFeedback } from './agent-sessions/session-feedback.ts';
import { SessionList } from './agent-sessions/session-list.ts';
import { SessionRequests } from './agent-sessions/session-requests.ts';
import { SessionSlots } from './agent-sessions/session-slots.ts';
import { SharedSessions } from './agent-sessions/shared-sessions.ts';
import { KernelHosts } from './code/kernel-host-rows.ts';
import { PermissionRules } from './code/permissions/rule-rows.ts';
import { SavedTools } from './code/saved-tools/saved-tool-rows.ts';
import { Sandboxes } from './code/sandbox-rows.ts';
import { Spending } from './budgets/spending-rows.ts';
import { Delegations } from './delegation/delegation-rows.ts';
import { FEATURES } from './features.ts';
import { Actions } from './inbox/action-rows.ts';
import { KeptAnswers } from './inbox/kept-answers.ts';
import { RunSecrets } from './run-support/run-secrets.ts';
import { RunSummaries } from './run-support/run-summaries.ts';
import { ScheduleRuns } from './schedules/schedule-run-rows.ts';
import { Schedules } from './schedules/schedule-rows.ts';
import { TurnPositions } from './session-stream/turn-positions.ts';
import { McpGrants } from './sign-in/mcp-grants.ts';
import { McpSignIns } from './sign-in/mcp-sign-ins.ts';
import { Deliveries } from './webhooks/deliveries.ts';
import { Webhooks } from './webhooks/webhook-rows.ts';

/** The catalog with the stores of all features. */
export class Catalog extends KernelCatalog {
  readonly actions = new Actions(this.context);
  readonly agentDefinitions = new AgentDefinitions(this.context, this.agents);
  readonly agentParts = new AgentParts(this.context);
  readonly delegations = new Delegations(this.context);
  readonly deliveries = new Deliveries(this.context);
  readonly idleTimeouts = new IdleTimeouts(this.context);
  readonly keptAnswers = new KeptAnswers(this.context);
  readonly kernelHosts = new KernelHosts(this.context);
  readonly mcpGrants = new McpGrants(this.context);
  readonly mcpSignIns = new McpSignIns(this.context);
  readonly permissionRules = new PermissionRules(this.context);
  readonly runSecrets = new RunSecrets(this.context);
  readonly runSummaries = new RunSummaries(this.context);
  readonly sandboxes = new Sandboxes(this.context);
  readonly savedTools = new SavedTools(this.context);
  readonly scheduleRuns = new ScheduleRuns(this.context);
  readonly schedules = new Schedules(this.context);
  readonly sessionFeedback = new SessionFeedback(this.context);
  readonly sessionList = new SessionList(this.context);
  readonly sessionRequests = new SessionRequests(this.context);
  readonly sessionSlots = new SessionSlots(this.context);
  readonly sharedSessions = new SharedSessions(this.context);
  readonly spending = new Spending(this.context);
  readonly turnPositions = new TurnPositions(this.context);
  readonly webhooks = new Webhooks(this.context);

  constructor(options: CatalogOptions) {
    super(options, featuresFor(options));
  }
}

/** The hooks of the features that the kernel calls. */
function featuresFor({ cipher }: Pick<CatalogOptions, 'cipher'>): CatalogFeatures {
  return {
    readers: FEATURES.flatMap(({ logReaders }) => logReaders?.(cipher) ?? []),
    tablesOfSessions: FEATURES.flatMap(({ tablesOfSessions = [] }) => tablesOfSessions),
    tablesOfTurns: FEATURES.flatMap(({ tablesOfTurns = [] }) => tablesOfTurns),
    columnsOf: (turn) => Object.assign({}, ...FEATURES.map(({ columnsOf }) => columnsOf?.(turn, cipher))),
    writeEvents,
  };
}
