import { offeredTools, type Toolset } from '../tools/toolset.ts';
import type { ToolsetLoader } from '../tools/toolset-loader.ts';
import type { BlobStore } from '../blobs/blob-store.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { ModelProviders } from '../models/providers.ts';
import { foundTools, transcript, type TranscriptItem } from '../core/transcript.ts';
import type { CallModelInput, ToolScope } from '../core/history.ts';
import type { UnsequencedRecord } from '../core/records.ts';
import { promptOf } from './prompt.ts';
import type { ModelProvider, ModelRequest } from '../models/provider.ts';

/** What the parts of a model request are read from. */
export interface ModelCallSources {
  catalog: { agents: Pick<Catalog['agents'], 'spec'> };
  toolsets: Pick<ToolsetLoader, 'load'>;
  models: Pick<ModelProviders, 'resolve'>;
  blobs: Pick<BlobStore, 'get'>;
}

export interface PreparedModelCall {
  provider: ModelProvider;
  request: ModelRequest;
  toolset: Toolset;
  conversation: TranscriptItem[];
}

/** What a thread's model is asked next, after `records`. */
export async function prepareModelCall(
  { catalog, toolsets, models, blobs }: ModelCallSources,
  { specHash, sessionId, owner, threadId }: ToolScope & Pick<CallModelInput, 'specHash' | 'threadId'>,
  records: Promise<UnsequencedRecord[]>,
  signal: AbortSignal,
): Promise<PreparedModelCall> {
  // Whichever of them fails first, somebody is there to hear of it: else the process would end.
  const finding = catalog.agents.spec(specHash);
  const [spec, toolset, all] = await Promise.all([
    finding,
    finding.then((found) => toolsets.load(found, { sessionId, owner }, signal)),
    records,
  ]);
  const conversation = transcript(all, threadId);
  const { provider, model } = models.resolve(spec.model.name);
  const request = promptOf({
    spec,
    model,
    transcript: conversation,
    tools: offeredTools(toolset, foundTools(all, threadId)),
    unavailable: toolset.unavailable,
    fileContent: async (file) =>
      'base64' in file ? file.base64 : (await blobs.get(sessionId, file.blob)).toString('base64'),
  });
  return { provider, request, toolset, conversation };
}
