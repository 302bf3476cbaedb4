import { offeredTools, type Toolset } from '../tools/toolset.ts';
import type { ToolsetLoader } from '../tools/toolset-loader.ts';
import type { BlobStore } from '../blobs/blob-store.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { ModelProviders } from '../models/providers.ts';
import { foundTools, transcript, type TranscriptItem } from '../core/transcript.ts';
import type { CallModelInput, ToolScope } from '../core/history.ts';
import type { ServerSignIn, UnsequencedRecord } from '../core/records.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { promptOf } from './prompt.ts';
import { requestSignIns, type SignInRequests } from './request-sign-ins.ts';
import type { ModelProvider, ModelRequest } from '../models/provider.ts';

/** What the parts of a model request are read from. */
export interface ModelCallSources {
  catalog: { agents: Pick<Catalog['agents'], 'spec'> };
  toolsets: Pick<ToolsetLoader, 'load'>;
  models: Pick<ModelProviders, 'resolve'>;
  blobs: Pick<BlobStore, 'get'>;
}

export interface PreparedModelCall {
  spec: AgentSpec;
  provider: ModelProvider;
  request: ModelRequest;
  toolset: Toolset;
  conversation: TranscriptItem[];
  /** The sign-ins that were requested: the model is not called before the user has answered them. */
  signIns: ServerSignIn[];
}

/**
 * Prepares a thread's next model call, after `records`. Sign-ins that the agent's servers require are requested if
 * `requests` is given.
 */
export async function prepareModelCall(
  { catalog, toolsets, models, blobs }: ModelCallSources,
  call: ToolScope & Pick<CallModelInput, 'specHash' | 'threadId' | 'mayStart' | 'subAgent'>,
  records: Promise<UnsequencedRecord[]>,
  signal: AbortSignal,
  requests?: SignInRequests,
): Promise<PreparedModelCall> {
  const { specHash, sessionId, owner, threadId, mayStart = 0, subAgent } = call;
  // All three are awaited together, so that none of them can reject unhandled, which would end the process.
  const loadingSpec = catalog.agents.spec(specHash);
  const [spec, toolset, all] = await Promise.all([
    loadingSpec,
    loadingSpec.then((loaded) => toolsets.load(loaded, { sessionId, owner }, signal)),
    records,
  ]);
  const conversation = transcript(all, threadId);
  const { signIns, unavailable } = requests
    ? await requestSignIns(toolset, all, requests)
    : { signIns: [], unavailable: toolset.unavailable };
  const { provider, model } = models.resolve(subAgent?.model ?? spec.model.name);
  const request = promptOf({
    spec,
    // A registered agent is instructed by its own spec alone.
    ...(subAgent && subAgent.agent === undefined && { taskName: subAgent.title }),
    model,
    transcript: conversation,
    tools: offeredTools(toolset, foundTools(all, threadId), mayStart),
    unavailable,
    fileContent: async (file) =>
      'base64' in file ? file.base64 : (await blobs.get(sessionId, file.blob)).toString('base64'),
  });
  return { spec, provider, request, toolset: { ...toolset, unavailable }, conversation, signIns };
}
