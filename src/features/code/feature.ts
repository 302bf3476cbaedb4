import type { Feature } from '../feature.ts';
import { codePart } from './code-part.ts';
import { CODE_TOOLS } from './code-tools.ts';
import { endedAgents, endedKernelsReader } from './ended-kernels.ts';
import { LIST_CODE_TOOLS } from './tools/list-code-tools.ts';

export const CODE: Feature = {
  logReaders: () => [endedKernelsReader],
  tablesOfSessions: ['sandboxes', 'permission_rules'],
  readEntries: ({ entries }) => ({ endedAgents: endedAgents(entries) }),
  tools: [...CODE_TOOLS, LIST_CODE_TOOLS],
  modelCallPart: codePart,
};
