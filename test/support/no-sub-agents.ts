import type { MessageHandling } from '../../src/agents/message-assembler.ts';
import { constantsOf } from '../../src/core/model-call.ts';
import { NEVER_ABORTED } from '../../src/lib/abort.ts';
import { MODEL_CALL, PLACE } from './activity-inputs.ts';
import { turnStart } from './random-turn.ts';

/** For messages that start no sub-agents. */
export const NO_SUB_AGENTS: MessageHandling = {
  refusal: undefined,
  maxWaiting: Infinity,
  modelCall: { ...MODEL_CALL, ...constantsOf(turnStart({ sessionId: PLACE.sessionId })) },
  signal: NEVER_ABORTED,
  requesters: () => Promise.resolve([]),
  rules: () => Promise.resolve(undefined),
  storeFile: () => Promise.reject(new Error('there are no blobs in this test')),
  loadBlob: () => Promise.reject(new Error('there are no blobs in this test')),
};
