import { defaultActivityInfo } from '@temporalio/testing';
import type { CallModelInput, CallToolInput } from '../../src/core/history.ts';
import { constantsOf } from '../../src/core/model-call.ts';
import { turnCreated } from '../../src/core/turn.ts';
import type { ModelProvider } from '../../src/models/provider.ts';
import { AT, turnStart, TURN_ID } from './random-turn.ts';

/** What the inputs of a turn's activities have, but those of model calls, in the run of a `MockActivityEnvironment`. */
export const PLACE = {
  owner: { subjectId: 'ann', draftRoles: null },
  turnId: TURN_ID,
  sessionId: 'ses_1',
  threadId: 'main',
  specHash: 'a1',
  runId: defaultActivityInfo.workflowExecution?.runId ?? '',
  deadline: Infinity,
};

/** A model call that is not the first one of its turn, and so has no speculative call. */
export const MODEL_CALL: CallModelInput = {
  turnId: PLACE.turnId,
  sessionId: PLACE.sessionId,
  threadId: PLACE.threadId,
  runId: PLACE.runId,
  deadline: PLACE.deadline,
  messageId: 'msg_0',
  createdAt: AT,
  step: 2,
  upTo: 1,
  recent: [],
};

/** A call of a tool that may be repeated, or run once. */
export function toolCallInput(effect: 'once' | 'retry'): CallToolInput {
  const source = { turnId: TURN_ID, messageId: 'msg_0', stamp: 's', index: 0, run: { effect, callHash: 'h' } };
  return { ...PLACE, toolCallId: 'call_0', source };
}

/** A conversation whose only call is of a tool with this name, for `activityDependencies`. */
export function conversationsWithCall(name: string) {
  const call = { id: 'call_0', name, arguments: '{}', info: { type: 'mcp', serverId: 's', name } };
  return {
    toolCall: () => Promise.resolve({ ...call, route: { to: 'server' } }),
    remember: () => undefined,
  };
}

/** The conversation of a root agent's model call in a session of ann, for `activityDependencies`. */
export const CONVERSATION = {
  call: (input: CallModelInput) =>
    Promise.resolve({ ...input, ...constantsOf(turnStart({ sessionId: PLACE.sessionId })) }),
  load: () => Promise.resolve([turnCreated(turnStart())]),
  remember: () => undefined,
};

/** What a model call of an agent without tools needs, for `activityDependencies`. */
export function modelDependencies(stream: ModelProvider['stream']) {
  return {
    conversations: CONVERSATION,
    toolsets: { load: () => Promise.resolve({ tools: new Map(), servers: [], unavailable: [] }) },
    models: { learnContext: () => Promise.resolve(), resolve: () => ({ model: 'm', provider: { stream } }) },
    speculativeCalls: {
      claim: () => Promise.resolve(undefined),
      skip: () => undefined,
    },
  };
}
