import { CREATE_SUB_AGENT, type SubAgentSources } from '../agents/start-sub-agent.ts';
import { READ_TOOL_RESPONSE } from '../tools/read-tool-response.ts';
import { searchTools } from '../tools/search-tools.ts';
import type { SystemTool } from '../tools/system-tool.ts';
import { ASK_USER_QUESTION } from '../tools/system-tools.ts';
import { CODE_TOOLS } from './code/code-tools.ts';
import { LIST_CODE_TOOLS } from './code/tools/list-code-tools.ts';
import { searchCode, type SearchSources } from './code/tools/search-code.ts';
import { DELEGATE } from './delegation/delegate.ts';
import { READ_SKILL } from './skills/read-skill.ts';
import type { Skills } from './skills/skills.ts';

/** What they are routed or run with. */
type Services = SubAgentSources & SearchSources & { skills: Pick<Skills, 'read'> };

/** The tools of the server, in the order in which agents have them. */
export const SYSTEM_TOOLS: readonly SystemTool<Services>[] = [
  ASK_USER_QUESTION,
  searchTools(searchCode),
  CREATE_SUB_AGENT,
  DELEGATE,
  READ_SKILL,
  READ_TOOL_RESPONSE,
  ...CODE_TOOLS,
  LIST_CODE_TOOLS,
];
