import type { Feature } from '../feature.ts';
import { DELEGATE } from './delegate.ts';
import { delegationsReader } from './delegation-rows.ts';

export const DELEGATION: Feature = {
  logReaders: () => [delegationsReader],
  tools: [DELEGATE],
  sweepAfterTurns: ({ delegator }) => delegator.settleAll(),
};
