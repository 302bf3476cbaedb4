import type { MessageHandling } from '../../src/agents/message-assembler.ts';

/** For messages that start no sub-agents. */
export const NO_SUB_AGENTS: MessageHandling = {
  refusal: undefined,
  maxWaiting: Infinity,
  startSubAgent: () => Promise.resolve({ problem: 'there are no sub-agents in this test' }),
  delegate: () => ({ problem: 'no delegation' }),
  requesters: () => Promise.resolve([]),
  storeFile: () => Promise.reject(new Error('there are no blobs in this test')),
  loadBlob: () => Promise.reject(new Error('there are no blobs in this test')),
};
