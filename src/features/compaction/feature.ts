import type { Feature } from '../feature.ts';
import { COMPACTION_PART } from './compact-conversation.ts';

export const COMPACTION: Feature = { modelCallPart: () => COMPACTION_PART };
