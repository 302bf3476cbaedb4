import { offeredTools, type Toolset } from '../tools/toolset.ts';
import type { ToolsetLoader } from '../tools/toolset-loader.ts';
import type { BlobStore } from '../blobs/blob-store.ts';
import type { Catalog } from '../catalog/catalog.ts';
import { withoutForeignFields } from '../models/foreign-fields.ts';
import type { ModelError } from '../models/model-error.ts';
import type { ModelProviders, ModelTarget } from '../models/providers.ts';
import { compactedBy } from '../core/compacted.ts';
import {
  connectionsOf,
  foundTools,
  placedTranscript,
  type PlacedItem,
  type TranscriptItem,
} from '../core/transcript.ts';
import type { ModelCall } from '../core/model-call.ts';
import type { FileTexts } from '../files/file-texts.ts';
import type { Skills } from '../skills/skills.ts';
import type { FoundTool, ModelMessage, ServerSignIn, StatefulConnection, UnsequencedRecord } from '../core/records.ts';
import { sessionLimitOf, type SharedBudgets } from '../engine/shared-budgets.ts';
import { modelNames, type AgentSpec } from '../spec/agent-spec.ts';
import { withCompacted } from './compacted-conversation.ts';
import { refreshedToolkits, withToolkits } from './client-toolkits.ts';
import { compactionThreshold, inputTokens, lastReport, planCompaction, type CompactionPlan } from './compaction.ts';
import { withCutResults } from './cut-results.ts';
import { loadMedia } from './load-media.ts';
import { promptOf } from './prompt.ts';
import { mayDelegate } from './route-delegation.ts';
import { readFiles, type ReadFiles } from './read-files.ts';
import { repairsLeft } from './structured-answer.ts';
import { requestSignIns, type SignInRequests } from './request-sign-ins.ts';
import type { ModelProvider, ModelRequest } from '../models/provider.ts';
import type { EarlierReport } from '../models/truncated-input.ts';
import type { OnceLog } from '../lib/once-log.ts';

/** What the parts of a model request are read from. */
export interface ModelCallSources {
  catalog: { agents: Pick<Catalog['agents'], 'spec'> };
  toolsets: Pick<ToolsetLoader, 'load'>;
  models: Pick<ModelProviders, 'resolve'>;
  blobs: Pick<BlobStore, 'get'>;
  skills: Pick<Skills, 'list'>;
  files: FileTexts;
  budgets: Pick<SharedBudgets, 'metered'>;
  losses: OnceLog;
}

export interface PreparedModelCall {
  spec: AgentSpec;
  /** Calls the model, within the budgets that the turn shares with others. */
  provider: Pick<ModelProvider, 'stream'>;
  /** The model that is called. */
  target: ModelTarget;
  /** Whether there is another model to try if this one fails. */
  hasFallback: boolean;
  request: ModelRequest;
  toolset: Toolset;
  /** The conversation without compaction, as far as it was read. */
  conversation: TranscriptItem[];
  files: Pick<ReadFiles, 'extracted' | 'loadFile'>;
  /** How often the model may be asked for another answer if one does not fit its schema. */
  repairs: number;
  /** What the model has reported of the conversation with its last message, if it has not changed since but grown. */
  earlier?: EarlierReport;
  /** The conversation has to be compacted before the model is called. */
  compaction?: Compaction;
  /** The sign-ins that were requested: the model is not called before the user has answered them. */
  signIns: ServerSignIn[];
}

export interface Compaction extends CompactionPlan {
  threshold: number;
  foundTools: FoundTool[];
  connections: StatefulConnection[];
}

/**
 * Prepares a thread's next model call, after `records`; `fallback` counts the models that were given up for it, and
 * `rejected` is how the model has rejected its conversation. Sign-ins that the agent's servers require are
 * requested if `requests` is given, and the model may call tools.
 */
