import { offeredTools, type Toolset } from '../tools/toolset.ts';
import type { ToolsetLoader } from '../tools/toolset-loader.ts';
import type { BlobStore } from '../blobs/blob-store.ts';
import type { KernelCatalog } from '../catalog/catalog.ts';
import { withoutForeignFields } from '../models/accepted.ts';
import type { ModelProviders, ModelTarget } from '../models/providers.ts';
import { compactedBy } from '../core/compacted.ts';
import { foundTools, indexedTranscript, type IndexedItem, type TranscriptItem } from '../core/transcript.ts';
import type { UnsequencedRecord } from '../core/records/log.ts';
import type { ModelMessage } from '../core/records/message.ts';
import { modelNames, type AgentSpec } from '../spec/agent-spec.ts';
import { loadMedia } from './load-media.ts';
import type {
  Compaction,
  ModelCallPart,
  ModelStep,
  PreparableCall,
  RequestedSignIns,
  ShownFiles,
  StreamingProvider,
} from './model-call-part.ts';
import { promptOf } from './prompt.ts';
import { repairsLeft } from './structured-output.ts';
import type { ModelRequest } from '../models/provider.ts';
import { isBy, lastReport, type EarlierReport } from '../models/truncated-input.ts';
import type { OnceLog } from '../lib/once-log.ts';

/** What model calls are prepared from. */
export interface ModelCallSources {
  catalog: { agents: Pick<KernelCatalog['agents'], 'spec'> };
  toolsets: Pick<ToolsetLoader, 'load'>;
  models: Pick<ModelProviders, 'resolve'>;
  blobs: Pick<BlobStore, 'get'>;
  /** What features add. */
  modelCallParts: readonly ModelCallPart[];
  losses: OnceLog;
}

export interface PreparedModelCall extends Pick<RequestedSignIns, 'signIns'> {
  spec: AgentSpec;
  /** Calls the model, within the budgets that the turn shares with others. */
  provider: StreamingProvider;
  /** The model that is called. */
  target: ModelTarget;
  /** Whether there is another model to try if this one fails. */
  hasFallback: boolean;
  request: ModelRequest;
  toolset: Toolset;
  /** The conversation without compaction, as far as it was read. */
  conversation: TranscriptItem[];
  files: Pick<ShownFiles, 'extracted' | 'loadFile'>;
  /** How often the model may be called again if its message does not fit the schema. */
  repairs: number;
  /** The usage that the model reported with its last message, if the conversation has only grown since. */
  earlier?: EarlierReport;
  /** The conversation has to be compacted before the model is called. */
  compaction?: Compaction;
}

const NO_FILES: ShownFiles = { extracted: [], isCut: false, loadFile: () => undefined };

/**
 * Prepares a thread's next model call, after `records`. If it has `signIns`, the model is not called before the user
 * has completed or declined them.
 */
export async function prepareModelCall(
  { catalog, toolsets, models, blobs, modelCallParts: parts, losses }: ModelCallSources,
  call: PreparableCall,
  records: Promise<UnsequencedRecord[]>,
  signal: AbortSignal,
): Promise<PreparedModelCall> {
  const { specHash, turnId, sessionId, owner, threadId, subAgent, isForced, fallback = 0 } = call;
  // All are awaited together, so that none of them can reject unhandled, which would end the process.
  const loadingSpec = catalog.agents.spec(specHash).then((loaded) => asItIsNow(loaded, parts, records));
  const loadingToolset = loadingSpec.then((loaded) => toolsets.load(loaded, { sessionId, owner }, signal));
  const textsOf = (loaded: AgentSpec) =>
    Promise.all(parts.map(async (part) => (await part.prompt?.(loaded, call, loadingToolset)) ?? {}));
  const [spec, toolset, texts, all] = await Promise.all([
    loadingSpec,
    loadingToolset,
    loadingSpec.then(textsOf),
    records,
  ]);
  const indexed = indexedTranscript(all, threadId);
  const conversation = indexed.map(({ item }) => item);
  const compacted = compactedBy(all, threadId);
  const step: ModelStep = { call, spec, records: all, compacted, signal };
  let shown = { items: indexed, files: NO_FILES };
  for (const part of parts) shown = { ...shown, ...(await part.conversation?.(shown.items, step)) };
  let servers: RequestedSignIns = { signIns: [], unavailable: toolset.unavailable };
  for (const part of call.mayWait && !isForced ? parts : []) servers = (await part.signIns?.(servers, step)) ?? servers;
  const { signIns, unavailable } = servers;
  const names = modelNames(spec, subAgent?.model);
  const [target, ...rest] = inOrder(
    names.map((name) => models.resolve(name)),
    lastMessage(all, threadId),
  ).slice(fallback);
  if (!target) throw new Error(`the agent has no model number ${fallback + 1}`);
  const media = await loadMedia(
    shown.items.map(({ item }) => item),
    {
      blobs,
      sessionId,
      onLost: (file, i) => {
        const record = all[shown.items[i]?.at ?? -1];
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
  const seesPart = shown.files.isCut || hasHidden(conversation, shown.items);
  const tools = offeredTools(toolset, foundTools(all, threadId), { ...call, seesPart });
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
    texts,
    fileContent: media.contentOf,
  });
  const provider = parts.reduce<StreamingProvider>(
    (one, part) => part.provider?.(one, target, step) ?? one,
    target.provider,
  );
  const earlier = lastReport(request, shown.items, compacted.last);
  const sized = { conversation: shown.items, request, earlier, target };
  const compaction = parts.map((part) => part.compaction?.(sized, step)).find((one) => one !== undefined);
  return {
    spec,
    provider,
    target,
    hasFallback: rest.length > 0,
    request,
    toolset: { ...toolset, unavailable },
    conversation,
    files: shown.files,
    repairs: repairsLeft(spec, all, threadId),
    ...(earlier && isBy(earlier.message, target) && { earlier }),
    ...(compaction && { compaction }),
    signIns,
  };
}

/** The agent as the parts return it for the call: see `ModelCallPart.agent`. */
async function asItIsNow(
  spec: AgentSpec,
  parts: readonly ModelCallPart[],
  records: Promise<UnsequencedRecord[]>,
): Promise<AgentSpec> {
  let current = spec;
  for (const part of parts) current = (await part.agent?.(current, records)) ?? current;
  return current;
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
function hasHidden(conversation: TranscriptItem[], shown: IndexedItem[]): boolean {
  const whole = new Set(conversation);
  return shown.some(({ item }) => item.role === 'tool' && !whole.has(item));
}
