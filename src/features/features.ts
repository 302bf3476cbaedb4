import type { ModelCallPart } from '../agents/model-call-part.ts';
import { CREATE_SUB_AGENT } from '../agents/start-sub-agent.ts';
import type { LogReading } from '../catalog/log-reader.ts';
import { READ_TOOL_RESPONSE } from '../tools/read-tool-response.ts';
import { searchTools } from '../tools/search-tools.ts';
import type { SystemTool } from '../tools/system-tool.ts';
import { ASK_USER_QUESTION } from '../tools/system-tools.ts';
import { AGENT_SESSIONS } from './agent-sessions/feature.ts';
import { BUDGETS } from './budgets/feature.ts';
import { CODE } from './code/feature.ts';
import { searchCode } from './code/tools/search-code.ts';
import { COMPACTION } from './compaction/feature.ts';
import { DELEGATION } from './delegation/feature.ts';
import type { Feature, LogSources, PartSources, ToolServices } from './feature.ts';
import { FILES } from './files/feature.ts';
import { INBOX } from './inbox/feature.ts';
import { RUN_SUPPORT } from './run-support/feature.ts';
import { SCHEDULES } from './schedules/feature.ts';
import { SIGN_IN } from './sign-in/feature.ts';
import { SKILLS } from './skills/feature.ts';
import { WEBHOOKS } from './webhooks/feature.ts';

/**
 * In the order of their calls: files are read before conversations, which contain their texts, are compacted, and the
 * first turns of admitted sessions, which may be rejected, are started before delegated work is settled.
 */
export const FEATURES: readonly Feature[] = [
  RUN_SUPPORT,
  AGENT_SESSIONS,
  INBOX,
  BUDGETS,
  DELEGATION,
  SKILLS,
  CODE,
  FILES,
  COMPACTION,
  SIGN_IN,
  SCHEDULES,
  WEBHOOKS,
];

/** The tools of the server, in the order in which agents have them. */
export const SYSTEM_TOOLS: readonly SystemTool<ToolServices>[] = [
  ASK_USER_QUESTION,
  searchTools(searchCode),
  CREATE_SUB_AGENT,
  ...FEATURES.flatMap(({ tools = [] }) => tools),
  READ_TOOL_RESPONSE,
];

/** The parts that features add to model calls. */
export function modelCallParts(sources: PartSources): ModelCallPart[] {
  return FEATURES.flatMap(({ modelCallPart }) => modelCallPart?.(sources) ?? []);
}

/** Reads from logs what the `LogReader`s of the catalog store. */
export function openLogReading(sources: LogSources): LogReading {
  return {
    ofStart: (start) => merged(({ readStart }) => readStart?.(start, sources)),
    ofEntries: (added) => merged(({ readEntries }) => readEntries?.(added, sources)),
  };
}

/** Merges what the features read. They run one after the other, since they read the same log. */
async function merged(read: (feature: Feature) => object | Promise<object> | undefined): Promise<object> {
  const all = {};
  for (const feature of FEATURES) Object.assign(all, await read(feature));
  return all;
}
