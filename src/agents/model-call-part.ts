import type { Compacted } from '../core/compacted.ts';
import type { ToolScope } from '../core/history.ts';
import type { ModelCall } from '../core/model-call.ts';
import type { WithoutId } from '../core/records/base.ts';
import type { FileText } from '../core/records/input.ts';
import type { UnsequencedRecord } from '../core/records/log.ts';
import type { ServerSignIn } from '../core/records/servers.ts';
import type { ContextCompacted } from '../core/records/threads.ts';
import type { IndexedItem } from '../core/transcript.ts';
import type { ModelError } from '../models/model-error.ts';
import type { ModelProvider, ModelRequest } from '../models/provider.ts';
import type { ModelTarget } from '../models/providers.ts';
import type { EarlierReport } from '../models/truncated-input.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import type { TextSources } from '../tools/read-tool-response.ts';
import type { Toolset } from '../tools/toolset.ts';

/**
 * What a feature adds to each model call. `prepareModelCall` applies these members in their order, and each of them for
 * all parts in the order of the parts.
 */
export interface ModelCallPart {
  /** Returns the agent as it applies to the call. */
  agent?: (spec: AgentSpec, records: Promise<UnsequencedRecord[]>) => Promise<AgentSpec>;
  /** What the prompt contains besides the agent's instructions. The toolset is loaded at the same time. */
  prompt?: (spec: AgentSpec, call: PreparableCall, toolset: Promise<Pick<Toolset, 'tools'>>) => Promise<PromptTexts>;
  /** The conversation as the model gets it. */
  conversation?: (items: IndexedItem[], step: ModelStep) => Promise<ShownConversation> | ShownConversation;
  /** Requests what the toolset lacks. Not for a call that cannot wait for it: see `PreparableCall.mayWait`. */
  signIns?: (toolset: Pick<Toolset, 'unavailable'>, step: ModelStep) => Promise<RequestedSignIns>;
  provider?: (provider: StreamingProvider, target: ModelTarget, step: ModelStep) => StreamingProvider;
  /** How the conversation is compacted, if it has to be before the model is called. */
  compaction?: (sized: SizedConversation, step: ModelStep) => Compaction | undefined;
}

type CallKey = 'specHash' | 'turnId' | 'threadId' | 'mayStart' | 'subAgent' | 'isForced' | 'sessionLimit' | 'idleMs';

/** The model call that is prepared. */
export interface PreparableCall extends ToolScope, Pick<ModelCall, CallKey> {
  /** How many models were given up for it. */
  fallback?: number;
  /** How the model has rejected the conversation. */
  rejected?: Pick<ModelError, 'isTooLong' | 'contextTokens'>;
  isRetry?: () => boolean;
  /** The turn may wait for sign-ins first. */
  mayWait?: boolean;
}

/** What the parts of a model call have in common. */
export interface ModelStep {
  call: PreparableCall;
  spec: AgentSpec;
  records: UnsequencedRecord[];
  /** What the compactions of the thread have replaced. */
  compacted: Compacted;
  signal: AbortSignal;
}

export interface PromptTexts {
  /** The instructions of the project that the agent works on, which follow its own. */
  project?: string;
  /** The list of the agent's skills, which follows its instructions. */
  skills?: string;
  /** Paragraphs at the end. */
  notes?: string[];
}

interface ShownConversation {
  items: IndexedItem[];
  /** The files of users in it, of which some may be shown in part. */
  files?: ShownFiles;
}

export interface ShownFiles extends Pick<TextSources, 'loadFile'> {
  /** The texts that were extracted for the call. The record of the message keeps them. */
  extracted: FileText[];
  /** Whether a text is only shown in part. */
  isCut: boolean;
}

export interface RequestedSignIns {
  signIns: ServerSignIn[];
  /** The servers whose tools cannot be offered and for which no sign-in is requested, and why. */
  unavailable: Toolset['unavailable'];
}

export type StreamingProvider = Pick<ModelProvider, 'stream'>;

export interface SizedConversation {
  /** As the model gets it. */
  conversation: IndexedItem[];
  request: ModelRequest;
  earlier: EarlierReport | undefined;
  target: ModelTarget;
}

/** Compacts the conversation: the record contains what replaces it from now on. */
export type Compaction = (ask: AskModel) => Promise<WithoutId<ContextCompacted>>;

/** Calls the model, and returns the text of its message, never empty. @throws ModelError, other provider failures */
export type AskModel = (request: ModelRequest) => Promise<string>;
