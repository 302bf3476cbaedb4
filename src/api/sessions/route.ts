import { z } from 'zod';
import { ERRORS } from '../http/errors.ts';
import { agentName, fileId, webhookId } from '../http/path-parameters.ts';
import { routesOfFace, type FaceFacts } from '../http/route.ts';
import { SESSION_ERRORS } from './errors.ts';

export const exampleSandboxId = 'sbx_01kac6f1zy5c3n8s7k4b2g9d6w';

export const FACTS = {
  prefixes: { '/v1': 'key' },
  publicPaths: ['/v1/agents/mcp/authorize', '/v1/agents/mcp/callback', '/v1/agents/mcp/client-metadata'],
  tags: {
    Agents: 'registered agents and their versions',
    Sessions: 'conversations with registered agents',
    'Draft sessions': 'conversations with an agent that is still being edited',
    Turns: 'the turns of sessions and drafts: an input, and everything that follows from it, streamed as it happens',
    Sandboxes: 'the sandboxes in which the code of agents runs, and the files of their workspaces',
    Events: 'the events of turns, and the files in them',
    'MCP sign-in': 'the connections of users to MCP servers that require a sign-in',
    Permissions: 'the rules of users on what agents may do in code',
    'Saved tools': 'the tools that the code of agents imports, saved by models or by clients',
    Actions: 'the tool calls of all sessions that wait for a person or a client',
    Webhooks: 'notifications of ended turns and changed actions; only for admins',
  },
  parameters: {
    agent_name: agentName,
    agent_version: z.string().meta({ description: 'version number of the agent, from 1', example: '3' }),
    session_id: z
      .string()
      .meta({ description: 'id of a session or a draft', example: 'ses_01kac6dw3e8h4v0m6f2q9x7r5t' }),
    turn_id: z
      .string()
      .meta({ description: 'id of a turn of the session', example: 'turn_01kac6f1zy5c3n8s7k4b2g9d6w' }),
    file_id: fileId,
    connection_id: z.string().meta({
      description: 'id of a connection to an MCP server',
      example: 'con_01kac6dw3e8h4v0m6f2q9x7r5t',
    }),
    action_id: z.string().meta({ description: 'id of an action', example: 'act_01kac6f1zy5c3n8s7k4b2g9d9z_0' }),
    webhook_id: webhookId,
    rule_id: z.string().meta({ description: 'id of a rule', example: 'rule_01kac7x2m4b8d6f0h3k5p9r1tv' }),
    category: z.string().meta({ description: 'category of a saved tool', example: 'reports' }),
    tool_name: z.string().meta({ description: 'name of a saved tool', example: 'late_orders' }),
    sandbox_id: z.string().meta({ description: 'id of the sandbox of a session', example: exampleSandboxId }),
  },
  // Without `agent_name`: PUT creates the agent.
  notFound: {
    session_id: ERRORS.session_not_found,
    turn_id: ERRORS.turn_not_found,
    file_id: ERRORS.file_not_found,
    webhook_id: ERRORS.webhook_not_found,
    connection_id: SESSION_ERRORS.connection_not_found,
    action_id: SESSION_ERRORS.action_not_found,
    rule_id: SESSION_ERRORS.rule_not_found,
    sandbox_id: SESSION_ERRORS.sandbox_not_found,
  },
  errorKinds: SESSION_ERRORS,
} as const satisfies FaceFacts;

export const routesOf = routesOfFace(FACTS);