export async function prepareModelCall(
  { catalog, toolsets, models, blobs, skills, files, budgets, losses }: ModelCallSources,
  call: Pick<
    ModelCall,
    | 'specHash'
    | 'turnId'
    | 'sessionId'
    | 'owner'
    | 'threadId'
    | 'mayStart'
    | 'subAgent'
    | 'isForced'
    | 'sessionLimit'
    | 'idleMs'
  > & {
    fallback?: number;
    rejected?: Pick<ModelError, 'isTooLong' | 'contextTokens'>;
    isRetry?: () => boolean;
  },
  records: Promise<UnsequencedRecord[]>,
  signal: AbortSignal,
  requests?: SignInRequests,
): Promise<PreparedModelCall> {
  const { specHash, turnId, sessionId, owner, threadId, mayStart = 0, subAgent } = call;
  const { isForced, idleMs = 0, fallback = 0, rejected, isRetry } = call;
  // All are awaited together, so that none of them can reject unhandled, which would end the process.
  const loadingSpec = catalog.agents.spec(specHash).then((loaded) => asRefreshed(loaded, records));
  const [spec, toolset, listedSkills, all] = await Promise.all([
    loadingSpec,
    loadingSpec.then((loaded) => toolsets.load(loaded, { sessionId, owner }, signal)),
    loadingSpec.then((loaded) => skills.list(loaded)),
    records,
  ]);
  const placed = placedTranscript(all, threadId);
  const conversation = placed.map(({ item }) => item);
  const read = await readFiles(conversation, { spec, files, sessionId, records: all, signal });
  const withTexts = placed.map(({ item, at }, i) => ({ item: read.conversation[i] ?? item, at }));
  const compacted = compactedBy(all, threadId);
  const shown = withCutResults(spec, withCompacted(withTexts, compacted));
  const found = foundTools(all, threadId);
  const { signIns, unavailable } =
    requests && !isForced
      ? await requestSignIns(toolset, all, requests)
      : { signIns: [], unavailable: toolset.unavailable };
  const names = modelNames(spec, subAgent?.model);
  const [target, ...rest] = inOrder(
    names.map((name) => models.resolve(name)),
    lastMessage(all, threadId),
  ).slice(fallback);
  if (!target) throw new Error(`the agent has no model number ${fallback + 1}`);
  const media = await loadMedia(
    shown.map(({ item }) => item),
    {
      blobs,
      sessionId,
      onLost: (file, i) => {
        const record = all[shown[i]?.at ?? -1];
        const recordId = record && 'id' in record ? record.id : undefined;
        const fields = { sessionId, turnId, recordId, file: file.name };
        losses.warn(
          `${sessionId}/${recordId}/${file.name}`,
          fields,
          'a file of a record is lost: a text stands for it',
        );
      },
    },
  );
  const tools = offeredTools(toolset, found, {
    mayStart,
    mayDelegate: mayDelegate(call),
    mayRead: read.isCut || hasHidden(conversation, shown),
  });
  const request = promptOf({
    spec,
    // A registered agent is instructed by its own spec alone.
    ...(subAgent && subAgent.agent === undefined && { taskName: subAgent.title }),
    model: target.model,
    transcript: withoutForeignFields(media.transcript, target),
    tools,
    hasOptionalTools: tools.every(({ info }) => info.type === 'system'),
    unavailable,
    serverInstructions: toolset.instructions,
    ...(isForced && { toolChoice: 'none' }),
    skills: listedSkills,
    fileContent: media.contentOf,
  });
  // A speculative call begins before the turn's start is known.
  const sessionLimit = subAgent ? call.sessionLimit : sessionLimitOf(spec);
  const provider = budgets.metered(target, { turnId, sessionId, owner, sessionLimit, idleMs, isRetry });
  const earlier = lastReport(request, shown, compacted.last);
  const tokens = inputTokens(request, earlier);
  const isTooLong =
    rejected !== undefined &&
    (rejected.isTooLong || (tokens > SHORT_TOKENS && wasAccepted(shown, compacted.last, target)));
  const rejectedTokens = isTooLong ? (rejected.contextTokens ?? tokens) : target.shownTokens;
  const threshold = compactionThreshold(spec, target.contextTokens, rejectedTokens);
  const plan =
    threshold !== undefined &&
    planCompaction({ conversation: shown, records: all, compacted, tokens, threshold, isTooLong });
  return {
    spec,
    provider,
    target,
    hasFallback: rest.length > 0,
    request,
    toolset: { ...toolset, unavailable },
    conversation,
    files: read,
    repairs: repairsLeft(spec, all, threadId),
    ...(earlier && isBy(earlier.message, target) && { earlier }),
    ...(plan && {
      compaction: { ...plan, threshold, foundTools: found, connections: connectionsOf(all, threadId).last },
    }),
    signIns,
  };
}

/** No model rejects so few tokens for their number: what is wrong is something else. */
const SHORT_TOKENS = 2_000;

/**
 * Whether a model has answered the conversation while it was shorter, since the last compaction: what it rejects now may
 * be its length, although it has no word for that.
 */
function wasAccepted(shown: PlacedItem[], compactedAt: number, target: ModelTarget): boolean {
  return shown.some(({ item, at }) => item.role === 'assistant' && at > compactedAt && isBy(item.message, target));
}

function isBy({ provider, model }: ModelMessage, target: ModelTarget): boolean {
  return provider === target.providerName && model === target.model;
}

/** An agent with the toolkits that its client has now. */
async function asRefreshed(spec: AgentSpec, records: Promise<UnsequencedRecord[]>): Promise<AgentSpec> {
  return spec.clientToolkits ? withToolkits(spec, refreshedToolkits(await records)) : spec;
}

/**
 * The models of an agent in the order in which they are tried. A turn stays with the model that wrote its last message:
 * the next step would otherwise wait again for one that fails, and the fields of the message would be of no use.
 */
function inOrder(targets: ModelTarget[], last: ModelMessage | undefined): ModelTarget[] {
  const current = last
    ? targets.findIndex(({ providerName, model }) => providerName === last.provider && model === last.model)
    : -1;
  return current < 0 ? targets : [...targets.slice(current), ...targets.slice(0, current)];
}

/** The last message of a thread in the turn in progress. */
function lastMessage(records: UnsequencedRecord[], threadId: string): ModelMessage | undefined {
  const last = records.findLast(
    (record) => record.kind === 'turn.created' || (record.kind === 'model.message' && record.threadId === threadId),
  );
  return last?.kind === 'model.message' ? last : undefined;
}

/** Whether the model sees a result of the conversation only in part, or not at all. */
function hasHidden(conversation: TranscriptItem[], shown: PlacedItem[]): boolean {
  const whole = new Set(conversation);
  return shown.some(({ item }) => item.role === 'tool' && !whole.has(item));
}
